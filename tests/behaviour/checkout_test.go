package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/pool"
)

func TestNothingIsOpenedBeforeTheFirstStatement(t *testing.T) {
	server, db, _ := openFake(t, everything)
	require.Zero(t, server.State().Opened)
	stmt, err := db.Prepare("SELECT 1")
	require.NoError(t, err)
	require.NoError(t, stmt.Close())
	require.Equal(t, 1, server.State().Opened)
}

func TestARealConnectionIsHeldFromTheFirstOperationOfACheckoutToItsEnd(t *testing.T) {
	server, db, c := openFake(t, everything, maxConns(1))
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.Zero(t, server.State().Opened, "a checkout without an operation holds nothing")
	_, err = conn.ExecContext(t.Context(), "SET a = 1")
	require.NoError(t, err)
	require.Equal(t, 1, c.Stats().Pool.Lent)
	var a int
	require.NoError(t, conn.QueryRowContext(context.WithValue(t.Context(), fakedb.TagKey{}, 1), "SHOW a").Scan(&a))
	require.Equal(t, 1, a, "the same session whatever the context")
	require.NoError(t, conn.Close())
	atRest(t, c)
}

func TestNeverMoreRealConnectionsThanMaxWithCancelsErrorsAndPanics(t *testing.T) {
	for _, most := range []int{1, 4} {
		t.Run(fmt.Sprintf("max=%d", most), func(t *testing.T) {
			server, db, c := openFake(t, everything, maxConns(most))
			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			var wg sync.WaitGroup
			for g := range 200 {
				rnd := rand.New(rand.NewPCG(seed, uint64(g)))
				wg.Go(func() {
					for range 10 {
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rnd.IntN(20_000))*time.Microsecond)
						mishap(ctx, db, rnd.IntN(8))
						cancel()
					}
				})
			}
			wg.Wait()
			require.LessOrEqual(t, server.State().MaxOpen, most)
			atRest(t, c)
			require.Zero(t, server.State().InTx())
			require.Zero(t, server.State().OpenRows())
			var one int
			require.NoError(t, db.QueryRow("SELECT 1").Scan(&one))
		})
	}
}

// mishap does one of the things that programs do to their connections.
func mishap(ctx context.Context, db *sql.DB, kind int) {
	defer func() { _ = recover() }() // the driver's panic comes through, as it should
	switch kind {
	case 0:
		_, _ = db.ExecContext(ctx, "SELECT /*+ sleep 2ms */ 1")
	case 1:
		_, _ = db.ExecContext(ctx, "SELECT /*+ error 'no' */ 1")
	case 2:
		_, _ = db.ExecContext(ctx, "SELECT /*+ badconn before */ 1")
	case 3:
		_, _ = db.ExecContext(ctx, "SELECT /*+ panic 'boom' */ 1")
	case 4:
		if tx, err := db.BeginTx(ctx, nil); err == nil {
			_, _ = tx.ExecContext(ctx, "SELECT /*+ sleep 1ms */ 1")
			_ = tx.Commit()
		}
	case 5:
		if tx, err := db.BeginTx(ctx, nil); err == nil {
			<-ctx.Done() // left to database/sql
			_ = tx.Rollback()
		}
	case 6:
		if rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 20"); err == nil {
			rows.Next()
			_ = rows.Close()
		}
	case 7:
		_, _ = db.ExecContext(ctx, "BEGIN")
	}
}

func TestNothingOfOneBorrowerReachesTheNext(t *testing.T) {
	for name, leave := range map[string][]string{
		"raw transaction":  {"BEGIN", "INSERT INTO t VALUES (1)"},
		"session variable": {"SET a = 1"},
		"temporary table":  {"CREATE TEMP TABLE mine (a INT)"},
	} {
		t.Run(name, func(t *testing.T) {
			server, db, c := openFake(t, everything, maxConns(1))
			_, err := db.Exec("CREATE TABLE t (a INT)")
			require.NoError(t, err)
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			for _, q := range leave {
				_, err = conn.ExecContext(t.Context(), q)
				require.NoError(t, err)
			}
			require.NoError(t, conn.Close())
			var n int
			require.NoError(t, db.QueryRow("SELECT count(*) FROM t").Scan(&n))
			require.Zero(t, n, "what was not committed")
			atRest(t, c)
			for _, s := range server.State().Sessions {
				require.False(t, s.InTx)
				require.Empty(t, s.Vars)
				require.Empty(t, s.Temp)
			}
		})
	}
}

func TestFlushReplacesAllConnectionsAsTheyComeBack(t *testing.T) {
	server, db, c := openFake(t, everything, maxConns(2))
	sessions := func() (ids []int) {
		for _, s := range server.State().Sessions {
			ids = append(ids, s.ID)
		}
		return ids
	}
	var conns [2]*sql.Conn
	for i := range conns {
		var err error
		conns[i], err = db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, conns[i].PingContext(t.Context()))
	}
	require.NoError(t, conns[0].Close())
	open := func(n int) func(fakedb.State) bool { return func(s fakedb.State) bool { return s.Open() == n } }
	old := sessions()
	require.Len(t, old, 2)
	c.Flush()
	require.NoError(t, server.Await(t.Context(), open(1)), "the idle one")
	require.NoError(t, conns[1].PingContext(t.Context()), "the one in use stays")
	require.NoError(t, conns[1].Close())
	require.NoError(t, server.Await(t.Context(), open(0)))
	require.NoError(t, db.Ping())
	require.NotSubset(t, old, sessions())
}

func TestAStatementOnADeadConnectionMovesToAnotherOneUnseen(t *testing.T) {
	server, db, _ := openFake(t, everything)
	_, err := db.Exec("CREATE TABLE t (a INT)")
	require.NoError(t, err)
	_, err = db.Exec("INSERT /*+ badconn before */ INTO t VALUES (1)")
	require.ErrorIs(t, err, driver.ErrBadConn, "dead each time: database/sql's tries are used up")
	server.Fail(fakedb.ConnExecCtx, 1, driver.ErrBadConn)
	_, err = db.Exec("INSERT INTO t VALUES (2)")
	require.NoError(t, err)
	require.Len(t, server.Table("t"), 1)
}

func TestAPanicInTheDriverCostsThatConnectionOnly(t *testing.T) {
	server, db, _ := openFake(t, everything, maxConns(1))
	require.Panics(t, func() { _, _ = db.Exec("SELECT /*+ panic 'boom' */ 1") })
	_, err := db.Exec("SELECT 1")
	require.NoError(t, err)
	require.Equal(t, 2, server.State().Opened, "the connection whose call never returned was lent again")
}

func TestAPanicCostsNoPlaceInThePoolWhereverItHappens(t *testing.T) {
	ctx := context.Background()
	for name, use := range map[string]func(*sql.DB){
		"exec":    func(db *sql.DB) { _, _ = db.ExecContext(ctx, "SELECT 1") },
		"query":   func(db *sql.DB) { _, _ = db.QueryContext(ctx, "SELECT 1") },
		"prepare": func(db *sql.DB) { _, _ = db.PrepareContext(ctx, "SELECT 1") },
		"begin":   func(db *sql.DB) { _, _ = db.BeginTx(ctx, nil) },
		"ping":    func(db *sql.DB) { _ = db.PingContext(ctx) },
		"is valid": func(db *sql.DB) {
			_, _ = db.ExecContext(ctx, "SELECT 1")
			panic("does not reach the program, so this has to")
		},
	} {
		t.Run(name, func(t *testing.T) {
			server, db, c := openFake(t, everything, maxConns(1))
			call := map[string]fakedb.Call{
				"exec": fakedb.ConnExecCtx, "query": fakedb.ConnQueryCtx, "prepare": fakedb.ConnPrepareCtx,
				"begin": fakedb.ConnBeginCtx, "ping": fakedb.ConnPing, "is valid": fakedb.ConnValid,
			}[name]
			server.Inject(fakedb.Fault{Call: call, Panic: "boom"})
			require.Panics(t, func() { use(db) })
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			require.NoError(t, db.PingContext(ctx))
			require.EqualValues(t, 1, c.Stats().Discards)
			require.Equal(t, 2, server.State().Opened)
		})
	}
}

func TestABeginThatFailsAfterItBeganIsNobodyElsesTransaction(t *testing.T) {
	server, db, c := openFake(t, everything, maxConns(1))
	server.Inject(fakedb.Fault{Call: fakedb.ConnBeginCtx, After: true, Err: errors.New("the answer was lost")})
	_, err := db.Begin()
	require.ErrorContains(t, err, "the answer was lost")
	require.NoError(t, db.Ping())
	require.Zero(t, server.State().InTx())
	require.EqualValues(t, 1, c.Stats().Discards)
}

func TestARefusedConnectionIsOneClearErrorAndTheNextTryWorks(t *testing.T) {
	server, db, _ := openFake(t, everything)
	refused := errors.New("connection refused")
	server.Refuse(refused)
	err := db.Ping()
	require.ErrorIs(t, err, refused)
	require.ErrorContains(t, err, "pooldriver: connecting to generic")
	server.Heal()
	require.NoError(t, db.Ping())
}

func TestWaitingForAConnectionEndsWithTheContextAndSaysHowThePoolStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db, c := openFake(t, everything, maxConns(1))
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, conn.PingContext(t.Context()))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		err = db.PingContext(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		var acquire *pool.AcquireError
		require.ErrorAs(t, err, &acquire)
		require.Equal(t, 1, acquire.Active)
		require.NoError(t, conn.Close())
		atRest(t, c)
		require.NoError(t, db.PingContext(t.Context()))
	})
}

func TestTheBreakerAnswersAtOnceWhenTheDatabaseIsGone(t *testing.T) {
	server, db, _ := openFake(t, everything, func(c *pooldriver.Config) { c.BreakerFailures, c.BreakerCooldown = 3, time.Hour })
	server.Refuse(errors.New("no route"))
	for range 3 {
		require.ErrorContains(t, db.Ping(), "no route")
	}
	tried := len(server.Events(fakedb.Connect))
	require.ErrorIs(t, db.Ping(), pool.ErrUnavailable)
	require.Len(t, server.Events(fakedb.Connect), tried, "the breaker is open but a dial was tried")
}

func TestCloseReturnsAtOnceWhenNothingIsLent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakedb.NewServer()
		db := sql.OpenDB(pooldriver.Wrap(server.Connector(everything), quiet))
		require.NoError(t, db.Ping())
		began := time.Now()
		require.NoError(t, db.Close())
		require.Less(t, time.Since(began), 500*time.Millisecond)
		require.Zero(t, server.State().Open())
		require.ErrorContains(t, db.Ping(), "closed")
	})
}

func TestAConnectionInUseAtCloseEndsWhenItComesBack(t *testing.T) {
	server := fakedb.NewServer()
	db := sql.OpenDB(pooldriver.Wrap(server.Connector(everything), quiet))
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, conn.PingContext(t.Context()))
	require.NoError(t, db.Close())
	require.Equal(t, 1, server.State().Open())
	require.NoError(t, conn.Close())
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	require.NoError(t, server.Await(ctx, func(s fakedb.State) bool { return s.Open() == 0 }))
}

func TestWrapRefusesWhatItCannotPool(t *testing.T) {
	server := fakedb.NewServer()
	inner := server.Connector(everything)
	source := func(context.Context) (pooldriver.Credential, error) { return pooldriver.Credential{}, nil }
	for want, c := range map[string]*pooldriver.Connector{
		"pools already":      pooldriver.Wrap(pooldriver.Wrap(inner)),
		"no connector":       pooldriver.Wrap(nil),
		"Config.Credentials": pooldriver.Wrap(inner, func(c *pooldriver.Config) { c.Credentials = source }),
		"pool_max_conns":     pooldriver.Wrap(inner, maxConns(-1)),
	} {
		db := sql.OpenDB(c)
		require.ErrorContains(t, db.Ping(), want)
		require.ErrorContains(t, c.Warm(t.Context()), want)
		require.Contains(t, c.String(), "cannot be used")
		require.Zero(t, c.Stats())
		c.Flush()
		require.NoError(t, db.Close())
	}
	require.Zero(t, server.State().Opened)
}

func TestAfterConnectRunsOnEachNewConnection(t *testing.T) {
	server, db, _ := openFake(t, everything, maxConns(1), func(c *pooldriver.Config) {
		c.AfterConnect = func(ctx context.Context, conn driver.Conn) error {
			_, err := conn.(driver.ExecerContext).ExecContext(ctx, "SET greeting = 'hello'", nil)
			return err
		}
	})
	for range 2 { // the second time on a new connection: the generic dialect cannot clean
		var s string
		require.NoError(t, db.QueryRow("SHOW greeting").Scan(&s))
		require.Equal(t, "hello", s)
		_, err := db.Exec("SET greeting = 'bye'")
		require.NoError(t, err)
	}
	require.NoError(t, db.Ping())
	require.Equal(t, 3, server.State().Opened)
}

func TestAnAfterConnectThatFailsClosesTheConnection(t *testing.T) {
	no := errors.New("not today")
	_, db, _ := openFake(t, everything, func(c *pooldriver.Config) {
		c.AfterConnect = func(context.Context, driver.Conn) error { return no }
	})
	require.ErrorIs(t, db.Ping(), no)
}
