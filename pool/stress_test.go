package pool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// part is the resource of the stress test. It knows who has it.
type part struct {
	owner     atomic.Int64
	destroyed atomic.Bool
}

// yard makes and destroys parts, badly, and counts them as a server would.
type yard struct {
	t    *testing.T
	mu   sync.Mutex // protects rand
	rand *rand.Rand

	standing  atomic.Int64 // parts that exist for the server
	most      atomic.Int64
	made      atomic.Int64
	destroyed atomic.Int64
	starved   atomic.Bool // Starving runs
	served    atomic.Int64
}

func (y *yard) oneIn(n int) bool {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.rand.IntN(n) == 0
}

func (y *yard) upTo(d time.Duration) time.Duration {
	y.mu.Lock()
	defer y.mu.Unlock()
	return time.Duration(y.rand.Int64N(int64(d)))
}

// trouble fails in every way a hook can.
func (y *yard) trouble(n int) error {
	switch {
	case y.oneIn(n):
		return errors.New("trouble")
	case y.oneIn(4 * n):
		panic("trouble")
	}
	return nil
}

func (y *yard) linger(ctx context.Context) {
	if y.oneIn(2) {
		return
	}
	select {
	case <-ctx.Done():
	case <-time.After(y.upTo(300 * time.Microsecond)):
	}
}

func (y *yard) create(ctx context.Context) (*part, error) {
	n := y.standing.Add(1)
	for m := y.most.Load(); n > m && !y.most.CompareAndSwap(m, n); {
		m = y.most.Load()
	}
	good := false
	defer func() {
		if !good {
			y.standing.Add(-1)
		}
	}()
	y.linger(ctx)
	if y.oneIn(50) {
		runtime.Goexit()
	}
	if err := y.trouble(10); err != nil {
		return nil, err
	}
	good = true
	y.made.Add(1)
	return &part{}, nil
}

func (y *yard) destroy(v *part) {
	if !v.destroyed.CompareAndSwap(false, true) {
		y.t.Error("a part was destroyed twice")
	}
	if owner := v.owner.Load(); owner != 0 {
		y.t.Errorf("a part was destroyed while %d had it", owner)
	}
	y.destroyed.Add(1)
	y.linger(context.Background())
	y.standing.Add(-1)
	if y.oneIn(20) {
		panic("trouble")
	}
}

// touch is what a hook does to a part: nobody else may have it.
func (y *yard) touch(ctx context.Context, v *part, id int64, n int) error {
	if !v.owner.CompareAndSwap(0, id) {
		y.t.Errorf("hook %d found the part with %d", id, v.owner.Load())
	}
	defer v.owner.CompareAndSwap(id, 0)
	if v.destroyed.Load() {
		y.t.Errorf("hook %d got a destroyed part", id)
	}
	if y.oneIn(4) {
		y.linger(ctx)
	}
	return y.trouble(n)
}

// starving is a hook that has nothing to give.
func (y *yard) starving(waiting int) {
	if !y.starved.CompareAndSwap(false, true) {
		y.t.Error("two calls of Starving at once")
	}
	defer y.starved.Store(false)
	if waiting < 1 {
		y.t.Errorf("Starving was called for %d", waiting)
	}
	y.linger(context.Background())
	if y.oneIn(20) {
		runtime.Goexit()
	}
	if y.oneIn(20) {
		panic("trouble")
	}
}

// use is what a borrower does.
func (y *yard) use(ctx context.Context, l Lease[*part], id int64) {
	v := l.Value()
	if !v.owner.CompareAndSwap(0, id) {
		y.t.Errorf("%d got a part that %d has", id, v.owner.Load())
	}
	if v.destroyed.Load() {
		y.t.Errorf("%d got a destroyed part", id)
	}
	y.lead(ctx, l)
	if y.oneIn(3) {
		y.linger(ctx)
	}
	if !v.owner.CompareAndSwap(id, 0) {
		y.t.Errorf("%d lost its part to %d", id, v.owner.Load())
	}
	giveBack := l.Release
	if y.oneIn(20) {
		giveBack = l.Discard
	}
	if err := giveBack(); err != nil {
		y.t.Errorf("giving back: %v", err)
	}
	if y.oneIn(5) {
		if err := l.Release(); !errors.Is(err, ErrStaleLease) {
			y.t.Errorf("giving back twice: %v", err)
		}
	}
}

// lead takes some along. It serves some, returns some, and forgets some.
func (y *yard) lead(ctx context.Context, l Lease[*part]) {
	if !y.oneIn(3) {
		return
	}
	for _, f := range l.TakeAlong(upTo(4), func(any) bool { return true }) {
		if y.oneIn(4) {
			y.linger(ctx)
		}
		switch {
		case y.oneIn(3):
			f.Return()
		case !y.oneIn(4) && f.Served(nil):
			y.served.Add(1)
		}
	}
}

// TestPoolKeepsItsPromisesUnderStress runs everything at once for
// POOL_STRESS_SECONDS (by default 1, and 60 where POOLDRIVER_LONG is set),
// seeded by POOL_STRESS_SEED.
func TestPoolKeepsItsPromisesUnderStress(t *testing.T) {
	seconds, seed := 1.0, uint64(time.Now().UnixNano())
	if os.Getenv("POOLDRIVER_LONG") != "" {
		seconds = 60
	}
	if s := os.Getenv("POOL_STRESS_SECONDS"); s != "" {
		var err error
		seconds, err = strconv.ParseFloat(s, 64)
		require.NoError(t, err)
	}
	if s := os.Getenv("POOL_STRESS_SEED"); s != "" {
		var err error
		seed, err = strconv.ParseUint(s, 10, 64)
		require.NoError(t, err)
	}
	t.Logf("POOL_STRESS_SEED=%d POOL_STRESS_SECONDS=%g", seed, seconds)
	random := rand.New(rand.NewPCG(seed, 0))
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	for round := 0; round == 0 || time.Now().Before(end); round++ {
		stressRound(t, random.Uint64())
		if t.Failed() {
			return
		}
	}
}

// stressRound drives one pool, of a random configuration, from its making to
// its closing.
func stressRound(t *testing.T, seed uint64) {
	y := &yard{t: t, rand: rand.New(rand.NewPCG(seed, 1))}
	random := rand.New(rand.NewPCG(seed, 2))
	limit := 1 + random.IntN(8)
	cfg := Config[*part]{
		Create:               y.create,
		Destroy:              y.destroy,
		Max:                  limit,
		Min:                  random.IntN(limit + 1),
		MinIdle:              random.IntN(limit + 1),
		MaxConcurrentCreates: random.IntN(4) - 1,
		MaxWaiters:           random.IntN(2) * random.IntN(40),
		IdleOrder:            IdleOrder(random.IntN(2)),
		QueueTarget:          time.Duration(random.IntN(2)*random.IntN(500)) * time.Microsecond,
		QueueInterval:        time.Duration(1+random.IntN(3)) * time.Millisecond,
		AcquireTimeout:       20 * time.Millisecond,
		MaxLifetime:          time.Duration(1+random.IntN(20)) * time.Millisecond,
		MaxIdleTime:          time.Duration(1+random.IntN(20)) * time.Millisecond,
		CheckInterval:        time.Duration(1+random.IntN(5)) * time.Millisecond,
	}
	// No AcquireTimeout, no hooks and the like must work as well: half of the
	// pools go without each.
	if random.IntN(2) == 0 {
		cfg.Check = func(ctx context.Context, v *part) error { return y.touch(ctx, v, -1, 5) }
	}
	if random.IntN(2) == 0 {
		cfg.BeforeAcquire = func(ctx context.Context, v *part) error { return y.touch(ctx, v, -2, 10) }
	}
	if random.IntN(2) == 0 {
		cfg.BeforeRelease = func(ctx context.Context, v *part) error { return y.touch(ctx, v, -3, 10) }
	}
	if random.IntN(2) == 0 {
		cfg.Strategy = ConsecutiveFailures(2, time.Millisecond)
	}
	if random.IntN(2) == 0 {
		cfg.Full = func(error) bool { return y.oneIn(2) }
	}
	if random.IntN(4) == 0 {
		cfg.Denied = func(error) bool { return y.oneIn(4) }
	}
	if random.IntN(2) == 0 {
		cfg.Starving = y.starving
		cfg.StarveAfter = time.Duration(1+random.IntN(1000)) * time.Microsecond
	}
	p, err := New(cfg)
	require.NoError(t, err)
	watchdog := time.AfterFunc(time.Minute, func() {
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		panic(fmt.Sprintf("stress round %d hangs: %+v\n%s", seed, p.Stats(), buf))
	})
	defer watchdog.Stop()

	var biggest atomic.Int64
	biggest.Store(int64(limit))
	var workers, helpers sync.WaitGroup
	over := make(chan struct{})
	for id := range int64(2 + random.IntN(24)) {
		workers.Go(func() { stressWorker(t, p, y, id+1) })
	}
	helpers.Go(func() { stressInspector(t, p, over) })
	helpers.Go(func() { stressOperator(p, y, &biggest, over) })

	if y.oneIn(2) {
		// Close in the middle of everything.
		time.AfterFunc(y.upTo(10*time.Millisecond), p.Close)
	}
	workers.Wait()
	close(over)
	helpers.Wait()
	require.NoError(t, p.CloseContext(context.Background()))
	p.Close()

	s := p.Stats()
	require.Zero(t, s.Count)
	require.Zero(t, s.Active)
	require.Zero(t, s.Waiting)
	require.Zero(t, s.Following)
	require.EqualValues(t, y.served.Load(), s.Pipelined)
	require.Zero(t, s.Orphaned)
	require.EqualValues(t, y.made.Load(), s.Creates)
	require.EqualValues(t, y.made.Load(), y.destroyed.Load())
	require.EqualValues(t, y.made.Load(), s.Destroyed.Sum())
	require.Zero(t, y.standing.Load(), "what the server has")
	require.LessOrEqual(t, y.most.Load(), biggest.Load(), "what the server had at most")
}

func stressWorker(t *testing.T, p *Pool[*part], y *yard, id int64) {
	for range 60 {
		ctx, cancel := context.Background(), context.CancelFunc(func() {})
		switch {
		case y.oneIn(4):
			ctx, cancel = context.WithTimeout(ctx, y.upTo(500*time.Microsecond))
		case y.oneIn(2):
			ctx, cancel = context.WithCancel(ctx)
		}
		var l Lease[*part]
		var err error
		switch {
		case y.oneIn(10):
			var ok bool
			if l, ok = p.TryAcquire(); !ok {
				err = ErrNoneNow
			}
		case y.oneIn(5):
			l, err = p.AcquireNow(ctx)
		default:
			l, err = p.Acquire(ctx)
		}
		if err == nil {
			y.use(ctx, l, id)
		} else if !expected(err) {
			t.Errorf("acquire: %v", err)
		}
		cancel()
	}
}

// expected reports whether err is one the stress test asks for.
func expected(err error) bool {
	var create *CreateError
	for _, target := range []error{ErrClosed, ErrTimeout, ErrTooManyWaiters, ErrOverloaded, ErrUnavailable, ErrNoneNow, ErrServed, errBroken,
		context.Canceled, context.DeadlineExceeded} {
		if errors.Is(err, target) {
			return true
		}
	}
	return errors.As(err, &create)
}

// stressInspector looks at the pool from outside and inside.
func stressInspector(t *testing.T, p *Pool[*part], over chan struct{}) {
	moves := uint64(0)
	for {
		select {
		case <-over:
			return
		default:
		}
		s := p.Stats()
		if s.Count != s.Idle+s.Active || s.Lent < 0 ||
			s.Active != s.Lent+s.Creating+s.Checking+s.Destroying {
			t.Errorf("the numbers do not add up: %+v", s)
		}
		if s.Moves < moves || s.Moves < s.Acquires {
			t.Errorf("%d moves after %d: %+v", s.Moves, moves, s)
		}
		moves = s.Moves
		p.mu.Lock()
		if err := p.inconsistencyLocked(); err != nil {
			p.mu.Unlock()
			t.Error(err)
			return
		}
		p.mu.Unlock()
		runtime.Gosched()
	}
}

// inconsistencyLocked says what is wrong in a pool that nobody is in the
// middle of changing.
func (p *Pool[T]) inconsistencyLocked() error {
	n, last := 0, uint64(0)
	for w := p.queue.oldest(); w != nil; w = p.queue.after(w) {
		if w.seq <= last {
			return fmt.Errorf("number %d stands after %d in the queue", w.seq, last)
		}
		if w.state != stateQueued {
			return fmt.Errorf("a waiter of state %d stands in the queue", w.state)
		}
		if err := p.createsWronglyLocked(w); err != nil {
			return err
		}
		last = w.seq
		n++
	}
	if err := p.followingWronglyLocked(); err != nil {
		return err
	}
	switch {
	case n != p.queue.n:
		return fmt.Errorf("%d in the queue, %d counted", n, p.queue.n)
	case p.mode == 0 && n > 0 && p.idle.n > 0:
		return fmt.Errorf("%d wait with %d idle", n, p.idle.n)
	case p.mode&modeOver == 0 && p.total > p.max:
		return fmt.Errorf("%d exist, %d may", p.total, p.max)
	case p.creating != len(p.creations) || p.reserved+p.refilling > p.creating:
		return fmt.Errorf("%d creates run, %d are known, %d reserved, %d for Min", p.creating, len(p.creations), p.reserved, p.refilling)
	case p.mode == 0 && p.outage.failures > 0 && p.unservedLocked() > 0 && p.roomLocked() > 0 && p.outage.timerAt == 0:
		return fmt.Errorf("%d wait, and nothing will create for them", n)
	case p.mode == 0 && p.full.on && n > 0 && p.creating == 0 && p.total < p.max && p.outage.timerAt == 0:
		return fmt.Errorf("%d wait, and nothing will ask the full server for more", n)
	case p.mode&modeRecovering == 0 && p.outage.failures == 0 && !p.full.on && p.wantedLocked() > 0:
		return fmt.Errorf("%d creates are missing: %d wait, %d of %d are created", p.wantedLocked(), n, p.creating, p.total)
	case p.cfg.StarveAfter > 0 && n > 0 && !p.starvation.armed:
		return fmt.Errorf("%d wait, and nothing will call Starving", n)
	case p.mode&modeClosed != 0 && (n > 0 || p.idle.n > 0):
		return fmt.Errorf("closed, but %d wait and %d are idle", n, p.idle.n)
	}
	return nil
}

// createsWronglyLocked says what is wrong with the create that w has begun.
func (p *Pool[T]) createsWronglyLocked(w *waiter[T]) error {
	if w.creates && !slices.ContainsFunc(p.creations, func(c *creation[T]) bool { return c.w == w && c.seq == w.seq }) {
		return fmt.Errorf("number %d seems to have a create, and none runs", w.seq)
	}
	return nil
}

// followingWronglyLocked says what is wrong with those who follow.
func (p *Pool[T]) followingWronglyLocked() error {
	n, led := 0, map[*resource[T]]uint64{}
	for w := p.following.oldest(); w != nil; w = p.following.after(w) {
		switch {
		case w.state != stateFollowing || w.r == nil:
			return fmt.Errorf("number %d of state %d follows", w.seq, w.state)
		case p.probe != 0 && w.seq == p.probe:
			return fmt.Errorf("the probe, number %d, follows", w.seq)
		}
		led[w.r]++
		if err := p.createsWronglyLocked(w); err != nil {
			return err
		}
		n++
	}
	for r, k := range led {
		if r.leads != k || r.gone {
			return fmt.Errorf("%d follow a resource that leads %d, gone: %t", k, r.leads, r.gone)
		}
	}
	switch {
	case n != p.following.n:
		return fmt.Errorf("%d follow, %d counted", n, p.following.n)
	case len(led) > p.lentLocked():
		return fmt.Errorf("%d lead, %d are lent", len(led), p.lentLocked())
	case p.cfg.AcquireTimeout > 0 && n > 0 && p.expireAt == 0:
		return fmt.Errorf("%d follow, and nothing will time them out", n)
	}
	return nil
}

// stressOperator turns every knob.
func stressOperator(p *Pool[*part], y *yard, biggest *atomic.Int64, over chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(y.upTo(time.Millisecond)):
		}
		switch {
		case y.oneIn(5):
			n := int64(1 + y.upTo(10))
			biggest.Store(max(biggest.Load(), n))
			_ = p.Resize(int(n))
		case y.oneIn(5):
			p.Flush()
		case y.oneIn(5):
			p.RefuseWaiting(errBroken)
		case y.oneIn(10):
			p.Deactivate()
		case y.oneIn(5):
			p.Recover()
		case y.oneIn(2):
			p.Activate()
		case y.oneIn(2):
			ctx, cancel := context.WithTimeout(context.Background(), y.upTo(time.Millisecond))
			_ = p.Warm(ctx)
			cancel()
		}
	}
}
