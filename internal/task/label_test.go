package task_test

import (
	"context"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/task"
)

func labelIn(ctx context.Context) string {
	if l := task.PlaceOf(ctx).Label; l != nil {
		return *l
	}
	return ""
}

func TestTheInnermostLabelCountsAndGoesWithTasks(t *testing.T) {
	require.Empty(t, labelIn(t.Context()))
	outer := task.Label(t.Context(), "outer")
	tsk := begin(t, derived(outer))
	inner := task.Label(derived(tsk), "inner")
	scope := task.NewScope(inner)
	t.Cleanup(scope.End)
	for want, contexts := range map[string][]context.Context{
		"outer": {outer, derived(outer), tsk, task.Outside(tsk), begin(t, tsk)},
		"inner": {inner, scope, task.Outside(scope), begin(t, inner)},
		"":      {task.Label(inner, "")},
	} {
		for _, ctx := range contexts {
			require.Equal(t, want, labelIn(ctx))
		}
	}
	require.Equal(t, "outer", tsk.Label())
	require.Same(t, tsk, task.PlaceOf(inner).Task, "a label changes no task")
	require.Equal(t, 1, inner.Value(anyKey{}))
	ctx, end := task.With(inner)
	defer end()
	require.Same(t, inner, ctx)
}

func TestALabelIsBoundedAndValidText(t *testing.T) {
	require.Len(t, labelIn(task.Label(t.Context(), strings.Repeat("x", 1000))), 100)
	require.Equal(t, strings.Repeat("x", 99), labelIn(task.Label(t.Context(), strings.Repeat("x", 99)+"é")))
	require.Equal(t, "a?b", labelIn(task.Label(t.Context(), "a\xffb")))
}

func TestAKeyedTaskHasTheLabelOfItsLifetime(t *testing.T) {
	var keyed task.Keyed
	lifetime, cancel := context.WithCancel(task.Label(t.Context(), "request"))
	defer cancel()
	ctx := request{"a", lifetime}.in(t.Context())
	p, err := placeOn(ctx, &keyed, keyOf)
	require.NoError(t, err)
	require.Equal(t, "request", *p.Label)
	p, err = placeOn(task.Label(ctx, "own"), &keyed, keyOf)
	require.NoError(t, err)
	require.Equal(t, "own", *p.Label)
	require.Equal(t, "request", p.Task.Label())
}
