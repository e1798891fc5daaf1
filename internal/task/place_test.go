package task_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/task"
)

type anyKey struct{}

func derived(ctx context.Context) context.Context { return context.WithValue(ctx, anyKey{}, 1) }

// begin begins a task that ends with the test.
func begin(t *testing.T, ctx context.Context) *task.Task {
	t.Helper()
	tsk := task.New(ctx)
	t.Cleanup(tsk.End)
	return tsk
}

func implicitTask(t *testing.T, ctx context.Context) *task.Task {
	t.Helper()
	ctx, end := task.WithImplicit(ctx)
	t.Cleanup(end)
	return ctx.(*task.Task)
}

func TestTheInnermostContextSaysWhatTheTaskIs(t *testing.T) {
	outer := begin(t, t.Context())
	inner := begin(t, derived(outer))
	scope := task.NewScope(inner)
	t.Cleanup(scope.End)
	for name, tc := range map[string]struct {
		ctx        context.Context
		task, from *task.Task
		scope      *task.Scope
	}{
		"none":                     {ctx: t.Context()},
		"a task":                   {ctx: outer, task: outer},
		"a task in a task":         {ctx: inner, task: inner, from: outer},
		"a scope":                  {ctx: scope, task: inner, from: outer, scope: scope},
		"outside of nothing":       {ctx: task.Outside(t.Context())},
		"outside of a task":        {ctx: task.Outside(outer), from: outer},
		"outside of a task's task": {ctx: task.Outside(inner), from: inner},
		"outside of a scope":       {ctx: task.Outside(scope), from: inner},
		"outside twice":            {ctx: task.Outside(derived(task.Outside(outer))), from: outer},
	} {
		t.Run(name, func(t *testing.T) {
			for _, ctx := range []context.Context{tc.ctx, derived(tc.ctx), context.WithoutCancel(tc.ctx)} {
				p := task.PlaceOf(ctx)
				require.Equal(t, []any{tc.task, tc.scope, tc.from}, []any{p.Task, p.Scope, p.From})
			}
		})
	}
	require.Nil(t, outer.From())
	require.Same(t, outer, inner.From())
	require.Same(t, outer, begin(t, task.Outside(outer)).From(), "a new task outside of a task")
}

func TestValuesAndTheEndOfAContextPassThrough(t *testing.T) {
	parent, cancel := context.WithCancel(derived(t.Context()))
	tsk := begin(t, parent)
	scope := task.NewScope(tsk)
	t.Cleanup(scope.End)
	for _, ctx := range []context.Context{tsk, scope, task.Outside(tsk)} {
		require.Equal(t, 1, ctx.Value(anyKey{}))
		require.NoError(t, ctx.Err())
	}
	cancel()
	for _, ctx := range []context.Context{tsk, scope, task.Outside(tsk)} {
		require.ErrorIs(t, ctx.Err(), context.Canceled)
	}
}

func TestWithBeginsATaskOnlyWhereThereIsNone(t *testing.T) {
	explicit, implicit := begin(t, t.Context()), implicitTask(t, t.Context())
	require.False(t, explicit.Implicit())
	require.True(t, implicit.Implicit())
	scope := task.NewScope(implicit)
	t.Cleanup(scope.End)
	for name, tc := range map[string]struct {
		ctx                    context.Context
		keeps, implicitlyKeeps bool
	}{
		"none":                     {t.Context(), false, false},
		"an explicit task":         {derived(explicit), true, true},
		"an implicit task":         {derived(implicit), false, true},
		"a scope in an implicit":   {derived(scope), true, true},
		"outside of explicit task": {task.Outside(explicit), false, false},
	} {
		t.Run(name, func(t *testing.T) {
			for _, with := range []struct {
				function func(context.Context) (context.Context, func())
				keeps    bool
				implicit bool
			}{{task.With, tc.keeps, false}, {task.WithImplicit, tc.implicitlyKeeps, true}} {
				ctx, end := with.function(tc.ctx)
				if with.keeps {
					require.Equal(t, tc.ctx, ctx)
					end()
					require.NoError(t, ctx.Err(), "the task is another call's")
					continue
				}
				tsk := ctx.(*task.Task)
				require.Equal(t, with.implicit, tsk.Implicit())
				require.Same(t, tsk, task.PlaceOf(ctx).Task)
				end()
				require.Equal(t, task.ErrEnded, context.Cause(ctx))
				require.NoError(t, tc.ctx.Err())
			}
		})
	}
}
