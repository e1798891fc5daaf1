package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// lottery is an address in front of a server that resets a part of those who come, and
// counts: a balancer with a dead backend.
type lottery struct {
	server        string
	share         int // of 100 that are reset
	mu            sync.Mutex
	rand          *rand.Rand
	came, refused atomic.Int64
}

func newLottery(t *testing.T, server string, share int) (*lottery, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	l := &lottery{server: server, share: share, rand: rand.New(rand.NewPCG(1, uint64(share)))}
	var all sync.WaitGroup
	all.Go(func() { l.accept(listener, &all) })
	t.Cleanup(func() {
		_ = listener.Close()
		all.Wait()
	})
	return l, listener.Addr().String()
}

func (l *lottery) accept(listener net.Listener, all *sync.WaitGroup) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		l.came.Add(1)
		if !l.loses() {
			if server, err := net.Dial("tcp", l.server); err == nil {
				all.Go(func() { relay(client.(*net.TCPConn), server.(*net.TCPConn)) })
				continue
			}
		}
		l.refused.Add(1)
		cut(client)
	}
}

// relay passes on both ways, with the end of each, until both have ended: who closes waits
// for the end of the other side.
func relay(client, server *net.TCPConn) {
	var ways sync.WaitGroup
	for _, way := range [][2]*net.TCPConn{{client, server}, {server, client}} {
		ways.Go(func() {
			if _, err := io.Copy(way[1], way[0]); err != nil {
				_, _ = way[0].Close(), way[1].Close()
			}
			_ = way[1].CloseWrite()
		})
	}
	ways.Wait()
	_, _ = client.Close(), server.Close()
}

func (l *lottery) loses() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.rand.IntN(100) < l.share
}

// TestDialsThatFailNowAndThenFailNoMoreThanTheirOwnStatements: with a part of the dials reset,
// no more statements fail than dials, and no more is dialled for one that is served than by plain database/sql.
// Every third statement ends its connection, so that there are dials all the time.
func TestDialsThatFailNowAndThenFailNoMoreThanTheirOwnStatements(t *testing.T) {
	t.Parallel()
	statements, runs, shares := 600, 1, []int{20, 80}
	long := randomtest.Long()
	if long {
		statements, runs, shares = 10_000, 5, []int{20, 50, 80, 95}
	}
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		for _, share := range shares {
			t.Run(fmt.Sprintf("%d%%", share), func(t *testing.T) {
				var ours, plain lotteryRun
				for range runs {
					ours.add(runLottery(t, account, share, statements, func(a testbed.Account) *sql.DB {
						return sql.OpenDB(pooldriver.New(a.URL("pool_max_conns=10"), quiet))
					}))
					plain.add(runLottery(t, account, share, statements, func(a testbed.Account) *sql.DB {
						db := a.OpenBare(t)
						db.SetMaxOpenConns(10)
						db.SetMaxIdleConns(10)
						return db
					}))
				}
				t.Logf("ours %+v, plain %+v", ours, plain)
				require.Positive(t, ours.refused)
				require.LessOrEqual(t, ours.failed, ours.refused)
				if long {
					served := func(r lotteryRun) int64 { return int64(runs*statements) - r.failed }
					require.LessOrEqual(t, ours.came*served(plain)*10, plain.came*served(ours)*11)
				}
			})
		}
	})
}

// lotteryRun is what came of the statements of one run, or the sum of several.
type lotteryRun struct{ failed, came, refused int64 }

func (r *lotteryRun) add(o lotteryRun) {
	r.failed += o.failed
	r.came += o.came
	r.refused += o.refused
}

// statementOf executes one, and ends its connection if last is set.
func statementOf(ctx context.Context, db *sql.DB, last bool) error {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	_, err = conn.ExecContext(ctx, "SELECT 1")
	if last && err == nil {
		_ = conn.Raw(func(any) error { return driver.ErrBadConn })
	}
	return err
}

// runLottery has statements come, 300 a second.
func runLottery(t *testing.T, account testbed.Account, share, statements int, open func(testbed.Account) *sql.DB) (r lotteryRun) {
	t.Helper()
	l, addr := newLottery(t, account.Addr, share)
	db := open(account.Via(addr))
	defer func() { require.NoError(t, db.Close()) }()
	var all sync.WaitGroup
	var failed atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	pace := time.NewTicker(time.Second / 300)
	defer pace.Stop()
	for i := range statements {
		<-pace.C
		all.Go(func() {
			if statementOf(ctx, db, i%3 == 0) != nil {
				failed.Add(1)
			}
		})
	}
	all.Wait()
	return lotteryRun{failed.Load(), l.came.Load(), l.refused.Load()}
}
