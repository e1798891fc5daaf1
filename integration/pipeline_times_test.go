package integration

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// sleepsFor is a text that takes as long as its argument says. The server's pg_stat_activity shows it.
const sleepsFor = "SELECT 1 FROM pg_sleep($1)"

// pace reads items in a crowd.
type pace struct {
	*pulse
	db      *sql.DB
	over    atomic.Bool
	slowest atomic.Int64     // of those that have ended
	reads   [24]atomic.Int64 // when the present ones have begun
	all     sync.WaitGroup
	failed  atomic.Pointer[error]
}

// startPace begins 24 readers over three connections, when texts are known to be short. They end with the test.
func startPace(t *testing.T, texts ...string) (p *pace, connector *pooldriver.Connector, witness *sql.DB) {
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	witness = account.Witness(t)
	connector = pooldriver.New(account.URL("pool_max_conns=3", "pool_pipeline=16"), quiet)
	p = &pace{db: sql.OpenDB(connector), pulse: feelPulse(t, witness)}
	t.Cleanup(func() {
		p.over.Store(true)
		p.all.Wait()
		require.NoError(t, p.db.Close())
		if err := p.failed.Load(); err != nil {
			require.NoError(t, *err)
		}
	})
	makeItems(t, p.db)
	mustExec(t, p.db, "CREATE TABLE locked (id int PRIMARY KEY)")
	mustExec(t, p.db, "INSERT INTO locked VALUES (0)")
	for _, text := range texts {
		p.runs(t, text)
	}
	for i := range p.reads {
		p.all.Go(func() {
			for !p.over.Load() {
				begun := time.Now()
				p.reads[i].Store(begun.UnixNano())
				if err := readItem(context.Background(), p.db); err != nil {
					p.failed.Store(&err)
					return
				}
				raise(&p.slowest, time.Since(begun))
			}
		})
	}
	return p, connector, witness
}

// anew forgets the reads so far.
func (p *pace) anew() {
	p.slowest.Store(0)
	_ = p.late()
}

// most is the longest time that a read has taken, or takes.
func (p *pace) most() time.Duration {
	now := time.Now().UnixNano()
	for i := range p.reads {
		raise(&p.slowest, time.Duration(now-p.reads[i].Load()))
	}
	return time.Duration(p.slowest.Load())
}

// raise makes most at least d.
func raise(most *atomic.Int64, d time.Duration) {
	for old := most.Load(); old < int64(d) && !most.CompareAndSwap(old, int64(d)); old = most.Load() {
	}
}

// runs runs text, which may have been slow, until it is known to be short.
func (p *pace) runs(t *testing.T, text string) {
	t.Helper()
	for range 100 {
		var one int
		require.NoError(t, p.db.QueryRow(text, 0).Scan(&one))
	}
}

// pipelines waits until queries are pipelined.
func (p *pace) pipelines(t *testing.T, c *pooldriver.Connector) {
	t.Helper()
	before := c.Stats().Pool.Pipelined
	require.Eventually(t, func() bool { return c.Stats().Pool.Pipelined > before+50 }, slowMachine, time.Millisecond)
}

// asleep is how long the server has been executing sleepsFor, in seconds; 0: it is not.
func asleep(t *testing.T, witness *sql.DB) (seconds float64) {
	t.Helper()
	require.NoError(t, witness.QueryRow("SELECT coalesce(max(extract(epoch FROM clock_timestamp() - query_start)), 0) FROM pg_stat_activity WHERE query = $1 AND wait_event = 'PgSleep'", sleepsFor).Scan(&seconds))
	return seconds
}

// A statement that sleepsFor for 3 s occupies one of three connections. The bound is generous: a machine may be slow.
const (
	long    = 3.0
	tooLong = 2 * time.Second
)

var attempts = randomtest.Rounds(2, 5)

func TestASlowTextHoldsUpNoLookups(t *testing.T) {
	t.Parallel()
	p, c, witness := startPace(t, sleepsFor)
	var one int
	require.NoError(t, p.db.QueryRow(sleepsFor, 1).Scan(&one)) // from now on it is known to be slow
	p.pipelines(t, c)
	p.anew()
	p.sleeps(t, witness)
	require.Less(t, p.most(), tooLong+3*p.late())
}

// sleeps has the server sleep for a call.
func (p *pace) sleeps(t *testing.T, witness *sql.DB) {
	t.Helper()
	ended := make(chan error, 1)
	go func() {
		var one int
		ended <- p.db.QueryRow(sleepsFor, long).Scan(&one)
	}()
	require.Eventually(t, func() bool { return asleep(t, witness) > 0 }, slowMachine, time.Millisecond)
	require.NoError(t, <-ended, "nobody ends it")
}

// The queries behind it are executed elsewhere.
func TestOneSlowCallOfAShortTextHoldsUpNoLookups(t *testing.T) {
	t.Parallel()
	p, c, witness := startPace(t, sleepsFor)
	for range attempts { // it is pipelined in most of them
		p.runs(t, sleepsFor)
		p.pipelines(t, c)
		p.anew()
		p.sleeps(t, witness)
		require.Less(t, p.most(), tooLong+3*p.late())
	}
}

// Somebody locks the table of a text, whose query is in front, or behind. The text is to be prepared, or has
// pipelined before.
func TestALockedTableHoldsUpNoLookupsOfOthers(t *testing.T) {
	t.Parallel()
	const text = "SELECT id FROM locked WHERE id = $1"
	p, c, witness := startPace(t, text)
	for range attempts {
		p.pipelines(t, c)
		tx, err := witness.Begin()
		require.NoError(t, err)
		defer func() { _ = tx.Rollback() }() // or else the readers would not end
		mustExec(t, tx, "LOCK TABLE locked")
		p.anew()
		ended := make(chan error, 1)
		go func() {
			var one int
			ended <- p.db.QueryRow(text, 0).Scan(&one)
		}()
		time.Sleep(time.Duration(long * float64(time.Second)))
		require.Empty(t, ended)
		require.Less(t, p.most(), tooLong+3*p.late())
		require.NoError(t, tx.Rollback())
		require.NoError(t, <-ended)
		p.runs(t, text)
	}
}

// oneAtATime forwards connections to a server, as a proxy that cannot pipeline: of two statements in flight it
// answers none but the first.
func oneAtATime(t *testing.T, target string) (addr string, held *atomic.Int32) {
	t.Helper()
	held = new(atomic.Int32)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	all.Go(func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", target)
			if err != nil {
				client.Close()
				continue
			}
			mu.Lock()
			open = append(open, client, server)
			mu.Unlock()
			var inFlight atomic.Int32
			all.Go(func() {
				defer server.Close()
				forward(client, server, func(kind byte) bool {
					if kind != 'S' || inFlight.Add(1) == 1 {
						return true
					}
					held.Add(1)
					_, _ = io.Copy(io.Discard, client)
					return false
				})
			})
			all.Go(func() {
				defer client.Close()
				forward(server, client, func(kind byte) bool {
					if kind == 'Z' && inFlight.Load() > 0 {
						inFlight.Add(-1)
					}
					return true
				})
			})
		}
	})
	t.Cleanup(func() {
		listener.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return listener.Addr().String(), held
}

// forward forwards messages while may says so.
func forward(from, to net.Conn, may func(kind byte) bool) {
	for {
		message := make([]byte, 5)
		if _, err := io.ReadFull(from, message[:4]); err != nil {
			return
		}
		length := message[:4]
		kind := message[0]
		if kind == 0 { // the startup message has no kind
			message = message[:4]
		} else if _, err := io.ReadFull(from, message[4:]); err != nil {
			return
		} else {
			length = message[1:]
		}
		body := make([]byte, binary.BigEndian.Uint32(length)-4)
		if _, err := io.ReadFull(from, body); err != nil || !may(kind) {
			return
		}
		if _, err := to.Write(append(message, body...)); err != nil {
			return
		}
	}
}

// The callers get no error, and wait no longer than the trials take.
func TestAProxyThatCannotPipelineIsFoundOut(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	addr, held := oneAtATime(t, account.Addr)
	var log syncBuffer
	c := pooldriver.New(account.Via(addr).URL("pool_max_conns=2", "pool_pipeline=16"), func(c *pooldriver.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	})
	db := sql.OpenDB(c)
	defer db.Close()
	makeItems(t, db)
	var all sync.WaitGroup
	var slowest atomic.Int64
	begun := time.Now()
	for range 24 {
		all.Go(func() {
			for time.Since(begun) < slowMachine && !strings.Contains(log.String(), "pool_pipeline has no effect") && !t.Failed() {
				start := time.Now()
				if err := readItem(t.Context(), db); err != nil {
					t.Error(err)
				}
				raise(&slowest, time.Since(start))
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 3, held.Load())
	require.Less(t, time.Duration(slowest.Load()), 10*time.Second)
	for range 24 {
		all.Go(func() {
			if err := readItem(t.Context(), db); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 3, held.Load())
	require.Zero(t, c.Stats().Pool.Pipelined)
	require.Equal(t, 1, strings.Count(log.String(), "pool_pipeline has no effect"))
}

// syncBuffer is a log.
type syncBuffer struct {
	mu sync.Mutex // protects buf
	bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}
