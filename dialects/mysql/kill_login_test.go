package mysql

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/myerror"
)

// accounts are a busy server's, by user; a source gives one of them.
type accounts struct {
	*busyServer

	mu        sync.Mutex // protects following fields
	passwords map[string]string
	refused   []string // users
	source    dialects.Credential
	asked     []dialects.Credential // what was said to be refused
}

func newAccounts(t *testing.T, userAndPassword ...string) *accounts {
	a := &accounts{busyServer: newBusyServer(t), passwords: map[string]string{}}
	for i := 0; i < len(userAndPassword); i += 2 {
		a.passwords[userAndPassword[i]] = userAndPassword[i+1]
	}
	a.refuses(func(l login) uint16 {
		a.mu.Lock()
		defer a.mu.Unlock()
		if password, ok := a.passwords[l.user]; ok && l.by(password) {
			return 0
		}
		a.refused = append(a.refused, l.user)
		return myerror.AccessDenied
	})
	return a
}

// becomes changes the password of a user, or makes one; "" drops it.
func (a *accounts) becomes(user, password string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.passwords[user] = password; password == "" {
		delete(a.passwords, user)
	}
}

func (a *accounts) gives(user, password string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.source = dialects.Credential{User: user, Password: password}
}

// history returns which users were refused and how often the source was asked.
func (a *accounts) history() (refused []string, asked int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.refused), len(a.asked)
}

func (a *accounts) ask(_ context.Context, refused dialects.Credential) (dialects.Credential, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.asked = append(a.asked, refused)
	if a.source.User == "" {
		return a.source, errors.New("the vault is sealed")
	}
	return a.source, nil
}

func (a *accounts) dialAs(t *testing.T, tmpl *template, user, password string) *session {
	t.Helper()
	s, err := tmpl.Dial(t.Context(), &dialects.Credential{User: user, Password: password})
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Conn().Close() })
	return s.(*session)
}

// closesWith closes the session of a stage, whose end nobody will confirm, within d. The error says why. Where the
// machine stood still before that was known, it is tried on another stage, with more time.
func closesWith(t *testing.T, why error, d time.Duration, stage func() *session) {
	t.Helper()
	for ; ; d *= 2 {
		err := closeWithin(t, stage(), d)
		if errors.Is(err, why) {
			return
		}
		require.Less(t, d, 10*time.Second, "%v", err)
	}
}

func closeWithin(t *testing.T, s *session, d time.Duration) error {
	t.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	err := s.Close(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.GreaterOrEqual(t, time.Since(begun), d, "its place is not free before")
	require.NotContains(t, err.Error(), "old")
	return err
}

func TestAStatementIsKilledByItsOwnUserWhoeverCameLater(t *testing.T) {
	a := newAccounts(t, "u1", "old-1", "u2", "old-2")
	tmpl := a.template(t, "")
	s := a.dialAs(t, tmpl, "u1", "old-1")
	a.dialAs(t, tmpl, "u2", "old-2")
	a.cancelled(t, s)
	a.said()
	require.NoError(t, s.Close(t.Context()))
	said := a.said()
	require.Equal(t, "login u1/", said[0])
	require.Equal(t, 1, count(said, killLabel))
}

func TestTheKillersConnectionServesItsOwnUserOnly(t *testing.T) {
	a := newAccounts(t, "u1", "old-1", "u2", "old-2")
	tmpl := a.template(t, "")
	first, second := a.dialAs(t, tmpl, "u2", "old-2"), a.dialAs(t, tmpl, "u1", "old-1")
	a.cancelled(t, first)
	a.cancelled(t, second)
	a.said()
	killer := tmpl.servers[0].killer
	killer.users.Add(1) // it stays open
	require.NoError(t, first.Close(t.Context()))
	require.NoError(t, second.Close(t.Context()))
	killer.leave()
	said := a.said()
	require.Equal(t, []int{1, 1, 2}, []int{count(said, "login u2/"), count(said, "login u1/"), count(said, killLabel)})
}

func TestTheKillerUsesTheNewestPasswordOfTheUser(t *testing.T) {
	a := newAccounts(t, "u1", "old")
	tmpl := a.template(t, "")
	tmpl.AskCredentials(a.ask)
	s := a.dialAs(t, tmpl, "u1", "old")
	a.becomes("u1", "new")
	a.dialAs(t, tmpl, "u1", "new")
	a.cancelled(t, s)
	require.NoError(t, s.Close(t.Context()))
	refused, asked := a.history()
	require.Empty(t, refused)
	require.Zero(t, asked)
}

func TestTheSourceIsAskedForThePasswordOfNow(t *testing.T) {
	a := newAccounts(t, "u1", "old")
	tmpl := a.template(t, "")
	tmpl.AskCredentials(a.ask)
	s := a.dialAs(t, tmpl, "u1", "old")
	a.cancelled(t, s)
	a.becomes("u1", "new")
	a.gives("u1", "new")
	require.NoError(t, s.Close(t.Context()))
	refused, asked := a.history()
	require.Equal(t, []string{"u1"}, refused)
	require.Equal(t, 1, asked)
	require.Equal(t, "old", a.asked[0].Password)
}

func TestARefusedCredentialReplacesNoneThatIsGood(t *testing.T) {
	a := newAccounts(t, "u1", "old")
	tmpl := a.template(t, "")
	s := a.dialAs(t, tmpl, "u1", "old")
	a.cancelled(t, s)
	_, err := tmpl.Dial(t.Context(), &dialects.Credential{User: "u1", Password: "not yet"})
	require.Equal(t, dialects.AuthFailed, diagnose(err))
	require.NoError(t, s.Close(t.Context()))
	refused, _ := a.history()
	require.Len(t, refused, 1, "the dial")
}

func TestWhatTheKillerMayNotSeeHasNotGone(t *testing.T) {
	var a *accounts
	closesWith(t, errUnseen, 600*time.Millisecond, func() *session {
		a = newAccounts(t, "u1", "old-1", "u2", "old-2")
		tmpl := a.template(t, "")
		tmpl.AskCredentials(a.ask)
		s := a.dialAs(t, tmpl, "u1", "old-1")
		a.cancelled(t, s)
		a.becomes("u1", "")
		a.gives("u2", "old-2")
		a.said()
		return s
	})
	said := a.said()
	require.Zero(t, count(said, killLabel))
	require.Equal(t, []int{1, 1}, []int{count(said, "login u1/"), count(said, "login u2/")}, "each once")
}

func TestAnotherUserWithThePrivilegesKillsForOneThatIsNoMore(t *testing.T) {
	for _, known := range []string{"by a dial", "by the source"} {
		t.Run(known, func(t *testing.T) {
			a := newAccounts(t, "u1", "old-1", "u2", "old-2")
			a.seesAll = map[string]bool{"u2": true}
			tmpl := a.template(t, "")
			s := a.dialAs(t, tmpl, "u1", "old-1")
			if known == "by a dial" {
				a.dialAs(t, tmpl, "u2", "old-2")
			} else {
				tmpl.AskCredentials(a.ask)
				a.gives("u2", "old-2")
				a.dialAs(t, tmpl, "u1", "old-1") // another user's, so that it is seen that others are
			}
			a.cancelled(t, s)
			a.becomes("u1", "")
			require.NoError(t, s.Close(t.Context()))
			require.Equal(t, 1, count(a.said(), killLabel))
		})
	}
}

func TestWhoMaySeeAndNotKillWaitsForTheStatementsOwnEnd(t *testing.T) {
	denied := func(ends bool) *session {
		a := newAccounts(t, "u1", "old-1", "u2", "old-2", "app", "secret")
		a.seesAll = map[string]bool{"u2": true}
		tmpl := a.template(t, "")
		a.dial(t, tmpl) // somebody else
		s := a.dialAs(t, tmpl, "u1", "old-1")
		a.dialAs(t, tmpl, "u2", "old-2")
		a.cancelled(t, s)
		a.becomes("u1", "")
		a.answers(func(p *peerSession, q string) reply {
			if !strings.HasPrefix(q, killLabel) {
				return a.answerTo(p, q)
			}
			if ends {
				a.busyServer.mu.Lock()
				closeOnce(a.killed[uint32(s.thread)])
				a.busyServer.mu.Unlock()
			}
			return reply{errno: myerror.KillDenied}
		})
		return s
	}
	require.NoError(t, denied(true).Close(t.Context()))
	closesWith(t, errDenied, 400*time.Millisecond, func() *session { return denied(false) })
}

func TestACredentialIsRefusedOnceAndTheNextOneWaitedFor(t *testing.T) {
	var a *accounts
	var s *session
	closesWith(t, errRefused, 300*time.Millisecond, func() *session {
		a = newAccounts(t, "u1", "old")
		tmpl := a.template(t, "")
		tmpl.AskCredentials(a.ask) // it fails
		s = a.dialAs(t, tmpl, "u1", "old")
		other := a.dialAs(t, tmpl, "u1", "old")
		a.cancelled(t, s)
		a.cancelled(t, other)
		a.becomes("u1", "new")
		return other
	})
	_, before := a.history()
	a.gives("u1", "old")
	var closing sync.WaitGroup
	closing.Go(func() {
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
	require.Eventually(t, func() bool { _, asked := a.history(); return asked == before+1 }, time.Minute, time.Millisecond)
	a.gives("u1", "new")
	closing.Wait()
	refused, asked := a.history()
	require.Equal(t, []string{"u1", "u1"}, refused, "once for each of those who killed, one after the other")
	require.Equal(t, before+2, asked)
}
