package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
	"github.com/pooldriver/pooldriver/pool"
)

// gateway is a template whose dials a test decides about.
type gateway struct {
	*stubdialect.Stub
	dial  atomic.Pointer[func(context.Context) error]
	dials atomic.Int32
}

var (
	errAuth = errors.New("stub: wrong password")
	errFull = errors.New("stub: too many connections")
)

func (g *gateway) answer(f func(context.Context) error) { g.dial.Store(&f) }

func (g *gateway) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	g.dials.Add(1)
	if f := g.dial.Load(); f != nil {
		if err := (*f)(ctx); err != nil {
			return nil, err
		}
	}
	return g.Stub.Dial(ctx, cred)
}

func (g *gateway) Diagnose(err error) dialects.Diagnosis {
	if errors.Is(err, errAuth) {
		return dialects.AuthFailed
	}
	if errors.Is(err, errFull) {
		return dialects.ServerFull
	}
	return g.Stub.Diagnose(err)
}

// openGateway opens a database of the stub dialect. What it logs is in the buffer.
func openGateway(t *testing.T, options ...pooldriver.Option) (*gateway, *sql.DB, *pooldriver.Connector, *lockedBuffer) {
	t.Helper()
	g := &gateway{Stub: stubdialect.New(dialects.Traits{})}
	log := &lockedBuffer{}
	c := pooldriver.Wrap(stubdialect.Connector(g), append([]pooldriver.Option{logTo(log)}, options...)...)
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return g, db, c, log
}

// hanging is a dial that ends with its context.
func hanging(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }

func TestAnOutageIsLoggedAtItsBeginningNowAndThenAndAtItsEnd(t *testing.T) {
	const begins, ends = `level=WARN msg="pooldriver: connecting fails"`, `level=INFO msg="pooldriver: connecting succeeds again"`
	synctest.Test(t, func(t *testing.T) {
		g, db, c, log := openGateway(t, func(c *pooldriver.Config) { c.MinConns, c.MinIdleConns = 2, 1 })
		require.NoError(t, db.Ping())
		synctest.Wait()
		g.answer(func(context.Context) error { return errors.New("no route") })
		c.Flush()
		for end := time.Now().Add(35 * time.Second); time.Now().Before(end); {
			require.ErrorContains(t, db.Ping(), "pooldriver: connecting to generic fakedb.contextDriver: no route")
			time.Sleep(10 * time.Millisecond)
		}
		require.Equal(t, 4, log.lines(begins))
		require.Zero(t, log.lines(ends))
		g.answer(func(context.Context) error { return nil })
		time.Sleep(350 * time.Millisecond)
		require.NoError(t, db.Ping())
		synctest.Wait()
		require.Equal(t, 1, log.lines(ends))
		require.Equal(t, 4, log.lines(begins))
		require.Equal(t, 1, log.lines("failed=1 for=0s"))

		// A server that comes and goes is no more talkative.
		for range 100 {
			synctest.Wait()
			g.answer(func(context.Context) error { return errors.New("no route") })
			c.Flush()
			require.Error(t, db.Ping())
			g.answer(func(context.Context) error { return nil })
			require.NoError(t, db.Ping())
		}
		require.LessOrEqual(t, log.lines(begins), 5)
		require.LessOrEqual(t, log.lines(ends), 2)
		require.NoError(t, db.Close())
		synctest.Wait()
	})
}

// TestAFullServerIsSaidInTheErrorAndTheStats, and the statement waits for what is open.
func TestAFullServerIsSaidInTheErrorAndTheStats(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, db, c, log := openGateway(t, func(c *pooldriver.Config) { c.AcquireTimeout = 2500 * time.Millisecond })
		held, err := db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, held.PingContext(t.Context()))
		g.answer(func(context.Context) error { return errFull })
		err = db.Ping()
		require.ErrorIs(t, err, pool.ErrTimeout)
		text, _, _ := strings.Cut(err.Error(), "; held longest by ")
		require.Equal(t, "pooldriver: no connection to generic fakedb.contextDriver: the server allows us 1 of pool_max_conns=10 now, and all are in use: pool: acquire: timed out; "+
			"the last create failed: pooldriver: connecting to generic fakedb.contextDriver: stub: too many connections (max 10, active 1, idle 0, waiting 0, the server allows 1; waited 2.5s)", text)
		require.Equal(t, 1, c.Stats().Pool.Allowed)
		require.Equal(t, 1, log.lines("the server has no room for more connections; statements wait for the open connections"))
		require.Zero(t, log.lines("connecting fails"))
		require.NoError(t, c.Ready(t.Context()))

		time.AfterFunc(time.Second, func() { _ = held.Close() })
		require.NoError(t, db.Ping(), "it waits for what is open")
		require.NoError(t, db.Close())
		synctest.Wait()
	})
}

func TestARefusedLoginIsNotRepeatedByItselfForFiveSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, db, _, _ := openGateway(t, func(c *pooldriver.Config) { c.MinConns, c.MinIdleConns = 3, 2 })
		g.answer(func(context.Context) error { time.Sleep(time.Millisecond); return errAuth })
		require.ErrorIs(t, db.Ping(), errAuth)
		synctest.Wait()
		first := g.dials.Load() // those for Min that had begun beside it
		time.Sleep(4900 * time.Millisecond)
		require.Equal(t, first, g.dials.Load())
		time.Sleep(25 * time.Second)
		require.LessOrEqual(t, g.dials.Load()-first, int32(5))

		before := g.dials.Load()
		var all sync.WaitGroup
		for range 8 {
			all.Go(func() {
				for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(time.Millisecond) {
					if err := db.Ping(); !errors.Is(err, errAuth) {
						t.Errorf("not the server's refusal: %v", err)
					}
				}
			})
		}
		all.Wait()
		require.LessOrEqual(t, g.dials.Load()-before, int32(10))
		require.NoError(t, db.Close())
		synctest.Wait()
	})
}

func TestWaitingForADialSaysThatOneIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, db, _, _ := openGateway(t, quiet)
		g.answer(func(context.Context) error { return errors.New("no route") })
		require.Error(t, db.Ping())
		g.answer(hanging)
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		err := db.PingContext(ctx)
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.EqualError(t, err, "pooldriver: no connection to generic fakedb.contextDriver: a new connection is being made, and the server has not answered yet: "+
			"pool: acquire: context deadline exceeded while a resource is being created; the last create failed: pooldriver: connecting to generic fakedb.contextDriver: no route "+
			"(max 10, active 1, idle 0, waiting 0; waited 3s; creating 1, for 3s)")
		require.NoError(t, db.Close())
		synctest.Wait()
	})
}

func TestAnAcquireTimeoutSaysWhatBoundsTheConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, db, _, _ := openGateway(t, quiet, func(c *pooldriver.Config) { c.MaxConns, c.AcquireTimeout = 2, 30*time.Second })
		db.SetMaxOpenConns(30)
		var held []*sql.Conn
		for range 2 {
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			require.NoError(t, conn.PingContext(t.Context()))
			held = append(held, conn)
		}
		err := db.Ping()
		require.ErrorIs(t, err, pool.ErrTimeout)
		text, holders, _ := strings.Cut(err.Error(), "; held longest by ")
		require.Equal(t, "pooldriver: no connection to generic fakedb.contextDriver: all pool_max_conns=2 connections are in use, and SetMaxOpenConns does not raise this limit: "+
			"pool: acquire: timed out (max 2, active 2, idle 0, waiting 0; waited 30s)", text)
		require.Equal(t, 2, strings.Count(holders, "a checkout at github.com/pooldriver/pooldriver/tests/behaviour.TestAnAcquireTimeoutSaysWhatBoundsTheConnections.func1 (outage_test.go:"), holders)
		require.Equal(t, 2, strings.Count(holders, " (conn, for 30s, idle for 30s)"), holders)
		for _, conn := range held {
			require.NoError(t, conn.Close())
		}
		require.NoError(t, db.Close())
		synctest.Wait()
	})
}

func TestARememberedDialSaysHowOldItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g, db, _, _ := openGateway(t, quiet)
		g.answer(func(context.Context) error { return errAuth })
		require.EqualError(t, db.Ping(), "pooldriver: connecting to generic fakedb.contextDriver: stub: wrong password")
		time.Sleep(4 * time.Millisecond)
		require.EqualError(t, db.Ping(), "pooldriver: connecting to generic fakedb.contextDriver: stub: wrong password (not dialled again: the last dial was refused 4ms ago)")
		require.EqualValues(t, 1, g.dials.Load())
		require.NoError(t, db.Close())
		synctest.Wait()
	})
}

func TestAPanicOfAfterConnectOrTheDriverNamesTheTarget(t *testing.T) {
	g, db, _, _ := openGateway(t, quiet, func(c *pooldriver.Config) {
		c.AfterConnect = func(context.Context, driver.Conn) error { panic("no more") }
	})
	err := db.Ping()
	require.EqualError(t, err, "pooldriver: a new connection to generic fakedb.contextDriver is closed: pool: AfterConnect panicked: string: no more")
	panicked, ok := errors.AsType[*pool.PanicError](err)
	require.True(t, ok)
	require.Equal(t, "AfterConnect", panicked.Hook)
	g.answer(func(context.Context) error { panic("no more") })
	require.EqualError(t, db.Ping(), "pooldriver: connecting to generic fakedb.contextDriver: pool: Create panicked: string: no more")
	require.Empty(t, g.Server.State().Sessions)
}

func TestAnOverlongAfterConnectEndsAtTheConnectTimeout(t *testing.T) {
	for name, heeds := range map[string]bool{"that heeds its context": true, "that does not": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				release := make(chan struct{})
				g, db, c, _ := openGateway(t, quiet, func(c *pooldriver.Config) {
					c.MaxConns, c.ConnectTimeout = 1, 2*time.Second
					c.AfterConnect = func(ctx context.Context, _ driver.Conn) error {
						if heeds {
							return hanging(ctx)
						}
						<-release
						return nil
					}
				})
				began := time.Now()
				err := db.Ping()
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, "pooldriver: a new connection to generic fakedb.contextDriver is closed: AfterConnect")
				require.LessOrEqual(t, time.Since(began), 2*time.Second+100*time.Millisecond)
				require.Zero(t, c.Stats().Pool.Count)
				if heeds {
					require.Empty(t, g.Server.State().Sessions)
				} else {
					require.ErrorContains(t, err, "pool_connect_timeout=2s")
					require.Len(t, g.Server.State().Sessions, 1)
					require.EqualValues(t, 1, c.Stats().Orphans)
				}
				close(release)
				synctest.Wait()
				require.Empty(t, g.Server.State().Sessions, "closed when the hook returned")
				require.NoError(t, db.Close())
				synctest.Wait()
			})
		})
	}
}

// handlerFunc is a slog.Handler of the program's.
type handlerFunc func()

func (h handlerFunc) Enabled(context.Context, slog.Level) bool  { return true }
func (h handlerFunc) Handle(context.Context, slog.Record) error { h(); return nil }
func (h handlerFunc) WithAttrs([]slog.Attr) slog.Handler        { return h }
func (h handlerFunc) WithGroup(string) slog.Handler             { return h }

func TestOutagesAreLoggedUnderNoLock(t *testing.T) {
	counted := make(chan struct{}, 2)
	var db *sql.DB
	g, db, _, _ := openGateway(t, func(c *pooldriver.Config) {
		c.Logger = slog.New(handlerFunc(func() {
			soon(t, "another dial", func() { _ = db.Ping() })
			counted <- struct{}{}
		}))
	})
	g.answer(func(context.Context) error { return errors.New("no route") })
	require.ErrorContains(t, db.Ping(), "no route")
	g.answer(func(context.Context) error { return nil })
	require.NoError(t, db.Ping())
	<-counted // when it begins
	<-counted // when it is over
}

// TestTheWaitForADialThatFailsIsInTheFigures: a statement that has waited two seconds for a dial
// that then fails has waited two seconds, as one that gets a connection has.
func TestTheWaitForADialThatFailsIsInTheFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var heard []pooldriver.AcquireInfo
		g, db, c, _ := openGateway(t, func(c *pooldriver.Config) {
			c.Observer = &pooldriver.Observer{AcquireDone: func(_ context.Context, i pooldriver.AcquireInfo) { heard = append(heard, i) }}
		})
		g.answer(func(context.Context) error {
			time.Sleep(2 * time.Second)
			return errors.New("no route")
		})
		err := db.Ping()
		require.ErrorContains(t, err, "no route")
		require.Len(t, heard, 1)
		require.Equal(t, 2*time.Second, heard[0].Wait)
		require.ErrorIs(t, heard[0].Err, err)
		s := c.Stats()
		require.Equal(t, uint64(1), s.Wait.Count)
		require.Equal(t, 2*time.Second, s.Wait.Sum)
		require.Equal(t, 2*time.Second, s.Pool.WaitMax)
		require.Equal(t, uint64(1), s.AcquireFailures[pooldriver.AcquireDialFailed])
		require.Equal(t, 1, s.DialsFailing.Failed)
		require.Contains(t, s.DialsFailing.Error, "no route")

		g.answer(func(context.Context) error { return errAuth }) // a refusal, which the next statement shares
		require.ErrorIs(t, db.Ping(), errAuth)
		require.ErrorIs(t, db.Ping(), errAuth)
		require.Equal(t, time.Duration(0), heard[2].Wait)
		require.NoError(t, db.Close())
		synctest.Wait()
	})
}
