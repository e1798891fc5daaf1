package dbsettings

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

// toy is a dialect of settings: "set a", "default a", "attach f", "detach f", "set f.a",
// and several of these with a semicolon between them, and "do" between them. It knows
// nothing else.
type toy struct{ dialects.Dialect }

func (toy) Settings(query string) (parts []dialects.Setting, alone, complete bool) {
	complete = true
	for text := range strings.SplitSeq(query, "; ") {
		verb, rest, _ := strings.Cut(text, " ")
		name, _, _ := strings.Cut(rest, "=")
		s := dialects.Setting{Name: name, Text: text}
		if of, _, ok := strings.Cut(name, "."); ok {
			s.Of = of
		}
		switch verb {
		case "set":
		case "default":
			s.Default = true
		case "attach":
			s.Undo = "detach " + name
		case "detach":
			s.Ends, s.Undo = true, "stand in "+name
		case "vacuum":
			s.ForVacuum = true
		case "refused":
			s.Refusal = errors.New("refused")
		case "do":
			continue
		default:
			complete = false
			continue
		}
		parts = append(parts, s)
	}
	return parts, !strings.Contains(query, "; "), complete
}

// conn is a connection that records what it executes.
type conn struct {
	Applied
	executed []string
	args     []driver.NamedValue
	fails    string // the text that fails
	err      error  // nil: it says no
}

func (c *conn) execute(text string, args ...driver.NamedValue) error {
	if text == c.fails {
		return cmp.Or(c.err, errors.New("no"))
	}
	c.executed = append(c.executed, text)
	c.args = append(c.args, args...)
	return nil
}

// broughtUp is what l has c execute.
func broughtUp(t *testing.T, l *List, c *conn) []string {
	t.Helper()
	c.executed = nil
	require.NoError(t, l.BringUp(&c.Applied, c.execute))
	require.True(t, l.Current(&c.Applied))
	return c.executed
}

func newList() *List {
	l := new(List)
	l.Init(toy{})
	return l
}

func record(t *testing.T, l *List, c *conn, queries ...string) {
	t.Helper()
	for _, q := range queries {
		require.True(t, all(l.Record)(&c.Applied, q, nil), q)
	}
}

func TestADialectWithoutSettingsKeepsNone(t *testing.T) {
	t.Parallel()
	var l List
	l.Init(struct{ dialects.Dialect }{})
	var c conn
	require.False(t, all(l.Record)(&c.Applied, "set a=1", nil))
	require.True(t, l.Current(&c.Applied))
}

func TestAConnectionExecutesWhatItLacksInTheOrderOfTheLastChange(t *testing.T) {
	t.Parallel()
	l, first, second := newList(), &conn{}, &conn{}
	record(t, l, first, "set a=1", "set b=1", "set c=1", "set a=2")
	require.True(t, l.Current(&first.Applied))
	require.False(t, l.Current(&second.Applied))
	require.Equal(t, []string{"set b=1", "set c=1", "set a=2"}, broughtUp(t, l, second))
	record(t, l, first, "set b=2")
	require.Equal(t, []string{"set b=2"}, broughtUp(t, l, second))
	require.Empty(t, broughtUp(t, l, first))
}

func TestAConnectionThatLackedSomethingExecutesItsOwnSettingAgain(t *testing.T) {
	t.Parallel()
	l, first, second := newList(), &conn{}, &conn{}
	record(t, l, first, "set a=1")
	record(t, l, second, "set a=2")
	require.False(t, l.Current(&second.Applied))
	require.Equal(t, []string{"set a=2"}, broughtUp(t, l, second))
	require.Equal(t, []string{"set a=2"}, broughtUp(t, l, first))
}

func TestWhatEndsIsUndoneOnTheOthersWithAllThatBelongsToIt(t *testing.T) {
	t.Parallel()
	l, first, second := newList(), &conn{}, &conn{}
	record(t, l, first, "attach f", "set f.a=1", "set b=1")
	require.Equal(t, []string{"attach f", "set f.a=1", "set b=1"}, broughtUp(t, l, second))
	record(t, l, first, "detach f")
	require.Equal(t, []string{"detach f"}, broughtUp(t, l, second))
	require.Equal(t, []string{"set b=1"}, broughtUp(t, l, &conn{}))
}

func TestWhatBelongsToASettingFollowsItWhenItIsMadeAnew(t *testing.T) {
	t.Parallel()
	l, first, second := newList(), &conn{}, &conn{}
	record(t, l, first, "attach f=1", "set f.a=1")
	require.Equal(t, []string{"attach f=1", "set f.a=1"}, broughtUp(t, l, second))
	record(t, l, first, "attach f=2")
	require.Equal(t, []string{"set f.a=1"}, broughtUp(t, l, first))
	require.Equal(t, []string{"detach f", "attach f=2", "set f.a=1"}, broughtUp(t, l, second))
}

func TestWhatTheOthersHaveOrCannotHaveIsNotKept(t *testing.T) {
	t.Parallel()
	l, first, second := newList(), &conn{}, &conn{}
	require.False(t, all(l.Record)(&first.Applied, "detach f", nil), "it was never attached here")
	require.False(t, all(l.Record)(&first.Applied, "default a", nil), "every connection has it")
	record(t, l, first, "attach f")
	broughtUp(t, l, second)
	record(t, l, first, "detach f")
	require.False(t, all(l.Record)(&second.Applied, "set f.a=1", nil), "another connection has ended f")
	record(t, l, first, "set a=1", "default a")
	require.Equal(t, []string{"default a"}, broughtUp(t, l, &conn{}))
}

func TestOnlyWhatLeavesNothingElseIsKept(t *testing.T) {
	t.Parallel()
	l, c := newList(), &conn{}
	require.False(t, all(l.Record)(&c.Applied, "set a=1; insert", nil))
	require.False(t, all(l.Record)(&c.Applied, "set a=?; set b=1", []driver.NamedValue{{Ordinal: 1}}), "whose argument is it?")
	require.False(t, all(l.Record)(&c.Applied, "set a=?; do", []driver.NamedValue{{Ordinal: 1}}), "whose argument is it?")
	require.False(t, all(l.Record)(&c.Applied, "set a=1; detach f", nil), "the second part is its own")
	require.Equal(t, []string{"set a=1"}, broughtUp(t, l, &conn{}))
	require.True(t, all(l.Record)(&c.Applied, "do; set c=1; do", nil))
	require.Equal(t, []string{"set a=1", "set c=1"}, broughtUp(t, l, &conn{}))
}

func TestAScriptThatLeavesMoreIsNotComplete(t *testing.T) {
	t.Parallel()
	l, c := newList(), &conn{}
	known, all := l.Record(&c.Applied, "set a=1; insert", nil, nil)
	require.False(t, known)
	require.False(t, all)
	require.Equal(t, []string{"set a=1"}, broughtUp(t, l, &conn{}))
}

func TestTheRefusalOfAnyPartIsThatOfTheText(t *testing.T) {
	t.Parallel()
	l := newList()
	require.NoError(t, l.Refusal("set a=1"))
	require.EqualError(t, l.Refusal("set a=1; refused b"), "refused")
}

func TestASettingForVacuumIsForEachVacuumAndNoConnection(t *testing.T) {
	t.Parallel()
	l, c := newList(), &conn{}
	require.Empty(t, l.ForVacuum())
	record(t, l, c, "vacuum a=1", "vacuum a=2")
	require.Equal(t, "vacuum a=2", l.ForVacuum())
	require.Equal(t, "vacuum a=2", l.ForVacuum())
	require.Empty(t, broughtUp(t, l, &conn{}))
}

func TestArgumentsAreCopied(t *testing.T) {
	t.Parallel()
	l, first, second := newList(), &conn{}, &conn{}
	args := []driver.NamedValue{{Ordinal: 1, Value: []byte("abc")}}
	require.True(t, all(l.Record)(&first.Applied, "set a=?", args))
	args[0].Value.([]byte)[0] = 'x'
	broughtUp(t, l, second)
	require.Equal(t, []driver.NamedValue{{Ordinal: 1, Value: []byte("abc")}}, second.args)
}

func TestAfterAnErrorTheRestIsExecutedNextTime(t *testing.T) {
	t.Parallel()
	l, first, second := newList(), &conn{}, &conn{}
	record(t, l, first, "attach f", "set a=1", "set b=1")
	second.fails = "set a=1"
	require.EqualError(t, l.BringUp(&second.Applied, second.execute), "a: no")
	require.False(t, l.Current(&second.Applied))
	second.fails = ""
	require.Equal(t, []string{"set a=1", "set b=1"}, broughtUp(t, l, second))
	record(t, l, first, "detach f")
	second.fails = "detach f"
	require.EqualError(t, l.BringUp(&second.Applied, second.execute), "taking back f: no")
	second.fails = ""
	require.Equal(t, []string{"detach f"}, broughtUp(t, l, second))
}

func TestAConnectionDoesWithoutWhatCannotBeAttached(t *testing.T) {
	t.Parallel()
	l, first, second, third := newList(), &conn{}, &conn{fails: "attach f"}, &conn{}
	record(t, l, first, "attach f", "set f.a=1", "set b=1")
	require.Equal(t, []string{"set b=1"}, broughtUp(t, l, second))
	require.True(t, second.Lacks())
	require.Equal(t, []string{"set b=1"}, broughtUp(t, l, third), "it is not tried while it fails elsewhere")
	require.EqualError(t, second.Complete(second.execute), "f: no")

	second.executed, second.fails = nil, "set f.a=1"
	require.EqualError(t, second.Complete(second.execute), "f.a: no")
	require.Equal(t, []string{"attach f"}, second.executed)
	require.True(t, second.Lacks())
	second.executed, second.fails = nil, ""
	require.NoError(t, second.Complete(second.execute))
	require.Equal(t, []string{"set f.a=1"}, second.executed)
	require.False(t, second.Lacks())
	require.Equal(t, []string{"attach f", "set f.a=1", "set b=1"}, broughtUp(t, l, &conn{}), "it works again")
	record(t, l, first, "detach f")
	require.Equal(t, []string{"detach f"}, broughtUp(t, l, second))
	require.Empty(t, broughtUp(t, l, third))
	require.False(t, third.Lacks())
}

func TestACancelledAttachSaysNothingOfTheFile(t *testing.T) {
	t.Parallel()
	l, first, second := newList(), &conn{}, &conn{fails: "attach f", err: context.Canceled}
	record(t, l, first, "attach f")
	require.Empty(t, broughtUp(t, l, second))
	require.True(t, second.Lacks())
	require.Equal(t, []string{"attach f"}, broughtUp(t, l, &conn{}))
}

func TestAConnectionEndsWhatItLacks(t *testing.T) {
	t.Parallel()
	l, first, second := newList(), &conn{}, &conn{fails: "attach f"}
	record(t, l, first, "attach f", "set f.a=1", "attach g")
	require.Equal(t, []string{"attach g"}, broughtUp(t, l, second))
	require.False(t, l.StandIn(&second.Applied, "detach g; set f.a=2", second.execute))
	second.executed = nil
	require.True(t, l.StandIn(&second.Applied, "detach g; detach f", second.execute))
	require.Equal(t, []string{"stand in f"}, second.executed)
	record(t, l, second, "detach f")
	require.False(t, second.Lacks())
	require.True(t, l.Current(&second.Applied))
	require.Equal(t, []string{"detach f"}, broughtUp(t, l, first))
	record(t, l, second, "attach f")
	require.Equal(t, []string{"attach f"}, broughtUp(t, l, first))
}

func TestTheTextThatIsRepeatedIsTheDialects(t *testing.T) {
	t.Parallel()
	l, first, second := newList(), &conn{}, &conn{}
	args := []driver.NamedValue{{Ordinal: 1, Value: "x"}}
	l.Record(&first.Applied, "attach f=?", args, func(s dialects.Setting, got []driver.NamedValue) string {
		require.Equal(t, args, got)
		return "attach f=/x or " + s.Text
	})
	require.Equal(t, []string{"attach f=/x or attach f=?"}, broughtUp(t, l, second))
	require.Equal(t, args, second.args)
}

// all is the second answer of Record.
func all(record func(*Applied, string, []driver.NamedValue, func(dialects.Setting, []driver.NamedValue) string) (bool, bool)) func(*Applied, string, []driver.NamedValue) bool {
	return func(a *Applied, query string, args []driver.NamedValue) bool {
		_, all := record(a, query, args, func(s dialects.Setting, _ []driver.NamedValue) string { return s.Text })
		return all
	}
}
