package clones

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestANameSaysWhoseItIs(t *testing.T) {
	t.Parallel()
	n := newNames("0123456789", "postgres database", "app", "shop")
	clone := n.next()
	require.True(t, n.isClone(clone))
	require.Equal(t, n.owner, n.makerOf(clone))
	for _, name := range []string{n.template, n.unfinished(), clone} {
		require.Equal(t, n.template, n.templateOf(name))
		require.True(t, strings.HasPrefix(name, n.realm))
		require.LessOrEqual(t, len(name), 63, "PostgreSQL's limit")
		require.Regexp(t, "^[a-z0-9_]+$", name, "it needs no quotes")
	}
	require.Empty(t, n.makerOf(n.template))
	require.Empty(t, n.makerOf(n.unfinished()))
	require.Empty(t, n.makerOf(n.template+"_of_somebody_else"))
	require.NotEqual(t, n.realm, newNames("0123456789", "postgres database", "app", "other").realm)
	require.NotEqual(t, clone, n.next())
}

func TestANoteIsReadAsItWasWritten(t *testing.T) {
	t.Parallel()
	until := time.Unix(1_800_000_000, 0)
	for _, n := range []note{
		{state: isTemplate, until: until},
		{state: inStock, until: until},
		{state: isUsed, owner: "51c09f3a", test: "TestOrder/it's_sold"},
		{state: isKept, test: "TestOrder"},
	} {
		require.Equal(t, n, readNote(n.String()))
		require.Equal(t, n.state == isTemplate || n.state == inStock, n.expired(until.Add(time.Second)))
		require.False(t, n.expired(until))
	}
	for _, comment := range []string{"", "somebody's own words", "sandbox"} {
		require.False(t, readNote(comment).expired(time.Now()), comment)
	}
}
