package ctxsettings

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

func TestInnerSettingsAreMergedIntoOuterOnes(t *testing.T) {
	values := map[string]string{"app.tenant": "1", "app.user": "u"}
	outer := With(t.Context(), values)
	values["app.tenant"] = "changed later"
	inner := With(outer, map[string]string{"app.tenant": "2"})
	for ctx, want := range map[context.Context][]dialects.ContextSetting{
		t.Context(): nil,
		outer:       {{Name: "app.tenant", Value: "1"}, {Name: "app.user", Value: "u"}},
		inner:       {{Name: "app.tenant", Value: "2"}, {Name: "app.user", Value: "u"}},
	} {
		list, err := Of(ctx).List()
		require.NoError(t, err)
		require.Equal(t, want, list)
	}
}

func TestEmptySettingsAreNone(t *testing.T) {
	require.Equal(t, t.Context(), With(t.Context(), nil))
	require.Equal(t, t.Context(), With(t.Context(), map[string]string{}))
}

func TestNamesAreThoseOfEveryDatabase(t *testing.T) {
	refusal := func(name, value string) error {
		_, err := Of(With(t.Context(), map[string]string{name: value})).List()
		return err
	}
	for _, name := range []string{"app.tenant", "work_mem", "_a.b_1.c", strings.Repeat("x", maxName)} {
		require.NoError(t, refusal(name, "any 'value' \\ \" \n"), name)
	}
	for _, name := range []string{
		"", ".", "app.", ".tenant", "app..tenant", "App.tenant", "app tenant", "1app.x", "app.1", "app-x.y", "app.tenant; DROP", "ä.b", "a.b\n", "`a`.b", `"a".b`,
		strings.Repeat("x", maxName+1),
	} {
		require.ErrorContains(t, refusal(name, "secret"), "is not the name of a setting", name)
		require.NotContains(t, refusal(name, "secret").Error(), "secret")
	}
	for _, value := range []string{"sec\x00ret", "secret\xff"} {
		require.EqualError(t, refusal("app.tenant", value), "the value of app.tenant is not UTF-8, or has a zero byte: no database takes it")
	}
	inner := With(With(t.Context(), map[string]string{"Bad": "1"}), map[string]string{"app.x": "1"})
	_, err := Of(inner).List()
	require.Error(t, err, "what is around counts, too")
}

func TestAContextPrintsNoValue(t *testing.T) {
	ctx := With(t.Context(), map[string]string{"app.tenant": "secret"})
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		require.NotContains(t, fmt.Sprintf(format, ctx), "secret")
		require.NotContains(t, fmt.Sprintf(format, Of(ctx)), "secret")
	}
}
