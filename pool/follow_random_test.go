package pool

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// journey compares a pool with a model of it, step by step. The model knows nothing of locks and timers:
// who waits, who follows whom, who has a resource, and how each acquire has ended.
type journey struct {
	*caravan
	t                *testing.T
	random           *rand.Rand
	max              int
	closed           bool
	begun            []time.Time       // when each acquirer came
	queue            []int             // who waits, in the order of arrival
	leads            []*lent           // who has a resource
	ended            map[int]error     // nil: with a lease
	follows          map[int]*lent     // whom one follows
	followings       []Follower[*item] // all that there ever were
	owners           []*lent           // of followings
	present          map[int]int       // where the present following of one is
	seen             map[int]bool      // whose end has been compared
	taken            uint64            // times that somebody was taken
	served, timeouts uint64
}

type lent struct {
	who   int
	lease Lease[*item]
}

const journeyTimeout = 200 * time.Millisecond

func (j *journey) follower(i int) (who int, follows bool) {
	who = j.followings[i].Who().(int)
	return who, j.follows[who] == j.owners[i] && j.present[who] == i
}

func (j *journey) end(who int, err error) {
	j.ended[who] = err
	delete(j.follows, who)
	j.queue = slices.DeleteFunc(j.queue, func(q int) bool { return q == who })
}

// comeBack is how one comes back who followed.
func (j *journey) comeBack(who int) {
	delete(j.follows, who)
	if j.closed {
		j.end(who, ErrClosed)
		return
	}
	j.queue = append(j.queue, who)
	slices.Sort(j.queue)
}

func (j *journey) step() {
	switch pick := j.random.IntN(20); {
	case pick < 6 && !j.closed:
		j.begun, j.queue = append(j.begun, time.Now()), append(j.queue, len(j.begun))
		j.join()
	case pick < 9:
		j.takeAlong()
	case pick < 13 && len(j.followings) > 0:
		j.endOne(len(j.followings) - 1 - j.random.IntN(min(10, len(j.followings))))
	case pick < 15 && len(j.leads) > 0:
		i := j.random.IntN(len(j.leads))
		l := j.leads[i]
		j.leads = slices.Delete(j.leads, i, i+1)
		for who, of := range j.follows {
			if of == l {
				j.comeBack(who)
			}
		}
		if j.random.IntN(3) > 0 {
			require.NoError(j.t, l.lease.Release())
		} else {
			require.NoError(j.t, l.lease.Discard())
		}
	case pick < 16 && len(j.all) > 0:
		who := len(j.all) - 1 - j.random.IntN(min(10, len(j.all)))
		if _, over := j.ended[who]; !over {
			j.end(who, context.Canceled)
		}
		j.all[who].cancel()
	case pick < 19:
		time.Sleep(time.Duration(j.random.IntN(50)) * time.Millisecond)
	case j.random.IntN(4) == 0:
		for _, who := range slices.Clone(j.queue) {
			j.end(who, errBroken)
		}
		j.RefuseWaiting(errBroken)
	case j.random.IntN(40) == 0:
		for _, who := range slices.Clone(j.queue) {
			j.end(who, ErrClosed)
		}
		j.closed = true
		go j.Close()
	}
}

func (j *journey) takeAlong() {
	if len(j.leads) == 0 {
		return
	}
	l := j.leads[j.random.IntN(len(j.leads))]
	most, odd := j.random.IntN(4), j.random.IntN(3)
	may := func(who any) bool { return who.(int)%3 != odd }
	var want []any
	for _, who := range j.queue {
		if len(want) < most && may(who) {
			want = append(want, who)
		}
	}
	got := l.lease.TakeAlong(upTo(most), may)
	require.Equal(j.t, want, whoAre(got))
	if got != nil {
		j.taken++
	}
	for _, f := range got {
		who := f.Who().(int)
		j.follows[who], j.present[who] = l, len(j.followings)
		j.queue = slices.DeleteFunc(j.queue, func(q int) bool { return q == who })
		j.followings, j.owners = append(j.followings, f), append(j.owners, l)
	}
}

// endOne calls a Follower, also one of long ago.
func (j *journey) endOne(i int) {
	who, follows := j.follower(i)
	require.Equal(j.t, !follows, j.followings[i].Left())
	if j.random.IntN(2) == 0 {
		require.Equal(j.t, follows, j.followings[i].Served(nil))
		if follows {
			j.end(who, ErrServed)
		}
		return
	}
	j.followings[i].Return()
	if follows {
		j.comeBack(who)
	}
}

// settle lets time and the pool do what they do by themselves, in the model, too, and compares.
func (j *journey) settle() {
	synctest.Wait()
	for who, begun := range j.begun {
		if _, over := j.ended[who]; !over && time.Since(begun) >= journeyTimeout {
			j.end(who, ErrTimeout)
		}
	}
	for len(j.queue) > 0 && len(j.leads) < j.max {
		who := j.queue[0]
		j.end(who, nil)
		require.True(j.t, j.all[who].isDone(), "%d should have a resource", who)
		require.NoError(j.t, j.all[who].err)
		j.leads = append(j.leads, &lent{who, j.all[who].lease})
	}
	waiting := map[int]bool{}
	for who, q := range j.all {
		err, over := j.ended[who]
		if j.seen[who] {
			continue
		}
		require.Equal(j.t, over, q.isDone(), "%d", who)
		switch {
		case !over:
			waiting[who] = true
			continue
		case err == nil:
			require.NoError(j.t, q.err)
		default:
			require.ErrorIs(j.t, q.err, err, "%d", who)
			require.True(j.t, q.lease.IsZero())
		}
		j.seen[who] = true
		switch err {
		case ErrServed:
			j.served++
		case ErrTimeout:
			j.timeouts++
		}
	}
	last := -1
	for _, w := range j.Waiting() {
		who := w.Who.(int)
		require.Greater(j.t, who, last, "they are in order")
		require.Equal(j.t, j.follows[who] != nil, w.Follows)
		require.True(j.t, waiting[who])
		delete(waiting, who)
		last = who
	}
	require.Empty(j.t, waiting)
	s := j.Stats()
	require.Equal(j.t, []int{len(j.leads), len(j.queue), len(j.follows)}, []int{s.Lent, s.Waiting, s.Following})
	require.Equal(j.t, []uint64{j.taken, j.served, j.timeouts}, []uint64{s.Pipelines, s.Pipelined, s.Timeouts})
	require.LessOrEqual(j.t, s.Count, j.max)
	j.consistent(j.t, len(j.follows))
}

func TestFollowersDoAsTheirModel(t *testing.T) {
	seeds := uint64(50)
	if os.Getenv("POOLDRIVER_LONG") != "" {
		seeds = 3000
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				random := rand.New(rand.NewPCG(seed, 9))
				cfg := quiet(1 + random.IntN(3))
				cfg.AcquireTimeout = journeyTimeout
				c := crowded(t, cfg, 0)
				require.NoError(t, c.lead.Release())
				j := &journey{caravan: c, t: t, random: random, max: cfg.Max, ended: map[int]error{},
					follows: map[int]*lent{}, present: map[int]int{}, seen: map[int]bool{}}
				for range 200 {
					j.step()
					j.settle()
				}
				for len(j.leads) > 0 {
					l := j.leads[0]
					j.leads = j.leads[1:]
					for who, of := range j.follows {
						if of == l {
							j.comeBack(who)
						}
					}
					require.NoError(t, l.lease.Release())
					j.settle()
				}
				require.Len(t, j.ended, len(j.all))
			})
		})
	}
}

// rider is the argument of AcquireAs in the tests of races.
type rider struct {
	served atomic.Int32 // calls of Served that have returned true
	err    error        // of its acquire
}

// rides is a crowd in which everybody who gets a resource takes others along.
type rides struct {
	*Pool[*item]
	t     *testing.T
	inUse sync.Map // *item → struct{}
	mu    sync.Mutex
	all   []*rider
}

func (r *rides) ride(random *rand.Rand) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	switch random.IntN(4) {
	case 0:
		ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(300))*time.Microsecond)
		defer cancel()
	case 1:
		time.AfterFunc(time.Duration(random.IntN(300))*time.Microsecond, cancel)
	}
	me := new(rider)
	r.mu.Lock()
	r.all = append(r.all, me)
	r.mu.Unlock()
	l, err := r.AcquireAs(ctx, me)
	me.err = err
	if err == nil {
		r.lead(l, random)
	} else if !l.IsZero() || !expected(err) {
		r.t.Errorf("lease %t, error %v", !l.IsZero(), err)
	}
}

func (r *rides) lead(l Lease[*item], random *rand.Rand) {
	if _, taken := r.inUse.LoadOrStore(l.Value(), struct{}{}); taken {
		r.t.Error("two have one resource")
	}
	followers := l.TakeAlong(upTo(random.IntN(6)), func(any) bool { return true })
	var helpers sync.WaitGroup
	for _, f := range followers {
		seed := random.Uint64()
		do := func() { r.end(f, rand.New(rand.NewPCG(seed, 1))) }
		switch random.IntN(3) {
		case 0:
			helpers.Go(do)
		case 1:
			do()
		} // else it is forgotten
	}
	if random.IntN(2) == 0 {
		time.Sleep(time.Duration(random.IntN(200)) * time.Microsecond)
	}
	r.inUse.Delete(l.Value())
	var err error
	if random.IntN(20) == 0 {
		err = l.Discard()
	} else {
		err = l.Release()
	}
	if err != nil {
		r.t.Error(err)
	}
	for _, f := range followers {
		if f.Served(nil) {
			r.t.Error("it follows a lease that has ended")
		}
	}
	helpers.Wait()
}

// end ends f, half of the times from two goroutines at once.
func (r *rides) end(f Follower[*item], random *rand.Rand) {
	if random.IntN(2) == 0 {
		time.Sleep(time.Duration(random.IntN(100)) * time.Microsecond)
	}
	serve := func() {
		if f.Served(nil) {
			f.Who().(*rider).served.Add(1)
		}
	}
	switch random.IntN(4) {
	case 0:
		f.Return()
	case 1:
		var both sync.WaitGroup
		both.Go(f.Return)
		both.Go(serve)
		both.Wait()
	case 2:
		var both sync.WaitGroup
		both.Go(serve)
		both.Go(serve)
		both.Wait()
	default:
		serve()
	}
}

func TestFollowersUnderRaces(t *testing.T) {
	rounds := uint64(6)
	if os.Getenv("POOLDRIVER_LONG") != "" {
		rounds = 400
	}
	for seed := range rounds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { ridesRound(t, seed) })
	}
}

func ridesRound(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 5))
	cfg := quiet(1 + random.IntN(4))
	cfg.AcquireTimeout = time.Duration(2+random.IntN(20)) * time.Millisecond
	if random.IntN(2) == 0 {
		cfg.BeforeAcquire = func(context.Context, *item) error { return nil }
	}
	if random.IntN(2) == 0 {
		cfg.BeforeRelease = func(context.Context, *item) error { return nil }
	}
	p, _ := sell(t, cfg)
	r := &rides{Pool: p, t: t}
	var all, helpers sync.WaitGroup
	for range 24 {
		seed := random.Uint64()
		all.Go(func() {
			own := rand.New(rand.NewPCG(seed, 1))
			for range 100 {
				r.ride(own)
			}
		})
	}
	over := make(chan struct{})
	helpers.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(50 * time.Microsecond):
			}
			p.Waiting()
			p.mu.Lock()
			err := p.inconsistencyLocked()
			many := p.total > p.max
			p.mu.Unlock()
			if err != nil || many {
				t.Error("too many, or ", err)
				return
			}
		}
	})
	if random.IntN(3) == 0 {
		time.AfterFunc(40*time.Millisecond, p.Close)
	}
	all.Wait()
	close(over)
	helpers.Wait()
	// Each has got exactly one of a resource, ErrServed, and another error, and was served once at most.
	got, served := 0, 0
	for _, one := range r.all {
		wants := int32(0)
		switch one.err {
		case nil:
			got++
		case ErrServed:
			wants = 1
			served++
		}
		require.Equal(t, wants, one.served.Load(), "%v", one.err)
	}
	s := p.Stats()
	require.Len(t, r.all, 24*100)
	require.EqualValues(t, got, s.Acquires)
	require.EqualValues(t, served, s.Pipelined)
	require.Zero(t, s.Waiting+s.Following+s.Lent)
	t.Logf("%d had a resource, %d were served in %d pipelines", got, served, s.Pipelines)
}
