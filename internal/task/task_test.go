package task_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/task"
)

// member records what its task tells it.
type member struct {
	t      *task.Task
	calls  []string
	wrapUp func()
}

func (m *member) TaskEnded() { m.record("TaskEnded") }

func (m *member) WrapUp() {
	m.record("WrapUp")
	if m.wrapUp != nil {
		m.wrapUp()
	}
}

func (m *member) record(call string) {
	m.calls = append(m.calls, fmt.Sprintf("%s, context: %v", call, m.t.Err()))
}

func (m *member) requireEnded(t *testing.T, ended error) {
	t.Helper()
	require.Equal(t, []string{"TaskEnded, context: <nil>", fmt.Sprintf("WrapUp, context: %v", ended)}, m.calls)
}

// use makes tsk use what key stands for.
func use(t *testing.T, tsk *task.Task, key any, limit time.Duration) *member {
	t.Helper()
	m, err := tsk.Member(key, limit, func() task.Member { return &member{t: tsk} })
	require.NoError(t, err)
	return m.(*member)
}

func requireRefused(t *testing.T, tsk *task.Task, key any) error {
	t.Helper()
	m, err := tsk.Member(key, 0, func() task.Member { panic("the task has ended") })
	require.Nil(t, m)
	require.ErrorIs(t, err, task.ErrEnded)
	require.ErrorIs(t, err, tsk.Err())
	require.ErrorIs(t, err, context.Cause(tsk))
	return err
}

func TestATaskHasOneMemberForEachKey(t *testing.T) {
	tsk := task.New(t.Context())
	defer tsk.End()
	require.Nil(t, tsk.MemberOn("a"))
	require.Equal(t, "a task", tsk.Name(), "it has used nothing")
	found := map[string]*member{}
	for range 2 {
		for _, key := range []string{"a", "b", "c"} {
			m := use(t, tsk, key, 0)
			if before := found[key]; before != nil {
				require.Same(t, before, m)
			}
			found[key] = m
			require.Same(t, m, tsk.MemberOn(key))
		}
	}
	require.NotSame(t, found["a"], found["b"])
	require.Nil(t, tsk.MemberOn("d"))
	require.Regexp(t, `^task \d+$`, tsk.Name())
}

func TestEndTellsEveryMemberBeforeItWrapsUpTheFirst(t *testing.T) {
	tsk := task.New(t.Context())
	a, b := use(t, tsk, "a", 0), use(t, tsk, "b", 0)
	a.wrapUp = func() { require.Len(t, b.calls, 1) }
	tsk.End()
	a.requireEnded(t, context.Canceled)
	b.requireEnded(t, context.Canceled)
	require.Equal(t, task.ErrEnded, context.Cause(tsk))
	tsk.End()
	require.Len(t, a.calls, 2)
	require.EqualError(t, requireRefused(t, tsk, "a"), task.ErrEnded.Error()+" (context canceled)")
	_ = requireRefused(t, tsk, "new")
}

func TestATaskThatHasUsedNothingEnds(t *testing.T) {
	tsk := task.New(t.Context())
	tsk.End()
	tsk.End()
	_ = requireRefused(t, tsk, "a")
}

func TestASecondEndWaitsForTheFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tsk := task.New(t.Context())
		use(t, tsk, "a", 0).wrapUp = func() { time.Sleep(time.Second) }
		began := time.Now()
		go tsk.End()
		synctest.Wait()
		tsk.End()
		require.Equal(t, time.Second, time.Since(began))
	})
}

func TestATaskEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		why := errors.New("why")
		ctx, cancel := context.WithCancelCause(t.Context())
		tsk := task.New(ctx)
		m := use(t, tsk, "a", 0)
		cancel(why)
		synctest.Wait()
		require.Len(t, m.calls, 2)
		require.ErrorIs(t, requireRefused(t, tsk, "a"), why)
		tsk.End()
		require.Len(t, m.calls, 2)
	})
}

func TestTheShortestLimitOfAllMembersEndsTheTask(t *testing.T) {
	const between = 10 * time.Millisecond // from one member to the next
	for name, tc := range map[string]struct {
		limits       []time.Duration
		limit, after time.Duration
	}{
		"one":                   {[]time.Duration{time.Second}, time.Second, time.Second},
		"a longer one follows":  {[]time.Duration{time.Second, time.Minute}, time.Second, time.Second},
		"a shorter one follows": {[]time.Duration{time.Minute, time.Second}, time.Second, time.Second},
		"the last has none":     {[]time.Duration{time.Minute, time.Second, 0}, time.Second, time.Second},
		"the first has none":    {[]time.Duration{0, time.Second}, time.Second, time.Second},
		"one that has passed":   {[]time.Duration{0, time.Millisecond}, time.Millisecond, between},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tsk := task.New(t.Context())
				began := time.Now()
				for i, limit := range tc.limits {
					if i > 0 {
						time.Sleep(between)
					}
					use(t, tsk, i, limit)
				}
				<-tsk.Done()
				require.Equal(t, tc.after, time.Since(began))
				require.ErrorContains(t, requireRefused(t, tsk, 0), "pool_task_timeout, which is "+tc.limit.String())
				tsk.End() // waits for the end that has begun
			})
		})
	}
}

func TestEndStopsTheLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tsk := task.New(t.Context())
		m := use(t, tsk, "a", time.Second)
		tsk.End()
		time.Sleep(time.Minute)
		m.requireEnded(t, context.Canceled)
		require.Equal(t, task.ErrEnded, context.Cause(tsk))
	})
}

func TestWithEndAddsTheEndOnce(t *testing.T) {
	tsk := task.New(t.Context())
	cut := errors.New("connection reset")
	require.EqualError(t, tsk.WithEnd(cut), "connection reset: "+task.ErrEnded.Error()+" (context canceled)", "the end has begun")
	tsk.End()
	err := tsk.WithEnd(cut)
	require.ErrorIs(t, err, cut)
	require.ErrorIs(t, err, task.ErrEnded)
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, err, tsk.WithEnd(err))
}

func TestATaskPrintsWithoutItsContext(t *testing.T) {
	tsk := task.New(context.WithValue(t.Context(), anyKey{}, "secret"))
	defer tsk.End()
	require.Equal(t, "pooldriver.Task", fmt.Sprint(tsk))
}

func TestCosts(t *testing.T) {
	ctx := t.Context()
	require.LessOrEqual(t, testing.AllocsPerRun(500, func() {
		_, end := task.With(ctx)
		end()
	}), 4.0, "two of them are the context's")
	tsk := task.New(ctx)
	defer tsk.End()
	key := new(int)
	get := func() (task.Member, error) {
		return tsk.Member(key, 0, func() task.Member { return &member{t: tsk} })
	}
	want, err := get()
	require.NoError(t, err)
	use(t, tsk, "another", 0)
	require.Zero(t, testing.AllocsPerRun(500, func() {
		if m, err := get(); m != want || err != nil {
			t.Fatal(m, err)
		}
	}))
	require.Zero(t, testing.AllocsPerRun(500, func() {
		if task.PlaceOf(tsk).Task != tsk {
			t.Fatal("no task")
		}
	}))
}
