package pool

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var errBroken = errors.New("broken")

// item is a resource of the tests.
type item struct{ id int }

// shop makes items numbered from 1, and remembers what became of them.
type shop struct {
	mu        sync.Mutex
	made      int
	destroyed []int

	// What a test may set before it begins.
	create  func(ctx context.Context) error // called by Create; its error is Create's
	destroy func(v *item)
}

// sell makes a pool out of cfg, whose Create and Destroy are the shop's. When
// the test ends the pool is closed, and every item made must have been
// destroyed once.
func sell(t *testing.T, cfg Config[*item]) (*Pool[*item], *shop) {
	t.Helper()
	return new(shop).sell(t, cfg)
}

func (s *shop) sell(t *testing.T, cfg Config[*item]) (*Pool[*item], *shop) {
	t.Helper()
	cfg.Create = func(ctx context.Context) (*item, error) {
		if s.create != nil {
			if err := s.create(ctx); err != nil {
				return nil, err
			}
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.made++
		return &item{s.made}, nil
	}
	cfg.Destroy = func(v *item) {
		s.mu.Lock()
		s.destroyed = append(s.destroyed, v.id)
		s.mu.Unlock()
		if s.destroy != nil {
			s.destroy(v)
		}
	}
	p, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() {
		p.mu.Lock()
		err := p.inconsistencyLocked()
		p.mu.Unlock()
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		require.NoError(t, p.CloseContext(ctx), "some lease was not given back")
		seen := map[int]bool{}
		for _, id := range s.gone() {
			require.False(t, seen[id], "item %d was destroyed twice", id)
			seen[id] = true
		}
		require.Len(t, seen, s.made, "items destroyed")
		require.EqualValues(t, s.made, p.Stats().Destroyed.Sum())
	})
	return p, s
}

// gone gives the numbers of the items destroyed so far.
func (s *shop) gone() []int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]int(nil), s.destroyed...)
}

func (s *shop) madeSoFar() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.made
}

// must acquires and must succeed.
func must(t testing.TB, p *Pool[*item]) Lease[*item] {
	t.Helper()
	l, err := p.Acquire(t.Context())
	require.NoError(t, err)
	return l
}

// mustAll acquires n at once.
func mustAll(t testing.TB, p *Pool[*item], n int) []Lease[*item] {
	t.Helper()
	leases := make([]Lease[*item], n)
	for i := range leases {
		leases[i] = must(t, p)
	}
	return leases
}

// queuer is somebody who acquires in the background.
type queuer struct {
	cancel context.CancelFunc
	lease  Lease[*item] // the following are good when isDone
	err    error
	at     int // in which order it was served
	done   atomic.Bool
}

func (q *queuer) isDone() bool { return q.done.Load() }

// line lets people queue up in a known order.
type line struct {
	t      *testing.T
	p      *Pool[*item]
	mu     sync.Mutex
	served int
}

// join adds one person, who is asleep in the queue, or served, when join
// returns. Must be called in a synctest bubble.
func (l *line) join() *queuer {
	return l.joinWith(l.p.Acquire)
}

func (l *line) joinWith(acquire func(context.Context) (Lease[*item], error)) *queuer {
	ctx, cancel := context.WithCancel(context.Background())
	l.t.Cleanup(cancel)
	q := &queuer{cancel: cancel}
	go func() {
		lease, err := acquire(ctx)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.served++
		q.lease, q.err, q.at = lease, err, l.served
		q.done.Store(true)
	}()
	synctest.Wait()
	return q
}

// cycle lends and gives back, so that one item more is idle.
func cycle(t testing.TB, p *Pool[*item], n int) {
	t.Helper()
	for _, l := range mustAll(t, p, n) {
		require.NoError(t, l.Release())
	}
}

// quiet is a config without anything that happens by itself.
func quiet(max int) Config[*item] {
	return Config[*item]{Max: max, AcquireTimeout: -1, MaxLifetime: -1, MaxIdleTime: -1, CheckInterval: -1}
}

// gate holds up whoever passes until it is opened.
type gate chan error

func (g gate) pass(context.Context) error { return <-g }

// wait is pass for those who cannot fail.
func (g gate) wait() {
	for range g {
		return
	}
}

// after lets d of the bubble's time go by, and waits for what happens then.
func after(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

const soon = 10 * time.Millisecond
