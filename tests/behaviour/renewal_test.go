package behaviour

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

var errRefused = errors.New("stub: password refused")

// credentialStub is a stub whose dials take credentials, or refuse them.
type credentialStub struct {
	*stubdialect.Stub
	refused atomic.Pointer[string]
	calls   atomic.Int32 // of the source
	hang    atomic.Bool  // they run slow first
	slow    func(context.Context)

	mu   sync.Mutex // protects following fields
	used []string   // passwords, by dial
}

func (s *credentialStub) TakesCredential() bool { return true }

func (s *credentialStub) Diagnose(err error) dialects.Diagnosis {
	if errors.Is(err, errRefused) {
		return dialects.AuthFailed
	}
	return s.Stub.Diagnose(err)
}

func (s *credentialStub) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	s.mu.Lock()
	s.used = append(s.used, cred.Password)
	s.mu.Unlock()
	if no := s.refused.Load(); no != nil && (*no == "all" || *no == cred.Password) {
		return nil, errRefused
	}
	return s.Stub.Dial(ctx, nil)
}

// passwords returns those that dials have used so far.
func (s *credentialStub) passwords() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.used...)
}

// openRotating opens a database whose passwords are "1", "2", …, as the source is
// called. Each is good for that long; 0: it does not say.
func openRotating(t *testing.T, lasts time.Duration, before func(call int) error) (*credentialStub, *sql.DB, *lockedBuffer) {
	t.Helper()
	s := &credentialStub{Stub: stubdialect.New(dialects.Traits{})}
	log := &lockedBuffer{}
	source := func(ctx context.Context) (pooldriver.Credential, error) {
		if s.hang.Load() {
			s.slow(ctx)
		}
		call := int(s.calls.Add(1))
		if err := before(call); err != nil {
			return pooldriver.Credential{}, err
		}
		cred := pooldriver.Credential{User: "app", Password: fmt.Sprint(call)}
		if lasts > 0 {
			cred.Expires = time.Now().Add(lasts)
		}
		return cred, nil
	}
	c := pooldriver.Wrap(stubdialect.Connector(s), logTo(log), maxConns(3), func(c *pooldriver.Config) {
		c.MaxConnLifetime, c.MaxConnIdleTime = 0, 0
		c.Credentials = source
	})
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return s, db, log
}

func ping(t *testing.T, db *sql.DB) {
	t.Helper()
	require.NoError(t, db.Ping())
}

func never(int) error { return nil }

func TestConnectionsAreReplacedWhenTheirCredentialIsRenewedWithoutWaitingForADial(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db, _ := openRotating(t, 10*time.Minute, never)
		ping(t, db)
		busy, err := db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, busy.PingContext(t.Context()))
		require.Equal(t, []string{"1"}, s.passwords(), "one connection, which is in use")

		time.Sleep(9*time.Minute + time.Second)
		require.NoError(t, busy.PingContext(t.Context()), "whoever has it keeps it")
		require.NoError(t, busy.Close())
		ping(t, db)
		require.Equal(t, []string{"1", "2"}, s.passwords()[:2], "then it is replaced")
		synctest.Wait()
		require.EqualValues(t, 1, s.Server.State().Open())
		require.NoError(t, db.Close())
	})
}

func TestAnIdleConnectionIsClosedWhenItsCredentialIsRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db, _ := openRotating(t, 10*time.Minute, never)
		ping(t, db)
		time.Sleep(9*time.Minute + time.Second)
		synctest.Wait()
		require.Zero(t, s.Server.State().Open())
		require.Equal(t, []string{"1"}, s.passwords())
		require.NoError(t, db.Close())
	})
}

func TestASourceThatFailsToRenewIsAskedAgainWhileConnectionsGoOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db, log := openRotating(t, 10*time.Minute, func(call int) error {
			if call > 1 && call < 20 {
				return errors.New("vault is sealed")
			}
			return nil
		})
		ping(t, db)
		time.Sleep(9*time.Minute + 12*time.Second)
		synctest.Wait()
		require.EqualValues(t, 4, s.calls.Load(), "when it was due, 5 s later and 10 s later")
		require.Positive(t, log.lines("vault is sealed"))
		time.Sleep(time.Minute)
		ping(t, db)
		require.Equal(t, []string{"1"}, s.passwords(), "the connection has outlived its credential")
		time.Sleep(time.Minute)
		ping(t, db)
		require.Equal(t, "20", s.passwords()[1])
		require.NoError(t, db.Close())
	})
}

func TestNobodyIsAskedForACredentialThatNothingUses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db, _ := openRotating(t, 10*time.Minute, never)
		ping(t, db)
		time.Sleep(time.Hour)
		require.EqualValues(t, 2, s.calls.Load(), "the second closed what was idle")
		ping(t, db)
		require.EqualValues(t, 3, s.calls.Load())
		require.NoError(t, db.Close())
		time.Sleep(time.Hour)
		require.EqualValues(t, 3, s.calls.Load())
	})
}

func TestASourceThatPanicsWhileRenewingIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db, log := openRotating(t, 10*time.Minute, func(call int) error {
			if call == 2 {
				panic("no vault")
			}
			return nil
		})
		ping(t, db)
		time.Sleep(9*time.Minute + time.Second)
		synctest.Wait()
		require.Positive(t, log.lines("function=Config.Credentials panic=string stack="))
		ping(t, db)
		require.Equal(t, []string{"1"}, s.passwords())
		require.NoError(t, db.Close())
	})
}

func TestTheConnectionThatLearnsOfANewPasswordIsNotReplacedItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db, _ := openRotating(t, time.Minute, never)
		ping(t, db)
		time.Sleep(time.Hour) // nobody renews what nothing uses
		for range 5 {
			ping(t, db)
		}
		require.Equal(t, []string{"1", "3"}, s.passwords(), "the second has closed what was idle")
		require.NoError(t, db.Close())
	})
}

func TestTokensThatDifferEachTimeDoNotReplaceConnectionsEachTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, db, _ := openRotating(t, 0, never) // each dial has another password
		held := make([]*sql.Conn, 3)
		for i := range held {
			var err error
			held[i], err = db.Conn(t.Context())
			require.NoError(t, err)
			require.NoError(t, held[i].PingContext(t.Context()))
		}
		for _, c := range held {
			require.NoError(t, c.Close())
		}
		for range 100 {
			ping(t, db)
		}
		require.LessOrEqual(t, len(s.passwords()), 5, "the first change replaces, those that follow at once do not")
		require.NoError(t, db.Close())
	})
}

func TestCloseDoesNotWaitForASourceThatRenews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var entered atomic.Bool
		s, db, log := openRotating(t, 10*time.Minute, never)
		s.slow = func(ctx context.Context) {
			entered.Store(true)
			<-ctx.Done()
		}
		ping(t, db)
		s.hang.Store(true)
		time.Sleep(9*time.Minute + time.Second)
		require.True(t, entered.Load())
		require.NoError(t, db.Close())
		synctest.Wait() // the bubble ends only if the renewal has
		require.Zero(t, log.lines("no new credential"))
	})
}

func TestARefusedPasswordIsAskedForOnceMoreAndTriedOnceMore(t *testing.T) {
	s, db, _ := openRotating(t, time.Hour, never)
	one := "1"
	s.refused.Store(&one)
	ping(t, db)
	require.Equal(t, []string{"1", "2"}, s.passwords())

	s, db, _ = openRotating(t, time.Hour, never)
	all := "all"
	s.refused.Store(&all)
	require.ErrorIs(t, db.Ping(), errRefused)
	require.Equal(t, []string{"1", "2"}, s.passwords(), "an account may be locked after a few")
}
