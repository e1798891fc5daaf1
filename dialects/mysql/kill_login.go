package mysql

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

// logins is what a template knows of users and passwords that are not the DSN's.
type logins struct {
	// ask returns the current credential; nil if there is none but the DSN's.
	ask func(ctx context.Context, refused dialects.Credential) (dialects.Credential, error)

	mu     sync.Mutex           // protects following fields
	begun  uint64               // dials
	newest *dialects.Credential // the newest credential that a server has accepted
	order  uint64               // of the dial that used newest
}

var _ dialects.CredentialAsker = (*template)(nil)

// AskCredentials: if the server refuses the credentials that the killer knows, the killer calls ask.
func (t *template) AskCredentials(ask func(context.Context, dialects.Credential) (dialects.Credential, error)) {
	t.logins.ask = ask
}

// begin returns the place of a dial in the order of their beginnings.
func (l *logins) begin() uint64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.begun++
	return l.begun
}

// took notes that a server has accepted the login of the dial with that place.
func (l *logins) took(order uint64, cred *dialects.Credential) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if cred == nil || order < l.order {
		return
	}
	own := *cred
	l.newest, l.order = &own, order
}

// latest is the newest credential that a server has accepted.
func (l *logins) latest() (cred dialects.Credential, ok bool) {
	if l == nil {
		return cred, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.newest == nil {
		return cred, false
	}
	return *l.newest, true
}

// attempts is what a killer has learned about credentials. The killer forgets it when its last call
// of stop ends.
type attempts struct {
	refused []dialects.Credential // not tried again: some servers lock an account for it
	reason  error                 // of the last refusal
	current *dialects.Credential  // the answer of ask
	asked   time.Time
}

// askPause is the pause between two questions for the current credential.
const askPause = time.Second

// maxRefused bounds how many credentials are remembered if every answer is a new token.
const maxRefused = 32

func (a *attempts) refuse(cred dialects.Credential, reason error) {
	if len(a.refused) == maxRefused {
		a.refused = a.refused[1:]
	}
	a.refused, a.reason = append(a.refused, cred), reason
}

func (a *attempts) wasRefused(cred dialects.Credential) bool {
	for _, r := range a.refused {
		if r.User == cred.User && r.Password == cred.Password {
			return true
		}
	}
	return false
}

var (
	// errRefused: the server accepts none of the credentials.
	errRefused = errors.New("the server accepts none of the known users and passwords, so the statement cannot be killed")
	// errUnseen: a user without the privilege to see other users' connections cannot see that such
	// a connection has ended.
	errUnseen = errors.New("the server does not accept its user any more, and no other user may see it")
	// errDenied: another user sees the connection and may not kill it.
	errDenied = errors.New("the server does not accept its user any more, and no other user may kill it")
)

// unable reports whether the killer can do nothing for now. Another credential may come,
// or the statement may end.
func unable(err error) bool {
	return errors.Is(err, errRefused) || errors.Is(err, errUnseen) || errors.Is(err, errDenied)
}

// unablePause is the pause between two tries while the killer is unable.
const unablePause = 250 * time.Millisecond

// connect opens a connection that can end v, unless one is open. It leads to the same address. Its
// user is v's user, who may always end v, or another user, who may have the privileges. The lock is
// held.
func (k *killer) connect(ctx context.Context, v victim) error {
	if k.open && k.at != v.remote {
		k.hangUp() // it leads to another server of the same name
	}
	if k.open && k.as.User == v.login.User {
		return nil
	}
	for {
		as, ok := k.choose(ctx, v.login)
		switch {
		case !ok:
			return fmt.Errorf("%w: %w", errRefused, k.tried.reason)
		case k.open && k.as.User == as.User:
			return nil
		}
		k.hangUp()
		l, err := k.dial(ctx, v.remote, as)
		switch {
		case err == nil:
			k.link, k.open, k.at, k.as = l, true, v.remote, as
			return nil
		case diagnose(err)&dialects.AuthFailed == 0:
			return err
		}
		k.tried.refuse(as, err)
	}
}

// choose returns the next credential to try, and whether one is left. First is the newest
// credential if it has the connection's user, else the connection's own. If it was refused, the
// program's source is asked for the current credential. Last is the newest credential of any user.
func (k *killer) choose(ctx context.Context, own dialects.Credential) (as dialects.Credential, ok bool) {
	newest, known := k.logins.latest()
	if known && newest.User == own.User {
		own = newest
	}
	if !k.tried.wasRefused(own) {
		return own, true
	}
	if current := k.current(ctx, own); current != nil && !k.tried.wasRefused(*current) {
		return *current, true
	}
	return newest, known && !k.tried.wasRefused(newest)
}

// current asks for the current credential. If that fails, it returns the last credential.
func (k *killer) current(ctx context.Context, refused dialects.Credential) *dialects.Credential {
	if k.logins == nil || k.logins.ask == nil {
		return nil
	}
	if t := &k.tried; t.asked.IsZero() || time.Since(t.asked) >= askPause {
		if cred, err := k.logins.ask(ctx, refused); err == nil {
			t.current = &cred
		}
		t.asked = time.Now()
	}
	return k.tried.current
}
