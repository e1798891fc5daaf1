package floor_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/floor"
)

// server is a replica.
type server struct {
	replayed atomic.Int64
	asked    atomic.Int64
	open     atomic.Int64
	asking   atomic.Int64
	cut      atomic.Bool
	primary  atomic.Bool
	lag      atomic.Int64
	blind    atomic.Bool // it tells no position
}

type session struct {
	dialects.Session
	server *server
}

var errCut = errors.New("cut")

func (s *server) dial(context.Context) (dialects.Session, error) {
	if s.cut.Load() {
		return nil, errCut
	}
	s.open.Add(1)
	return &session{server: s}, nil
}

func (s *session) Written(context.Context) (dialects.Log, error) { return dialects.Log{}, errCut }

func (s *session) Close(context.Context) error {
	s.server.open.Add(-1)
	return nil
}

func (s *session) Replayed(context.Context, bool) (dialects.ReplicaState, error) {
	if s.server.asking.Add(1) != 1 {
		panic("two ask at once")
	}
	time.Sleep(time.Millisecond) // a round trip
	s.server.asking.Add(-1)
	s.server.asked.Add(1)
	if s.server.cut.Load() {
		return dialects.ReplicaState{}, errCut
	}
	position := strconv.FormatInt(s.server.replayed.Load(), 10)
	if s.server.blind.Load() {
		position = ""
	}
	return dialects.ReplicaState{
		Position: position, Standby: !s.server.primary.Load(), Lag: time.Duration(s.server.lag.Load()),
	}, nil
}

func watch(dial func(context.Context) (dialects.Session, error), maxLag time.Duration, silent func()) *floor.Watcher {
	return floor.NewWatcher(floor.Watched{
		Dial: dial, Ask: replayed, Every: time.Second, Positions: numbers{}, Ages: &floor.Ages{}, MaxLag: maxLag, Rest: 30 * time.Second, News: &floor.News{},
		Silent: silent, Renewed: func() {},
	})
}

func replayed(ctx context.Context, s dialects.Positioned) (dialects.ReplicaState, error) {
	return s.Replayed(ctx, true)
}

// await waits until the replica has come to position, for at most limit.
func await(w *floor.Watcher, ctx context.Context, position string, limit time.Duration) bool {
	defer w.Attend()()
	timer := time.After(limit)
	for {
		news := w.News.Next()
		if w.Reached(position) {
			return true
		}
		select {
		case <-news:
		case <-timer:
			return false
		case <-ctx.Done():
			return false
		case <-w.Closed():
			return false
		}
	}
}

func TestReadsWaitForAReplicaThatReplays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s server
		w := watch(s.dial, 0, func() {})
		defer w.Close()
		time.AfterFunc(20*time.Millisecond, func() { s.replayed.Store(10) })
		begun := time.Now()
		var reads sync.WaitGroup
		for range 100 {
			reads.Go(func() {
				require.True(t, await(w, t.Context(), "10", 50*time.Millisecond))
				require.LessOrEqual(t, time.Since(begun), 30*time.Millisecond)
			})
		}
		reads.Wait()
		require.LessOrEqual(t, s.asked.Load(), int64(6), "one asks for all")
		require.True(t, w.Reached("10"))
		require.False(t, await(w, t.Context(), "11", 50*time.Millisecond))
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		require.False(t, await(w, ctx, "11", time.Hour))
	})
}

func TestAReplicaThatNobodyUsesIsAskedNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s server
		w := watch(s.dial, 0, func() {})
		defer w.Close()
		time.Sleep(time.Minute)
		require.Zero(t, s.asked.Load())
		for range 10 {
			w.Use()
			time.Sleep(time.Second)
		}
		require.InDelta(t, 10, s.asked.Load(), 2)
		time.Sleep(time.Minute)
		require.LessOrEqual(t, s.asked.Load(), int64(22))
		require.Zero(t, s.open.Load(), "its connection is closed")
		state, _ := w.State()
		require.Equal(t, floor.Unseen, state)
		require.True(t, await(w, t.Context(), "0", time.Second), "it begins again")
	})
}

func TestTheStateOfAReplicaIsFoundOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s server
		w := watch(s.dial, 0, func() {})
		defer w.Close()
		is := func(want floor.State) {
			t.Helper()
			w.Use()
			time.Sleep(2 * time.Second)
			state, _ := w.State()
			require.Equal(t, want, state)
			require.Equal(t, want == floor.Serving, w.Reached("0"))
		}
		is(floor.Serving)
		s.cut.Store(true)
		is(floor.Dead)
		require.Zero(t, s.open.Load())
		require.False(t, await(w, t.Context(), "0", 50*time.Millisecond))
		s.cut.Store(false)
		is(floor.Serving)
		s.primary.Store(true)
		is(floor.NoStandby)
	})
}

// TestAReplicaIsAsOldAsTheNewestPositionThatItHas, whatever it believes, also while the primary is silent.
func TestAReplicaIsAsOldAsTheNewestPositionThatItHas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s server
		w := watch(s.dial, time.Second, func() {})
		defer w.Close()
		is := func(want floor.State, lag time.Duration) {
			t.Helper()
			w.Wake()
			time.Sleep(100 * time.Millisecond)
			w.Use()
			state, seen := w.State()
			require.Equal(t, want, state)
			require.Equal(t, lag, seen.Lag)
			require.Equal(t, want == floor.Serving, w.Reached("0"))
		}
		w.Use()
		is(floor.Late, -1) // the primary has told nothing
		w.Ages.Add("5", time.Now())
		is(floor.Late, -1)
		s.replayed.Store(5)
		is(floor.Serving, 200*time.Millisecond)
		w.Ages.Add("6", time.Now())
		time.Sleep(time.Second)
		is(floor.Late, 1300*time.Millisecond)
		w.Ages.Add("7", time.Now())
		s.replayed.Store(6)
		is(floor.Late, 1200*time.Millisecond)
		s.replayed.Store(7)
		is(floor.Serving, 200*time.Millisecond)
		s.cut.Store(true)
		is(floor.Dead, -1)
	})
}

func TestAReplicaWithoutPositionsIsBelievedItsLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s server
		s.blind.Store(true)
		w := watch(s.dial, time.Second, func() {})
		defer w.Close()
		for lag, want := range map[time.Duration]floor.State{0: floor.Serving, time.Minute: floor.Late, -1: floor.Late} {
			s.lag.Store(int64(lag))
			w.Use()
			time.Sleep(2 * time.Second)
			state, seen := w.State()
			require.Equal(t, want, state)
			require.Equal(t, lag, seen.Lag)
		}
	})
}

func TestADeadReplicaIsNotAskedMoreOftenForThoseThatWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s server
		var dials atomic.Int64
		s.cut.Store(true)
		w := watch(func(ctx context.Context) (dialects.Session, error) {
			dials.Add(1)
			return s.dial(ctx)
		}, 0, func() {})
		defer w.Close()
		for range 100 {
			require.False(t, await(w, t.Context(), "0", 50*time.Millisecond))
		}
		require.LessOrEqual(t, dials.Load(), int64(7))
	})
}

func TestCloseEndsWaitsAndLeavesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s server
		w := watch(s.dial, 0, func() {})
		time.AfterFunc(100*time.Millisecond, w.Close)
		begun := time.Now()
		require.False(t, await(w, t.Context(), "1", time.Hour))
		require.Equal(t, 100*time.Millisecond, time.Since(begun))
		w.Close()
		require.Zero(t, s.open.Load())
		w.Use()
		require.False(t, await(w, t.Context(), "1", time.Second))
		synctest.Wait()
		require.Zero(t, s.open.Load(), "nothing begins after Close")
	})
}

// Whoever is told that a position is reached finds it replayed, whatever the server does.
func TestAWaitTellsTheTruth(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			var s server
			w := watch(s.dial, 0, func() {})
			defer w.Close()
			done := make(chan struct{})
			go func() {
				for {
					select {
					case <-done:
						return
					case <-time.After(time.Duration(r.IntN(30)) * time.Millisecond):
					}
					s.replayed.Add(int64(r.IntN(5)))
					s.cut.Store(r.IntN(4) == 0)
				}
			}()
			var reads sync.WaitGroup
			var met atomic.Int64
			for i := range 8 {
				own := rand.New(rand.NewPCG(seed, uint64(i+1)))
				reads.Go(func() {
					for range 50 {
						needs := s.replayed.Load() + int64(own.IntN(10))
						if await(w, t.Context(), strconv.FormatInt(needs, 10), time.Duration(own.IntN(60))*time.Millisecond) {
							require.GreaterOrEqual(t, s.replayed.Load(), needs)
							met.Add(1)
						}
						time.Sleep(time.Duration(own.IntN(3000)) * time.Millisecond)
					}
				})
			}
			reads.Wait()
			close(done)
			synctest.Wait()
			require.NotZero(t, met.Load())
		})
	}
}

// hanging is a replica that answers nothing while hangs is set.
type hanging struct {
	server
	hangs atomic.Bool
	opens atomic.Bool // new connections all the same
}

func (h *hanging) dial(ctx context.Context) (dialects.Session, error) {
	if h.hangs.Load() && !h.opens.Load() {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	s, err := h.server.dial(ctx)
	return &hangingSession{s, h}, err
}

type hangingSession struct {
	dialects.Session
	of *hanging
}

func (s *hangingSession) Written(context.Context) (dialects.Log, error) {
	return dialects.Log{}, errCut
}

func (s *hangingSession) Replayed(ctx context.Context, lag bool) (dialects.ReplicaState, error) {
	if s.of.hangs.Load() {
		<-ctx.Done()
		return dialects.ReplicaState{}, ctx.Err()
	}
	return s.Session.(dialects.Positioned).Replayed(ctx, lag)
}

func (s *hangingSession) Close(ctx context.Context) error {
	if s.of.hangs.Load() {
		<-ctx.Done()
	}
	return s.Session.Close(ctx)
}

func TestASilenceOnAnOpenConnectionAndOnANewOneIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h hanging
		var told atomic.Int64
		w := watch(h.dial, 0, func() { told.Add(1) })
		require.True(t, await(w, t.Context(), "0", time.Second))
		time.Sleep(9500 * time.Millisecond) // nobody uses it, and calls may wait for it
		h.hangs.Store(true)
		time.Sleep(1600 * time.Millisecond)
		state, _ := w.State()
		require.Equal(t, floor.Dead, state)
		require.Zero(t, told.Load(), "its own connection may be lost alone")
		time.Sleep(time.Second)
		require.EqualValues(t, 1, told.Load(), "a question and a dial are enough")
		require.False(t, await(w, t.Context(), "0", time.Millisecond))
		time.Sleep(10 * time.Second)
		before := told.Load()
		require.GreaterOrEqual(t, before, int64(2), "it had no connection, but the pool may have some")
		h.hangs.Store(false)
		require.True(t, await(w, t.Context(), "0", time.Minute))
		w.Close()
		require.InDelta(t, before, told.Load(), 1)
		require.Zero(t, h.open.Load())
	})
}

func TestAReplicaThatOpensConnectionsIsNotSilent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h hanging
		var told atomic.Int64
		w := watch(h.dial, 0, func() { told.Add(1) })
		defer w.Close()
		require.True(t, await(w, t.Context(), "0", time.Second))
		h.opens.Store(true)
		h.hangs.Store(true)
		for range 30 {
			w.Use()
			time.Sleep(time.Second)
		}
		require.Zero(t, told.Load(), "only its questions hang, as behind a lock")
		h.opens.Store(false)
		time.Sleep(12 * time.Second)
		require.InDelta(t, 2, told.Load(), 1)
	})
}

func TestACloseIsNoSilence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h hanging
		var told atomic.Int64
		w := watch(func(ctx context.Context) (dialects.Session, error) {
			s, err := h.dial(ctx)
			if err != nil {
				err = &net.OpError{Op: "dial", Err: err}
			}
			return s, err
		}, 0, func() { told.Add(1) })
		require.True(t, await(w, t.Context(), "0", time.Second))
		h.hangs.Store(true)
		time.Sleep(1500 * time.Millisecond)
		w.Close()
		require.Zero(t, told.Load())
	})
}

func TestAReplicaThatHasJustNotAnsweredStaysDead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var h hanging
		w := watch(h.dial, 0, func() {})
		defer w.Close()
		state := func() floor.State {
			w.Use()
			now, _ := w.State()
			return now
		}
		require.True(t, await(w, t.Context(), "0", time.Second))
		h.hangs.Store(true)
		time.Sleep(12500 * time.Millisecond) // those that read wait for it, and use it not again meanwhile
		for range 200 {
			require.Equal(t, floor.Dead, state())
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		h.hangs.Store(false)
		now, _ := w.State()
		require.Equal(t, floor.Unseen, now)
		require.Equal(t, floor.Unseen, state(), "nobody knows")
	})
}
