package integration

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// door is an address in front of a server that counts who comes. Closed, it resets
// whoever is inside and whoever comes.
type door struct {
	listener net.Listener
	server   string
	closed   atomic.Bool
	came     atomic.Int64
	all      sync.WaitGroup

	mu     sync.Mutex
	inside map[net.Conn]struct{}
}

func newDoor(t *testing.T, server string) *door {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	d := &door{listener: listener, server: server, inside: map[net.Conn]struct{}{}}
	d.all.Go(d.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		d.close(true)
		d.all.Wait()
	})
	return d
}

func (d *door) addr() string { return d.listener.Addr().String() }

// close closes the door, or opens it.
func (d *door) close(closed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed.Store(closed)
	if closed {
		for c := range d.inside {
			cut(c)
		}
	}
}

// cut closes a connection by a reset.
func cut(c net.Conn) {
	_ = c.(*net.TCPConn).SetLinger(0)
	_ = c.Close()
}

func (d *door) accept() {
	for {
		client, err := d.listener.Accept()
		if err != nil {
			return
		}
		d.came.Add(1)
		d.mu.Lock()
		if d.closed.Load() {
			cut(client)
		} else if server, err := net.Dial("tcp", d.server); err != nil {
			cut(client)
		} else {
			for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
				d.inside[way[0]] = struct{}{}
				d.all.Go(func() { d.pass(way[0], way[1]) })
			}
		}
		d.mu.Unlock()
	}
}

func (d *door) pass(from, to net.Conn) {
	defer func() {
		d.mu.Lock()
		delete(d.inside, from)
		d.mu.Unlock()
		_ = from.Close()
		_ = to.Close()
	}()
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err != nil {
			return
		}
		if _, err := to.Write(buffer[:n]); err != nil {
			return
		}
	}
}

// connsPerDial is how many network connections a dial is that is reset: pgx tries twice.
func connsPerDial(account testbed.Account) int64 {
	if account.Server.Engine == testbed.Postgres {
		return 2
	}
	return 1
}

// TestAnOutageUnderLoadCostsFewDials has a server out of reach for five seconds under
// eight goroutines, and counts who came to its door.
func TestAnOutageUnderLoadCostsFewDials(t *testing.T) {
	const outage, back = 5 * time.Second, time.Second
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		for _, mode := range []string{"plain", "tasks"} {
			t.Run(mode, func(t *testing.T) {
				t.Parallel() // the four wait most of the time, and nothing else runs beside them
				account := account.Server.NewAccount(t)
				d := newDoor(t, account.Addr)
				s := serverStage(t, account)
				s.account = account.Via(d.addr())
				defer func() { mustExec(t, s.witness, "DROP TABLE ledger") }()
				pool := s.openURL(t, s.account.URL("pool_max_conns=10", "pool_min_conns=2", "pool_min_idle_conns=1"))
				load := newLoad(mode == "tasks", pool.DB)
				defer load.end()
				require.Eventually(t, func() bool { return load.served.Load() > 100 && load.failed.Load() == 0 }, slowMachine, time.Millisecond)

				pulse := feelPulse(t, s.witness)
				d.came.Store(0)
				d.close(true)
				closed := time.Now()
				time.Sleep(soon) // statements under way fail by the reset
				load.begin()
				_ = pulse.late()
				time.Sleep(outage - soon)
				require.Eventually(t, func() bool { return load.failed.Load() > 100 }, slowMachine, time.Millisecond)
				lasted, late := time.Since(closed), pulse.late()
				came, failed, slowest := d.came.Load(), load.failed.Load(), time.Duration(load.slowest.Load())
				t.Logf("%d dials, %d statements failed, the slowest after %v; %s", came, failed, slowest.Round(10*time.Microsecond), load.lastError())
				require.Less(t, came, 150*connsPerDial(account)*int64(lasted)/int64(outage))
				require.Less(t, slowest, back+3*late) // a pause is 300 ms at most, and a goroutine may wait for a processor
				require.Zero(t, load.served.Load())

				d.close(false)
				time.Sleep(soon) // a dial that began before has failed, and those who waited for it
				_ = pulse.late()
				opened := time.Now()
				require.Eventually(t, func() bool { return load.served.Load() > 0 }, slowMachine, time.Millisecond, "served again")
				again := time.Since(opened)
				t.Logf("served %v after the return", again.Round(time.Millisecond))
				require.Less(t, again, back+3*pulse.late())
				load.begin()
				require.Eventually(t, func() bool { return load.served.Load() > 100 }, slowMachine, time.Millisecond)
				require.Zero(t, load.failed.Load())
			})
		}
	})
}

// soon is within which a dial that has begun ends.
const soon = 100 * time.Millisecond

// load is eight goroutines that query again and again.
type load struct {
	epoch                   atomic.Int64 // changes with begin: what began before it counts for nothing
	stop                    context.CancelFunc
	all                     sync.WaitGroup
	served, failed, slowest atomic.Int64
	last                    atomic.Value // error, as text
}

func newLoad(tasks bool, db *sql.DB) *load {
	l := &load{}
	ctx, stop := context.WithCancel(context.Background())
	l.stop = stop
	for range 8 {
		l.all.Go(func() {
			for ctx.Err() == nil {
				l.statement(tasks, db)
				time.Sleep(2 * time.Millisecond)
			}
		})
	}
	return l
}

func (l *load) statement(tasks bool, db *sql.DB) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if tasks {
		var end func()
		ctx, end = pooldriver.NewTask(ctx)
		defer end()
	}
	began, epoch := time.Now(), l.epoch.Load()
	_, err := db.ExecContext(ctx, "SELECT 1")
	switch {
	case epoch != l.epoch.Load():
		return
	case err == nil:
		l.served.Add(1)
		return
	}
	l.last.Store(fmt.Sprint(err))
	l.failed.Add(1)
	took := int64(time.Since(began))
	for {
		slowest := l.slowest.Load()
		if took <= slowest || l.slowest.CompareAndSwap(slowest, took) {
			return
		}
	}
}

// begin counts anew.
func (l *load) begin() {
	l.epoch.Add(1)
	l.served.Store(0)
	l.failed.Store(0)
	l.slowest.Store(0)
}

func (l *load) end() {
	l.stop()
	l.all.Wait()
}

func (l *load) lastError() any { return l.last.Load() }

// TestARefusedLoginIsRarelyRepeated has a wrong password, and counts the logins.
func TestARefusedLoginIsRarelyRepeated(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		d := newDoor(t, account.Addr)
		account.Password += "x"
		account = account.Via(d.addr())
		s := stage{name: account.Server.Engine.String(), account: account}
		pool := s.openURL(t, account.URL("pool_max_conns=10", "pool_min_conns=2", "pool_min_idle_conns=1"))
		require.Error(t, pool.Ping())
		require.Eventually(t, func() bool { return pool.connector.Stats().Pool.Creating == 0 }, 10*time.Second, time.Millisecond)
		logins := d.came.Load()
		time.Sleep(4 * time.Second)
		require.Equal(t, logins, d.came.Load(), "logins that nobody asked for")

		begun := time.Now()
		load := newLoad(false, pool.DB)
		time.Sleep(3 * time.Second)
		load.end()
		lasted := time.Since(begun)
		t.Logf("%d logins at first, %d under load; %s", logins, d.came.Load()-logins, load.lastError())
		require.Less(t, d.came.Load()-logins, int64(12*lasted/(3*time.Second)))
		require.Zero(t, load.served.Load())
	})
}
