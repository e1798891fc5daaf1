package task_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/task"
)

func TestAScopeBeginsATaskOnlyWhereThereIsNone(t *testing.T) {
	scope := task.NewScope(t.Context())
	own := task.PlaceOf(scope).Task
	require.NotNil(t, own)
	require.False(t, own.Implicit())
	scope.Leave()
	require.NoError(t, own.Err(), "the transaction has to end first")
	scope.End()
	require.Error(t, own.Err())

	tsk := begin(t, t.Context())
	scope = task.NewScope(derived(tsk))
	require.Same(t, tsk, task.PlaceOf(scope).Task)
	scope.End()
	require.NoError(t, tsk.Err())
	require.True(t, scope.Left())

	implicit := implicitTask(t, t.Context())
	scope = task.NewScope(derived(implicit))
	require.NotSame(t, implicit, task.PlaceOf(scope).Task)
	require.False(t, task.PlaceOf(scope).Task.Implicit())
	scope.Leave()
	scope.End()
	require.NoError(t, implicit.Err())
}

func TestAScopeIsLeftWithTheOneAroundIt(t *testing.T) {
	var none *task.Scope
	require.False(t, none.Left())
	outer := task.NewScope(t.Context())
	defer outer.End()
	inner := task.NewScope(derived(outer))
	require.Same(t, outer, inner.Around())
	require.Nil(t, outer.Around())
	first := task.NewScope(outer)
	first.End()
	require.True(t, first.Left())
	require.False(t, outer.Left())
	require.False(t, inner.Left(), "it is not inside of first")
	outer.Leave()
	require.True(t, inner.Left())
}

func TestAScopeInANewTaskIsNotInsideOfTheOneAroundIt(t *testing.T) {
	outer := task.NewScope(t.Context())
	defer outer.End()
	inner := task.NewScope(begin(t, outer))
	require.Nil(t, inner.Around())
}

func TestTheFirstTransactionOfAScopeIsItsOwn(t *testing.T) {
	type tx struct{ n int }
	var none *task.Scope
	none.Begun(&tx{})
	scope := task.NewScope(t.Context())
	defer scope.End()
	require.Nil(t, scope.Transaction())
	first, second := &tx{1}, &tx{2}
	require.Zero(t, testing.AllocsPerRun(1, func() {
		scope.Begun(first)
		scope.Begun(second)
	}))
	require.Same(t, first, scope.Transaction())
}
