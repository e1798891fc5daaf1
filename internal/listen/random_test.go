package listen

import (
	"context"
	"io"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// world is a random program: listeners come and go, sessions are killed, and somebody notifies.
type world struct {
	server *server
	hub    *Hub

	mu   sync.Mutex
	sent map[string][]commit // of each channel; the payload is the place
}

// commit was between begun and done.
type commit struct{ begun, done time.Time }

func (w *world) notify(channel string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	begun := time.Now()
	w.server.notify(channel, strconv.Itoa(len(w.sent[channel])))
	w.sent[channel] = append(w.sent[channel], commit{begun, time.Now()})
}

// check compares what a listener was told with what was sent until it was told the last of it.
func (w *world) check(t *testing.T, channel string, told []Notification) {
	w.mu.Lock()
	defer w.mu.Unlock()
	next := -1 // unknown before the first gap
	var gaps []Notification
	for i, n := range told {
		require.Equal(t, channel, n.Channel)
		if n.Gap {
			require.Equal(t, i == 0, n.Since.IsZero(), "only the first gap began before everything: %v", told[:i+1])
			gaps = append(gaps, n)
			continue
		}
		place, err := strconv.Atoi(n.Payload)
		require.NoError(t, err)
		require.GreaterOrEqual(t, place, next, "told twice, or out of order")
		if next < 0 {
			next = 0
		}
		for ; next < place; next++ {
			covered := false
			for _, g := range gaps {
				covered = covered || !w.sent[channel][next].done.Before(g.Since) && !w.sent[channel][next].begun.After(g.Until)
			}
			require.True(t, covered, "%s %d, of %v, is in no gap of %v", channel, next, w.sent[channel][next], gaps)
		}
		next++
	}
}

func TestRandomListenersMissNothingButInGaps(t *testing.T) {
	for range randomtest.Rounds(3, 60) {
		random := randomtest.Seeded(t)
		s := newServer(t)
		w := &world{server: s, hub: s.hub(), sent: map[string][]commit{}}
		w.hub.config.Ping = 3 * time.Millisecond
		watched := randomtest.Watch(t, time.Minute)
		var all sync.WaitGroup
		end := time.Now().Add(time.Second)
		actor := func(act func(*rand.Rand)) {
			own := rand.New(rand.NewPCG(random.Uint64(), 0))
			all.Go(func() {
				for time.Now().Before(end) || w.hub.Losses.Load() == 0 || w.hub.Received.Load() == 0 {
					act(own)
				}
			})
		}
		for range 20 {
			actor(func(r *rand.Rand) {
				channel := "c" + strconv.Itoa(r.IntN(8))
				ctx, stop := context.WithTimeout(t.Context(), time.Duration(r.IntN(200))*time.Millisecond)
				defer stop()
				slow := r.IntN(10) == 0
				var told []Notification
				require.NoError(t, w.hub.Listen(ctx, channel, func(n Notification) error {
					if told = append(told, n); slow {
						time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
					}
					if r.IntN(1000) == 0 {
						return io.EOF
					}
					return nil
				}))
				w.check(t, channel, told)
			})
		}
		for range 2 {
			actor(func(r *rand.Rand) {
				if r.IntN(100) == 0 {
					for range 2 * maxQueued { // more than a queue has room for
						w.notify("c0")
					}
				}
				for range r.IntN(100) {
					w.notify("c" + strconv.Itoa(r.IntN(8)))
				}
				time.Sleep(time.Duration(r.IntN(500)) * time.Microsecond)
			})
		}
		actor(func(r *rand.Rand) {
			time.Sleep(time.Duration(r.IntN(100)) * time.Millisecond)
			s.kill()
		})
		all.Wait()
		require.Eventually(t, func() bool { return s.open() == 0 && w.hub.Look().State == Unused }, 10*time.Second, time.Millisecond,
			"nobody listens, and the connection is closed")
		require.Equal(t, 1, s.most)
		require.Empty(t, w.hub.channels)
		require.Positive(t, w.hub.Losses.Load())
		require.Positive(t, w.hub.Received.Load())
		t.Logf("received %d, dropped %d, gaps %d, losses %d, dials %d", w.hub.Received.Load(), w.hub.Dropped.Load(), w.hub.Gaps.Load(), w.hub.Losses.Load(), s.dials)
		watched()
	}
}
