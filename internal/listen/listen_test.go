package listen

import (
	"context"
	"errors"
	"io"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// ear is a Listen of a test.
type ear struct {
	told  chan Notification
	ended chan error
	stop  context.CancelFunc
	fails atomic.Bool // its function does
}

func listenTo(t *testing.T, h *Hub, channel string) *ear {
	ctx, stop := context.WithCancel(t.Context())
	e := &ear{told: make(chan Notification, 10*maxQueued), ended: make(chan error, 1), stop: stop}
	go func() {
		e.ended <- h.Listen(ctx, channel, func(n Notification) error {
			e.told <- n
			if e.fails.Load() {
				return errors.New("a panic")
			}
			return nil
		})
	}()
	return e
}

// heard are the payloads that were told, and "gap" for gaps, when nothing moves any more.
func (e *ear) heard() string {
	synctest.Wait()
	var all []string
	for {
		select {
		case n := <-e.told:
			if n.Gap {
				n.Payload = "gap"
			}
			all = append(all, n.Payload)
		default:
			return strings.Join(all, " ")
		}
	}
}

func TestTheFirstNotificationIsAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		h := s.hub()
		e := listenTo(t, h, "a")
		n := <-e.told
		require.True(t, n.Gap)
		require.Zero(t, n.Since)
		require.Equal(t, time.Now(), n.Until)
		s.notify("a", "1")
		s.notify("b", "2")
		require.Equal(t, "1", e.heard())
		late := listenTo(t, h, "a")
		require.Equal(t, "gap", late.heard())
		s.notify("a", "3")
		require.Equal(t, "3", e.heard())
		require.Equal(t, "3", late.heard())
		require.Equal(t, 1, s.dialled())
		require.Zero(t, h.Gaps.Load(), "the first gap of a listener is none")
		require.Equal(t, uint64(2), h.Received.Load(), "a notification of a channel that was not asked for is not sent")
	})
}

func TestTheConnectionIsClosedAfterTheLastListener(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		h := s.hub()
		require.Equal(t, Unused, h.Look().State)
		a, b := listenTo(t, h, "a"), listenTo(t, h, "b")
		require.Equal(t, "gap", a.heard())
		require.Equal(t, "gap", b.heard())
		require.Equal(t, []string{"a", "b"}, s.listened())
		require.Equal(t, []string{"a", "b"}, h.Look().Channels)
		a.stop()
		require.NoError(t, <-a.ended)
		synctest.Wait()
		require.Equal(t, []string{"b"}, s.listened())
		require.Equal(t, Listening, h.Look().State)
		b.stop()
		require.NoError(t, <-b.ended)
		synctest.Wait()
		require.Zero(t, s.open())
		require.Equal(t, Unused, h.Look().State)
		require.Equal(t, "gap", listenTo(t, h, "a").heard(), "it is opened again")
		require.Equal(t, 2, s.dialled())
		require.Equal(t, 1, s.most)
	})
}

func TestAfterALossEveryListenerIsToldOfTheGapFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		h := s.hub()
		a, b := listenTo(t, h, "a"), listenTo(t, h, "b")
		require.Equal(t, "gap", a.heard())
		require.Equal(t, "gap", b.heard())
		time.Sleep(10 * time.Second)
		s.set(func() { s.refuse = io.ErrUnexpectedEOF })
		s.notify("a", "1")
		s.kill()
		require.Equal(t, "1", a.heard(), "what has arrived is told")
		s.notify("a", "2")
		time.Sleep(time.Minute)
		require.Equal(t, Connecting, h.Look().State)
		require.InDelta(t, 200, s.dialled(), 10, "a dial each 300 ms")
		c := listenTo(t, h, "a")
		require.Empty(t, c.heard(), "in an outage nothing is told")
		s.set(func() { s.refuse = nil })
		time.Sleep(time.Second)
		s.notify("a", "3")
		synctest.Wait()
		n := <-a.told
		require.True(t, n.Gap)
		require.Equal(t, 70*time.Second, n.Until.Sub(n.Since).Round(time.Second), "since the last round trip")
		require.Equal(t, "3", a.heard())
		require.Equal(t, "gap", b.heard())
		require.Equal(t, "gap 3", c.heard())
		require.Equal(t, uint64(2), h.Gaps.Load())
		require.Equal(t, uint64(1), h.Losses.Load())
	})
}

func TestANetworkThatIsHalfOpenIsFoundByAPing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		h := s.hub()
		e := listenTo(t, h, "a")
		require.Equal(t, "gap", e.heard())
		silent := make(chan struct{})
		s.set(func() { s.silent = silent })
		s.notify("a", "1")
		time.Sleep(34 * time.Second)
		require.Equal(t, Listening, h.Look().State)
		time.Sleep(2 * time.Second) // 30 s and 5 s have passed
		require.Equal(t, Connecting, h.Look().State)
		s.set(func() { s.silent = nil })
		close(silent)
		time.Sleep(time.Second)
		s.notify("a", "2")
		require.Equal(t, "gap 2", e.heard())
		require.Equal(t, 1, s.most)
	})
}

func TestAnErrorBeforeTheFirstSuccessIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		h := s.hub()
		s.refuse = errRefused
		a, b := listenTo(t, h, "a"), listenTo(t, h, "b")
		require.ErrorIs(t, <-a.ended, errRefused)
		require.ErrorIs(t, <-b.ended, errRefused)
		synctest.Wait()
		require.LessOrEqual(t, s.dialled(), 2)
		s.set(func() { s.refuse = nil })
		a = listenTo(t, h, "a")
		require.Equal(t, "gap", a.heard())
		s.set(func() { s.refuse = errRefused })
		before := s.dialled()
		s.kill()
		time.Sleep(time.Minute)
		require.InDelta(t, 60, s.dialled()-before, 5, "later it is an outage, with a dial each second")
		s.set(func() { s.refuse = nil })
		time.Sleep(time.Second)
		require.Equal(t, "gap", a.heard())
	})
}

func TestAnOutageBeforeTheFirstSuccessIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		h := s.hub()
		s.refuse = io.ErrUnexpectedEOF
		e, gone := listenTo(t, h, "a"), listenTo(t, h, "b")
		time.Sleep(time.Minute)
		gone.stop()
		require.NoError(t, <-gone.ended)
		s.set(func() { s.refuse = nil })
		time.Sleep(time.Second)
		require.Equal(t, "gap", e.heard())
		require.Equal(t, []string{"a"}, s.listened())
	})
}

func TestAChannelThatTheServerRefusesEndsItsListenersOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.bad = "bad"
		h := s.hub()
		a := listenTo(t, h, "a")
		require.Equal(t, "gap", a.heard())
		bad := listenTo(t, h, "bad")
		require.ErrorIs(t, <-bad.ended, errBad)
		s.notify("a", "1")
		require.Equal(t, "1", a.heard())
		require.Equal(t, 1, s.dialled())
	})
}

func TestTheLastListenerIsRefusedAndTheConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.bad = "bad"
		h := s.hub()
		require.ErrorIs(t, <-listenTo(t, h, "bad").ended, errBad)
		synctest.Wait()
		require.Zero(t, s.open())
		require.Equal(t, Unused, h.Look().State)
	})
}

func TestNewChannelsShareARoundTrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.refuse = io.ErrUnexpectedEOF
		h := s.hub()
		ears := make([]*ear, 100)
		for i := range ears {
			ears[i] = listenTo(t, h, strconv.Itoa(i))
		}
		synctest.Wait()
		s.set(func() { s.refuse = nil })
		time.Sleep(time.Second)
		for _, e := range ears {
			require.Equal(t, "gap", e.heard())
		}
		require.Equal(t, 2, s.listens, "one is the probe's")
	})
}

func TestAChannelThatTheServerRefusesIsFoundAmongOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		s.bad = "bad"
		s.refuse = io.ErrUnexpectedEOF
		h := s.hub()
		a, bad, b := listenTo(t, h, "a"), listenTo(t, h, "bad"), listenTo(t, h, "b")
		synctest.Wait()
		s.set(func() { s.refuse = nil })
		require.ErrorIs(t, <-bad.ended, errBad)
		require.Equal(t, "gap", a.heard())
		require.Equal(t, "gap", b.heard())
		require.Equal(t, []string{"a", "b"}, s.listened())
		require.Zero(t, h.Losses.Load())
	})
}

func TestAPoolerThatDropsNotificationsIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		h := s.hub()
		s.relayed, s.deaf = true, true
		e := listenTo(t, h, "a")
		begun := time.Now()
		err := <-e.ended
		require.ErrorContains(t, err, "PgBouncer in transaction mode")
		require.ErrorContains(t, err, "Config.ListenDSN")
		require.Equal(t, probeTime, time.Since(begun))
		s.set(func() { s.deaf = false })
		e = listenTo(t, h, "a")
		require.Equal(t, "gap", e.heard())
		require.Equal(t, 2, s.most, "the second connection sends the test's notification")
		require.Equal(t, 1, s.open())
	})
}

func TestASlowListenerLosesWhatWaitsAndIsToldSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		h := s.hub()
		overflows := 0
		h.config.Overflowed = func(channel string) {
			require.Equal(t, "a", channel)
			overflows++
		}
		var told []Notification
		next := make(chan struct{})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_ = h.Listen(ctx, "a", func(n Notification) error {
				told = append(told, n)
				<-next
				return nil
			})
		}()
		quick := listenTo(t, h, "a")
		require.Equal(t, "gap", quick.heard())
		begun := time.Now()
		time.Sleep(time.Second)
		for i := range maxQueued + 2 {
			s.notify("a", strconv.Itoa(i))
			if i%100 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		time.Sleep(time.Second)
		close(next)
		synctest.Wait()
		stop()
		<-done
		require.Len(t, told, 3)
		require.True(t, told[1].Gap)
		require.False(t, told[1].Since.After(begun))
		require.Equal(t, begun.Add(time.Second), told[1].Until)
		require.Equal(t, strconv.Itoa(maxQueued+1), told[2].Payload)
		require.Equal(t, 1, overflows)
		require.Equal(t, uint64(maxQueued+1), h.Dropped.Load())
		require.Equal(t, uint64(1), h.Gaps.Load())
		require.Len(t, strings.Fields(quick.heard()), maxQueued+2, "the other listener has lost nothing")
	})
}

func TestAQueueIsBoundedInBytes(t *testing.T) {
	t.Parallel()
	q := newQueue("a")
	q.lose(time.Time{}, time.Now())
	_, _, _ = q.take()
	payload := strings.Repeat("x", 8000)
	for range maxBytes / 8000 {
		dropped, _ := q.put(payload, time.Now())
		require.Zero(t, dropped)
	}
	dropped, gap := q.put(payload, time.Now())
	require.Equal(t, maxBytes/8000+1, dropped)
	require.True(t, gap)
	n, _, ok := q.take()
	require.True(t, ok)
	require.True(t, n.Gap)
	_, _, ok = q.take()
	require.False(t, ok)
	dropped, _ = q.put(payload, time.Now())
	require.Zero(t, dropped)
}

func TestAfterACallThatFailsTheNextIsAGap(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		h := s.hub()
		e := listenTo(t, h, "a")
		require.Equal(t, "gap", e.heard())
		e.fails.Store(true)
		s.notify("a", "0")
		require.Equal(t, "0", e.heard())
		time.Sleep(10 * failPause)
		require.InDelta(t, 10, len(strings.Fields(e.heard())), 1, "there are pauses")
		e.fails.Store(false)
		time.Sleep(failPause)
		_ = e.heard()
		gaps := h.Gaps.Load()

		e.fails.Store(true)
		s.notify("a", "1")
		s.notify("a", "2")
		require.Equal(t, "1", e.heard())
		e.fails.Store(false)
		time.Sleep(failPause)
		require.Equal(t, "gap 2", e.heard())
		require.Equal(t, gaps+1, h.Gaps.Load())
	})
}

func TestCloseEndsListenersAndTheirConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServer(t)
		h := s.hub()
		e := listenTo(t, h, "a")
		require.Equal(t, "gap", e.heard())
		h.Close(errClosed, time.Second)
		require.ErrorIs(t, <-e.ended, errClosed)
		require.Zero(t, s.open(), "Close has waited")
		require.ErrorIs(t, h.Listen(t.Context(), "a", nil), errClosed)
		h.Close(errors.New("another"), time.Second)
	})
}
