package integration

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/byteproxy"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// goodbye is a way in which an idle session ends so that the next call meets the server's last word.
type goodbye struct {
	setting string        // of the account, before it connects
	after   time.Duration // the session ends by itself, so long after its last statement
	holds   bool          // else the look at idle connections would find it
	arm     func(t *testing.T, s stage, proxy *byteproxy.Proxy)
}

// goodbyes are those of the stage's database, by the error's code. PostgreSQL sends its word to the
// idle session. MariaDB and MySQL close the connection without a word, and the look at idle
// connections finds that. But a proxy before them, such as MaxScale, answers the next command with
// the error of the session that was killed.
func (s stage) goodbyes() map[string]goodbye {
	answers := func(number uint16, text string) goodbye {
		packet := append([]byte{0, 0, 0, 1, 0xff, byte(number), byte(number >> 8)}, text...)
		packet[0] = byte(len(packet) - 4)
		return goodbye{arm: func(_ *testing.T, _ stage, proxy *byteproxy.Proxy) {
			proxy.Arm(byteproxy.Fault{Cut: byteproxy.Finish, Answer: packet})
		}}
	}
	says := func(setting string, after time.Duration, end func(t *testing.T, s stage)) goodbye {
		return goodbye{setting: setting, after: after, holds: true, arm: func(t *testing.T, s stage, _ *byteproxy.Proxy) {
			end(t, s)
			awaitBackends(t, s.account, 0)
			mustExec(t, s.witness, "ALTER ROLE "+s.account.User+" RESET ALL") // the next session may wait for a processor
		}}
	}
	if s.name == "mysql" {
		return map[string]goodbye{
			"1927": answers(1927, "#70100Connection was killed"),
			"3169": answers(3169, "#HY000The session was killed"),
		}
	}
	return map[string]goodbye{
		"57P01": says("", 0, func(t *testing.T, s stage) { s.account.KillIdle(t, 1) }),
		"57P05": says("idle_session_timeout = '200ms'", 200*time.Millisecond, func(*testing.T, stage) {}),
	}
}

// ways are how a program may reach the stage's database at addr.
func (s stage) ways() map[string]func(t *testing.T, addr string) *pooldriver.Connector {
	options := []pooldriver.Option{quiet, func(c *pooldriver.Config) { c.MaxConns = 1 }}
	ways := map[string]func(t *testing.T, addr string) *pooldriver.Connector{
		"New": func(_ *testing.T, addr string) *pooldriver.Connector {
			return pooldriver.New(s.account.Via(addr).URL(), options...)
		},
		"Wrap": func(t *testing.T, addr string) *pooldriver.Connector {
			return pooldriver.Wrap(connectorOf(t, s.account.Via(addr)), options...)
		},
	}
	for _, over := range s.overODBC() {
		ways["ODBC"] = func(_ *testing.T, addr string) *pooldriver.Connector {
			over.account = over.account.Via(addr)
			return pooldriver.New(over.url(), options...)
		}
	}
	return ways
}

// meets opens the stage's database and has one idle connection to it that ends with bye.
func (s stage) meets(t *testing.T, bye goodbye, open func(addr string) *sql.DB) *sql.DB {
	t.Helper()
	for range mostTries {
		if db := s.tryToMeet(t, bye, open); db != nil {
			return db
		}
	}
	require.FailNow(t, "the machine is never on time")
	return nil
}

// tryToMeet is meets, nil where the session has ended before the answers were held.
func (s stage) tryToMeet(t *testing.T, bye goodbye, open func(addr string) *sql.DB) *sql.DB {
	t.Helper()
	proxy, err := byteproxy.Listen(s.account.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	if bye.setting != "" {
		mustExec(t, s.witness, "ALTER ROLE "+s.account.User+" SET "+bye.setting)
		t.Cleanup(func() { mustExec(t, s.witness, "ALTER ROLE "+s.account.User+" RESET ALL") })
	}
	db := open(proxy.Addr())
	t.Cleanup(func() { _ = db.Close() })
	last := time.Now()
	late := func() bool { return bye.after > 0 && time.Since(last) > bye.after/2 }
	for range 2 { // pgx asks a connection once before it is used again
		last = time.Now()
		if err := db.QueryRow("SELECT 1").Scan(new(int)); !late() {
			require.NoError(t, err)
		}
		if late() {
			return s.missed(t, db)
		}
	}
	if bye.holds {
		proxy.HoldAnswers()
	}
	if late() {
		return s.missed(t, db)
	}
	bye.arm(t, s, proxy)
	return db
}

// missed gives up a meeting.
func (s stage) missed(t *testing.T, db *sql.DB) *sql.DB {
	t.Helper()
	require.NoError(t, db.Close())
	awaitBackends(t, s.account, 0)
	return nil
}

// unexecuted are the calls that execute nothing of the program.
var unexecuted = map[string]func(ctx context.Context, db *sql.DB) error{
	"Prepare": func(ctx context.Context, db *sql.DB) error {
		stmt, err := db.PrepareContext(ctx, "SELECT id FROM ledger")
		if err == nil {
			err = stmt.Close()
		}
		return err
	},
	"BeginTx": func(ctx context.Context, db *sql.DB) error { return beginAndEnd(ctx, db, nil) },
	"BeginTx with a level": func(ctx context.Context, db *sql.DB) error {
		return beginAndEnd(ctx, db, &sql.TxOptions{Isolation: sql.LevelSerializable})
	},
	"Ping": func(ctx context.Context, db *sql.DB) error { return db.PingContext(ctx) },
}

// beginAndEnd reads in a transaction: BEGIN may travel with the read.
func beginAndEnd(ctx context.Context, db *sql.DB, opts *sql.TxOptions) error {
	tx, err := db.BeginTx(ctx, opts)
	if err == nil {
		_, err = tx.ExecContext(ctx, "SELECT 1")
		err = errors.Join(err, tx.Rollback())
	}
	return err
}

// TestWhatExecutesNothingIsRepeatedWhereTheServerEndsTheSession, and the reason of the connection's end is told.
func TestWhatExecutesNothingIsRepeatedWhereTheServerEndsTheSession(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		s := serverStage(t, account)
		for code, bye := range s.goodbyes() {
			for way, open := range s.ways() {
				for name, call := range unexecuted {
					t.Run(code+"/"+way+"/"+name, func(t *testing.T) {
						var c *pooldriver.Connector
						once := func() (*pooldriver.Connector, error) {
							db := s.meets(t, bye, func(addr string) *sql.DB { c = open(t, addr); return sql.OpenDB(c) })
							return c, call(t.Context(), db)
						}
						var err error
						if way == "ODBC" {
							_, err = once()
						} else {
							err = s.meetsUnasked(t, once)
						}
						if way == "ODBC" && err != nil { // it begins nothing: the transaction's SELECT met a goodbye that was late
							require.ErrorContains(t, err, "may or may not have executed it")
							require.Zero(t, c.Stats().Retries)
							return
						}
						require.NoError(t, err)
						if way != "ODBC" { // its driver sends nothing for some of the calls
							require.Equal(t, []pooldriver.CloseReason{pooldriver.CloseLost}, closedBy(c))
							require.EqualValues(t, 1, c.Stats().Retries)
						}
					})
				}
			}
		}
	})
}

// meetsUnasked has call meet a goodbye. On a busy machine the connection may have been idle for a second before: then
// the pool has asked it first, and found it dead.
func (s stage) meetsUnasked(t *testing.T, call func() (*pooldriver.Connector, error)) (err error) {
	t.Helper()
	for range mostTries {
		var c *pooldriver.Connector
		if c, err = call(); c.Stats().FoundDead == 0 {
			break
		}
		require.NoError(t, c.Close())
		awaitBackends(t, s.account, 0)
		mustExec(t, s.witness, "DELETE FROM ledger")
	}
	return err
}

// TestAStatementIsNotRepeatedWhereTheServerEndsTheSession: a procedure may have committed before.
func TestAStatementIsNotRepeatedWhereTheServerEndsTheSession(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		s := serverStage(t, account)
		for code, bye := range s.goodbyes() {
			for way, open := range s.ways() {
				t.Run(code+"/"+way, func(t *testing.T) {
					var c *pooldriver.Connector
					insert := func() (*pooldriver.Connector, error) {
						db := s.meets(t, bye, func(addr string) *sql.DB { c = open(t, addr); return sql.OpenDB(c) })
						_, err := db.ExecContext(t.Context(), insertInto(1))
						return c, err
					}
					if way == "ODBC" { // its sessions are asked after a pause
						_, err := insert()
						require.Zero(t, c.Stats().Retries)
						if err == nil {
							require.EqualValues(t, 1, c.Stats().FoundDead)
							mustExec(t, s.witness, "DELETE FROM ledger")
							return
						}
						require.Empty(t, s.stored(t))
						return
					}
					err := s.meetsUnasked(t, insert)
					require.Zero(t, c.Stats().Retries)
					require.Error(t, err)
					require.Empty(t, s.stored(t))
				})
			}
		}
	})
}

// closedBy are the reasons for which connections were closed.
func closedBy(c *pooldriver.Connector) (reasons []pooldriver.CloseReason) {
	for why, n := range c.Stats().Closed {
		if n > 0 {
			reasons = append(reasons, why)
		}
	}
	return reasons
}

// TestAProcedureThatCommitsAndKillsItselfHasStoredItsRowOnce.
func TestAProcedureThatCommitsAndKillsItselfHasStoredItsRowOnce(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		s := serverStage(t, account)
		mustExec(t, s.witness, s.say(
			"CREATE PROCEDURE p() LANGUAGE plpgsql AS $$ BEGIN INSERT INTO ledger VALUES (1); COMMIT; PERFORM pg_terminate_backend(pg_backend_pid()); PERFORM pg_sleep(1); END $$",
			"CREATE PROCEDURE p() BEGIN INSERT INTO ledger VALUES (1); COMMIT; KILL CONNECTION_ID(); DO SLEEP(1); END", ""))
		for way, open := range s.ways() {
			t.Run(way, func(t *testing.T) {
				mustExec(t, s.witness, "DELETE FROM ledger")
				c := open(t, account.Addr)
				db := sql.OpenDB(c)
				t.Cleanup(func() { _ = db.Close() })
				_, err := db.ExecContext(t.Context(), "CALL p()")
				require.Error(t, err)
				require.Equal(t, []int{1}, s.stored(t))
				require.NoError(t, beginAndEnd(t.Context(), db, nil), "the place is free")
				require.Zero(t, c.Stats().Retries)
				require.Equal(t, []pooldriver.CloseReason{pooldriver.CloseLost}, closedBy(c), "not what the procedure has left")
			})
		}
	})
}
