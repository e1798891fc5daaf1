package binding

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/ctxsettings"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/textcache"
	"github.com/pooldriver/pooldriver/pool"
)

func TestTheTimerOfAPipelineEndsWithIt(t *testing.T) {
	p := &pipeline{}
	p.timer = time.AfterFunc(time.Hour, p.rescue)
	p.over.Store(true) // as stop does, while rescue is about to run
	p.timer.Stop()
	p.rescue()
	require.False(t, p.timer.Stop(), "it is not set again")
}

// keeper is a dialect that keeps strings in capitals, and no numbers.
type keeper struct{ dialects.Dialect }

func (keeper) KeepArgument(v any) (kept any, size int, ok bool) {
	text, ok := v.(string)
	return strings.ToUpper(text), len(text), ok
}

func (keeper) KeepSettings(settings []dialects.ContextSetting) bool {
	return settings[0].Name != "timezone"
}

func TestOnlyArgumentsThatTheDialectKeepsArePipelined(t *testing.T) {
	ctx := t.Context()
	followOf := func(d dialects.Dialect, values ...any) (*follow, *Want) {
		w := &Want{Statement: session.Statement{Text: "text"}}
		for i, v := range values {
			w.Args = append(w.Args, driver.NamedValue{Ordinal: i + 1, Value: v})
		}
		return newFollow(ctx, w, d, nil), w
	}
	f, w := followOf(keeper{}, "ab", "cde")
	require.Equal(t, dialects.PipelinedQuery{Text: "text", Args: []driver.NamedValue{{Ordinal: 1, Value: "AB"}, {Ordinal: 2, Value: "CDE"}}}, f.call)
	require.Equal(t, len("text")+5, f.size)
	require.Equal(t, "ab", w.Args[0].Value, "alone the driver gets what the program has given")
	f, _ = followOf(keeper{}, "ab", 1)
	require.Nil(t, f)
	f, _ = followOf(struct{ dialects.Dialect }{}, "ab")
	require.Nil(t, f)
	f, _ = followOf(struct{ dialects.Dialect }{})
	require.NotNil(t, f)

	ctx = ctxsettings.With(t.Context(), map[string]string{"app.tenant": "a"})
	f, _ = followOf(keeper{})
	require.Equal(t, []dialects.ContextSetting{{Name: "app.tenant", Value: "a"}}, f.call.Settings)
	require.Equal(t, len("text"+"app.tenant"+"a"), f.size)
	f, _ = followOf(struct{ dialects.Dialect }{})
	require.Nil(t, f)
	for _, wrong := range []string{"timezone", "no name"} {
		ctx = ctxsettings.With(t.Context(), map[string]string{wrong: "a"})
		f, _ = followOf(keeper{})
		require.Nil(t, f, wrong)
	}
}

// One of both wins: the answer, or the end of the context.
func TestTheFirstDecidesWhatBecomesOfALeader(t *testing.T) {
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	given := session.Answer{Err: sql.ErrNoRows}
	for range 100 { // wait chooses at random
		p := &pipeline{leader: &follow{done: make(chan struct{})}}
		p.leaderGets(given)
		require.True(t, p.leader.wait(ended), "the answer was first")
		require.Equal(t, given, p.leader.answer)
	}
	p := &pipeline{leader: &follow{done: make(chan struct{})}}
	require.False(t, p.leader.wait(ended))
	p.leaderGets(given)
	p.end()
	require.Zero(t, p.leader.answer)
	require.False(t, p.leader.again)
	select {
	case <-p.leader.done:
		t.Error("the answer is nobody's")
	default:
	}
}

// led is a pipeline of n followers on a pool of one connection that no server is behind. One more waits. leave ends the
// context of one, and hold holds the pool's lock until let is called.
func led(t *testing.T, n int) (p *pipeline, acquired []chan error, leave []context.CancelFunc, hold func() (let func())) {
	of, err := pool.New(pool.Config[*connpool.Conn]{
		Create:         func(context.Context) (*connpool.Conn, error) { return new(connpool.Conn), nil },
		Max:            1,
		AcquireTimeout: -1,
	})
	require.NoError(t, err)
	lease, err := of.Acquire(t.Context())
	require.NoError(t, err)
	p = &pipeline{leader: &follow{pace: &textcache.Pace{}, done: make(chan struct{})}}
	for i := range n + 1 {
		ctx, cancel := context.WithCancel(context.Background())
		t.Cleanup(cancel)
		acquired, leave = append(acquired, make(chan error, 1)), append(leave, cancel)
		go func() {
			l, err := of.AcquireAs(ctx, &follow{pace: &textcache.Pace{}})
			acquired[i] <- err
			if err == nil {
				_ = l.Release()
			}
		}()
		require.Eventually(t, func() bool { return of.Stats().Waiting == i+1 }, 30*time.Second, time.Millisecond)
	}
	p.followers = lease.TakeAlong(func(waiting, _ int) int { return waiting - 1 }, func(any) bool { return true })
	p.rescued.Store(int32(n))
	p.timer = time.AfterFunc(time.Hour, func() {})
	t.Cleanup(func() {
		p.timer.Stop()
		_ = lease.Release()
		of.Close()
	})
	hold = func() (let func()) {
		held, goOn, over := make(chan struct{}), make(chan struct{}), make(chan struct{})
		go func() {
			defer close(over)
			lease.TakeAlong(func(int, int) int {
				close(held)
				<-goOn
				return 0
			}, nil)
		}()
		<-held
		return func() { close(goOn); <-over }
	}
	return p, acquired, leave, hold
}

// The statement that would be cancelled is another one's then.
func TestAnAnswerThatComesWhileItIsGivenUp(t *testing.T) {
	for _, comes := range []bool{false, true} {
		p, acquired, leave, hold := led(t, 2)
		cancelled := false
		p.cancel = func() { cancelled = true }
		p.answers.Store(1)
		leave[0]()
		require.ErrorIs(t, <-acquired[0], context.Canceled)
		let := hold()
		over := make(chan struct{})
		go func() { p.rescue(); close(over) }()
		require.Eventually(t, func() bool { return p.late.Load() == 1 }, 30*time.Second, time.Millisecond)
		if comes { // rescue asks the pool whether somebody waits for the present answer
			p.answers.Store(2)
		}
		let()
		<-over
		require.Equal(t, !comes, cancelled)
	}
}

// A follower that has its answer does not run elsewhere, too, and one that does gets no answer here.
func TestARescueAndAnAnswer(t *testing.T) {
	p, acquired, _, _ := led(t, 3)
	p.answers.Store(2)
	p.followerGets(p.followers[0], session.Answer{})
	require.Equal(t, pool.ErrServed, <-acquired[0])
	p.rescue()
	require.EqualValues(t, 2, p.rescued.Load(), "those behind the second follower")
	p.followerGets(p.followers[2], session.Answer{Err: sql.ErrNoRows})
	require.Zero(t, p.followers[2].Who().(*follow).answer, "it is in the queue")
	p.answers.Store(3)
	p.rescue()
	require.EqualValues(t, 2, p.rescued.Load(), "a later rescue sends back no less")
	p.followerGets(p.followers[1], session.Answer{})
	require.Equal(t, pool.ErrServed, <-acquired[1])
}

func TestOnlyALastingReasonEndsTheTrials(t *testing.T) {
	p := pipelines{}
	for range 2 * mostTrials {
		p.state.Store(trying)
		p.tried(dialects.ErrNotPipelined)
		require.EqualValues(t, untried, p.state.Load())
	}
	p.tried(nil)
	require.EqualValues(t, work, p.state.Load())
}

func TestTheShareOfAPipeline(t *testing.T) {
	p := pipelines{engine: &Engine{config: &config.Config{Pipeline: 16}}}
	for _, c := range []struct{ waiting, conns, followers int }{
		{0, 4, 0}, {1, 4, 0}, {2, 4, 1}, {7, 4, 3}, {7, 2, 7}, {7, 1, 15}, {100, 4, 15},
	} {
		require.Equal(t, c.followers, p.share(c.waiting, c.conns), "%+v", c)
	}
	p.way.Store(int64(far))
	p.each.Store(int64(far / 8))
	require.Equal(t, 7, p.share(2, 4), "as many as are answered on the way")
}
