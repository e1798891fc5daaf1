package behaviour

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

var (
	errReadOnly = errors.New("stub: cannot execute in a read-only transaction")
	errDemoted  = fmt.Errorf("stub: the server is a standby: %w", dialects.ErrWrongRole)
)

// roleStub is a stub whose sessions can be asked whether their server still does.
type roleStub struct {
	*stubdialect.Stub
	fits  atomic.Pointer[func(*roleSession) error]
	place func() (host, passed string)
	asked atomic.Int32
}

// answer sets what a session's Fits answers from now on.
func (s *roleStub) answer(how func(*roleSession) error) { s.fits.Store(&how) }

func (s *roleStub) Diagnose(err error) dialects.Diagnosis {
	if errors.Is(err, errReadOnly) {
		return dialects.RoleDoubt
	}
	return s.Stub.Diagnose(err)
}

func (s *roleStub) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	inner, err := s.Stub.Dial(ctx, cred)
	if err != nil {
		return nil, err
	}
	r := &roleSession{Session: inner.(*stubdialect.Session), role: s}
	r.host, r.passed = s.place()
	return r, nil
}

type roleSession struct {
	*stubdialect.Session
	role         *roleStub
	host, passed string
}

var (
	_ dialects.RoleChecker = (*roleSession)(nil)
	_ dialects.Hosted      = (*roleSession)(nil)
)

func (s *roleSession) Host() (host, passed string) { return s.host, s.passed }

func (s *roleSession) CheckRole(context.Context) error {
	s.role.asked.Add(1)
	return (*s.role.fits.Load())(s)
}

// openRoles opens a database of the stub. What it logs is in the buffer.
func openRoles(t *testing.T, matters bool, options ...pooldriver.Option) (*roleStub, *sql.DB, *pooldriver.Connector, *lockedBuffer) {
	t.Helper()
	s := &roleStub{
		Stub:  stubdialect.New(dialects.Traits{RoleMatters: matters}),
		place: func() (string, string) { return "", "" },
	}
	s.answer(func(*roleSession) error { return nil })
	log := &lockedBuffer{}
	c := pooldriver.Wrap(stubdialect.Connector(s), append([]pooldriver.Option{logTo(log), maxConns(3)}, options...)...)
	db := sql.OpenDB(c)
	t.Cleanup(func() {
		require.NoError(t, db.Close())
		require.Empty(t, s.Server.Violations())
	})
	_, err := db.Exec("CREATE TABLE t (a INT)")
	require.NoError(t, err)
	return s, db, c, log
}

// refused runs a statement that the server refuses as a standby does.
func (s *roleStub) refused(t *testing.T, run func() error) {
	t.Helper()
	s.Server.Fail(fakedb.ConnExecCtx, 1, errReadOnly)
	require.ErrorIs(t, run(), errReadOnly)
}

// settledDown waits until nothing is on its way back.
func settledDown(t *testing.T, c *pooldriver.Connector) {
	t.Helper()
	require.Eventually(t, func() bool { return c.Stats().Pool.Lent == len(c.Holders()) && c.Stats().Pool.Destroying == 0 }, patience, time.Millisecond)
}

func TestAReadOnlyTransactionOfTheProgramCostsAQuestionAndNoConnection(t *testing.T) {
	s, db, c, log := openRoles(t, true)
	s.answer(func(r *roleSession) error {
		require.Equal(t, dialects.TxNone, r.TxStatus(), "asked when the transaction is over")
		return nil
	})
	for i := range 3 {
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{ReadOnly: true})
		require.NoError(t, err)
		s.refused(t, func() error { _, err := tx.Exec("INSERT INTO t VALUES (1)"); return err })
		require.EqualValues(t, i, s.asked.Load(), "not while the borrower has it")
		require.NoError(t, tx.Rollback())
		settledDown(t, c)
		require.EqualValues(t, i+1, s.asked.Load())
	}
	_, err := db.Exec("INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	settledDown(t, c)
	require.EqualValues(t, 3, s.asked.Load(), "a doubt is settled once")
	require.EqualValues(t, 1, c.Stats().Pool.Creates)
	require.Zero(t, c.Stats().WrongRoles)
	require.Zero(t, log.lines("no longer"))
}

func TestTheConnectionsOfADemotedServerAreReplaced(t *testing.T) {
	for name, use := range map[string]func(context.Context, *sql.DB) error{
		"plain": func(ctx context.Context, db *sql.DB) error {
			_, err := db.ExecContext(ctx, "INSERT INTO t VALUES (1)")
			return err
		},
		"task": func(ctx context.Context, db *sql.DB) error {
			ctx, end := pooldriver.WithTask(ctx)
			defer end()
			tx, err := db.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			_, err = db.ExecContext(ctx, "INSERT INTO t VALUES (1)")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, db, c, log := openRoles(t, true)
			held, err := db.Conn(t.Context())
			require.NoError(t, err)
			require.NoError(t, held.PingContext(t.Context()))
			idle, err := db.Conn(t.Context())
			require.NoError(t, err)
			require.NoError(t, idle.PingContext(t.Context()))
			third, err := db.Conn(t.Context())
			require.NoError(t, err)
			require.NoError(t, third.PingContext(t.Context()))
			require.NoError(t, third.Close())
			require.NoError(t, idle.Close())
			require.Equal(t, 3, s.Server.State().Open())

			s.answer(func(*roleSession) error { return errDemoted })
			s.refused(t, func() error { return use(t.Context(), db) })
			settledDown(t, c)
			require.Equal(t, 1, s.Server.State().Open(), "the idle ones at once")
			require.EqualValues(t, 1, c.Stats().WrongRoles)
			require.Equal(t, 1, log.lines("a server is no longer what the DSN asks for"))
			require.NoError(t, held.Close())
			settledDown(t, c)
			require.Zero(t, s.Server.State().Open(), "those in use when they come back")

			// The new ones lead elsewhere, and what is found out late about an
			// old one is no news.
			s.answer(func(*roleSession) error { return nil })
			require.NoError(t, use(t.Context(), db))
			settledDown(t, c)
			require.Equal(t, 1, s.Server.State().Open())
			require.EqualValues(t, 4, c.Stats().Pool.Creates)
		})
	}
}

func TestOneFlushForAllThatFindOutTheSame(t *testing.T) {
	s, db, c, log := openRoles(t, true)
	var conns []*sql.Conn
	for range 2 {
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, conn.PingContext(t.Context()))
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		s.refused(t, func() error { _, err := conn.ExecContext(t.Context(), "INSERT INTO t VALUES (1)"); return err })
	}
	s.answer(func(*roleSession) error { return errDemoted })
	require.NoError(t, conns[0].Close())
	settledDown(t, c)
	s.answer(func(*roleSession) error { return nil })
	_, err := db.Exec("INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	fresh := c.Stats().Pool.Creates

	s.answer(func(*roleSession) error { return errDemoted })
	require.NoError(t, conns[1].Close())
	settledDown(t, c)
	s.answer(func(*roleSession) error { return nil })
	_, err = db.Exec("INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	require.Equal(t, fresh, c.Stats().Pool.Creates, "the fresh one stays")
	require.EqualValues(t, 2, c.Stats().WrongRoles)
	require.Equal(t, 1, log.lines("no longer"))
}

func TestAServerThatDoesNotAnswerTheQuestionLosesThatConnectionAlone(t *testing.T) {
	s, db, c, _ := openRoles(t, true)
	other, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, other.PingContext(t.Context()))
	s.answer(func(*roleSession) error { return errors.New("no answer") })
	s.refused(t, func() error { _, err := db.Exec("INSERT INTO t VALUES (1)"); return err })
	require.NoError(t, other.Close())
	settledDown(t, c)
	require.Equal(t, 1, s.Server.State().Open())
	require.Zero(t, c.Stats().WrongRoles)
}

func TestARefusalAtCommitIsADoubtToo(t *testing.T) {
	s, db, c, _ := openRoles(t, false)
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	_, err = tx.Exec("INSERT INTO t VALUES (1)")
	require.NoError(t, err)
	s.Server.Fail(fakedb.TxCommit, 1, errReadOnly)
	require.ErrorIs(t, tx.Commit(), errReadOnly)
	settledDown(t, c)
	require.EqualValues(t, 1, s.asked.Load())
}

func TestHealthChecksAskForTheRoleWhereOneIsWanted(t *testing.T) {
	for _, matters := range []bool{false, true} {
		t.Run(fmt.Sprint("matters=", matters), func(t *testing.T) {
			s, db, c, _ := openRoles(t, matters, maxConns(1), func(c *pooldriver.Config) { c.HealthCheckPeriod = 5 * time.Millisecond })
			var demoted atomic.Bool
			s.answer(func(*roleSession) error {
				if demoted.Load() {
					return errDemoted
				}
				return nil
			})
			require.NoError(t, db.Ping())
			if !matters {
				pings := s.Pings.Load()
				require.Eventually(t, func() bool {
					require.NoError(t, db.Ping()) // without a use there is no round
					return s.Pings.Load() > pings+2
				}, patience, time.Millisecond)
				require.Zero(t, s.asked.Load())
				return
			}
			require.Eventually(t, func() bool { return s.asked.Load() > 2 }, patience, time.Millisecond)
			require.Equal(t, 1, s.Server.State().Open())
			demoted.Store(true)
			require.Eventually(t, func() bool { return s.Server.State().Open() == 0 }, patience, time.Millisecond)
			require.EqualValues(t, 1, c.Stats().WrongRoles)
			require.EqualValues(t, 1, c.Stats().Closed[pooldriver.CloseWrongRole])
		})
	}
}

func TestAChangeOfServersIsToldOnce(t *testing.T) {
	s, db, c, log := openRoles(t, false)
	dial := func(host, passed string) {
		s.place = func() (string, string) { return host, passed }
		c.Flush()
		_, err := db.Exec("INSERT INTO t VALUES (1)")
		require.NoError(t, err)
		settledDown(t, c)
	}
	const event = "now connecting to another server"
	dial("h1:1", "")
	dial("h1:1", "")
	require.Zero(t, log.lines(event), "the first of the DSN is what was asked for")
	dial("h2:1", "h1:1: connection refused")
	dial("h2:1", "")
	require.Equal(t, 1, log.lines(event))
	require.Equal(t, 1, log.lines(`host=h2:1 before=h1:1 passed="h1:1: connection refused"`))
	dial("h1:1", "")
	require.Equal(t, 2, log.lines(event))
}

// TestARefusalThatComesWithTheRowsIsNoticed: a function that writes may be called
// for the second row only, or in the second result set.
func TestARefusalThatComesWithTheRowsIsNoticed(t *testing.T) {
	for name, call := range map[string]fakedb.Call{"a row": fakedb.RowsNext, "a result set": fakedb.RowsNextSet} {
		for _, inTask := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, task %v", name, inTask), func(t *testing.T) {
				s, db, c, _ := openRoles(t, true)
				s.answer(func(*roleSession) error { return errDemoted })
				ctx, end := t.Context(), func() {}
				if inTask {
					ctx, end = pooldriver.WithTask(ctx)
				}
				rows, err := db.QueryContext(ctx, "SELECT a FROM t; SELECT a FROM t")
				require.NoError(t, err)
				s.Server.Fail(call, 1, errReadOnly)
				for more := true; more; more = rows.NextResultSet() {
					for rows.Next() {
					}
				}
				require.ErrorIs(t, rows.Err(), errReadOnly)
				require.NoError(t, rows.Close())
				end()
				settledDown(t, c)
				require.EqualValues(t, 1, s.asked.Load())
				require.EqualValues(t, 1, c.Stats().WrongRoles)
			})
		}
	}
}
