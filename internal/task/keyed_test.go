package task_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/task"
)

// request is what the program of these tests has in its contexts.
type request struct {
	key      any
	lifetime context.Context
}

type requestKey struct{}

// placeOn is Keyed.Find with a result.
func placeOn(ctx context.Context, k *task.Keyed, keyOf task.KeyFunc) (p task.Place, err error) {
	err = k.Find(ctx, keyOf, &p)
	return p, err
}

func (r request) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, requestKey{}, r)
}

func keyOf(ctx context.Context) (key any, lifetime context.Context) {
	r, _ := ctx.Value(requestKey{}).(request)
	return r.key, r.lifetime
}

func taskOf(t *testing.T, keyed *task.Keyed, ctx context.Context) *task.Task {
	t.Helper()
	p, err := placeOn(ctx, keyed, keyOf)
	require.NoError(t, err)
	return p.Task
}

func TestContextsWithTheSameKeyBelongToOneTask(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keyed task.Keyed
		lifetime, cancel := context.WithCancel(t.Context())
		ctx := request{"a", lifetime}.in(t.Context())
		a := taskOf(t, &keyed, ctx)
		require.True(t, a.Implicit())
		require.Same(t, a, taskOf(t, &keyed, request{"a", t.Context()}.in(t.Context())), "the first lifetime counts")
		require.NotSame(t, a, taskOf(t, &keyed, request{"b", lifetime}.in(t.Context())))
		require.Nil(t, taskOf(t, &keyed, t.Context()))
		p, err := placeOn(ctx, &keyed, nil)
		require.NoError(t, err)
		require.Zero(t, p, "no function")
		cancel()
		require.Error(t, a.Err())
		require.Same(t, a, taskOf(t, new(task.Keyed), a), "the context of a task says so itself")
	})
}

func TestWhereAContextSaysWhatItsTaskIsTheKeyOnlySaysWhatIsAround(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var keyed task.Keyed
		ctx := request{"a", t.Context()}.in(t.Context())
		around := taskOf(t, &keyed, ctx)
		explicit := begin(t, ctx)
		for _, tc := range []struct {
			ctx        context.Context
			task, from *task.Task
		}{
			{explicit, explicit, around},
			{task.Outside(ctx), nil, around},
			{task.Outside(explicit), nil, explicit},
		} {
			p, err := placeOn(tc.ctx, &keyed, keyOf)
			require.NoError(t, err)
			require.Equal(t, []any{tc.task, tc.from}, []any{p.Task, p.From})
		}
	})
}

// A key whose task has ended by its limit begins no other task until the lifetime ends:
// the program counts on the session. A lifetime without an end leaves no other choice.
func TestAKeyBeginsAnotherTaskWhenItsLifetimeHasEnded(t *testing.T) {
	for name, tc := range map[string]struct {
		lifetime func(t *testing.T) (context.Context, func())
		same     bool // the key has the same task after that has ended
	}{
		"a request":   {func(t *testing.T) (context.Context, func()) { return context.WithCancel(t.Context()) }, true},
		"without end": {func(*testing.T) (context.Context, func()) { return context.Background(), func() {} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var keyed task.Keyed
				lifetime, cancel := tc.lifetime(t)
				ctx := request{"a", lifetime}.in(t.Context())
				a := taskOf(t, &keyed, ctx)
				use(t, a, "db", time.Second)
				time.Sleep(2 * time.Second)
				require.Error(t, a.Err())
				b := taskOf(t, &keyed, ctx)
				require.Equal(t, tc.same, a == b)
				if !tc.same {
					b.End()
				}
				cancel()
				if tc.same {
					require.Error(t, taskOf(t, &keyed, ctx).Err(), "a lifetime that has ended begins nothing")
				}
				synctest.Wait()
				again := taskOf(t, &keyed, request{"a", t.Context()}.in(t.Context()))
				require.NotSame(t, a, again)
				require.NoError(t, again.Err())
			})
		})
	}
}

func TestAKeyHasToBeComparableAndToHaveALifetime(t *testing.T) {
	for _, r := range []request{{"a", nil}, {[]int{1}, t.Context()}} {
		var keyed task.Keyed
		p, err := placeOn(r.in(t.Context()), &keyed, keyOf)
		require.ErrorContains(t, err, "pooldriver: Config.TaskKey has to return a comparable key and a lifetime; it gave a ")
		require.Nil(t, p.Task)
	}
}
