package floor_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/floor"
	"github.com/pooldriver/pooldriver/internal/task"
)

// numbers are positions that are numbers, and of one history.
type numbers struct{}

func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return n
}

func (numbers) Reached(position, replayed string) bool {
	return number(position) >= 0 && number(replayed) >= number(position)
}
func (numbers) SameDatabase(a, b string) bool { return numbers{}.Valid(a) && numbers{}.Valid(b) }
func (numbers) Valid(text string) bool        { return number(text) >= 0 }

func of(ctx context.Context) *floor.Floor { return floor.Of(ctx, nil, "db", numbers{}) }

// raise has nothing lost while the primary is asked.
func raise(f *floor.Floor, to string) { f.Raise(f.Mark(), dialects.Log{Position: to}) }

// lose has a session lost that owes f a position.
func lose(f *floor.Floor) {
	var d floor.Debts
	d.Owe(f)
	d.Drop()
}

func now(f *floor.Floor) (position string, primaryOnly bool) {
	n := f.Now()
	return n.Position, n.PrimaryOnly
}

func TestAFloorRises(t *testing.T) {
	t.Parallel()
	require.Nil(t, of(t.Context()))
	f := of(floor.With(t.Context()))
	position, primaryOnly := now(f)
	require.Empty(t, position)
	require.False(t, primaryOnly)
	raise(f, "5")
	raise(f, "3")
	position, _ = now(f)
	require.Equal(t, "5", position)
	lose(f)
	_, primaryOnly = now(f)
	require.True(t, primaryOnly)
	raise(f, "6")
	position, primaryOnly = now(f)
	require.Equal(t, "6", position)
	require.False(t, primaryOnly)
}

func TestTasksInTasksShareTheirFloorAndTwoDatabasesDoNot(t *testing.T) {
	t.Parallel()
	outer := task.New(t.Context())
	defer outer.End()
	inner := task.New(outer)
	defer inner.End()
	require.Same(t, of(outer), of(inner))
	require.Same(t, of(outer), of(task.Outside(inner)))
	require.NotSame(t, of(outer), floor.Of(outer, nil, "another db", numbers{}))
	require.Equal(t, context.Context(outer), floor.With(outer))
	other := task.New(t.Context())
	defer other.End()
	require.NotSame(t, of(outer), of(other))
}

func TestATokenCarriesAFloor(t *testing.T) {
	t.Parallel()
	ctx := floor.With(t.Context())
	require.Empty(t, floor.Token(ctx))
	raise(of(ctx), "7")
	next := floor.WithToken(t.Context(), floor.Token(ctx))
	require.Equal(t, floor.Token(ctx), floor.Token(next), "before its first use")
	position, primaryOnly := now(of(next))
	require.Equal(t, "7", position)
	require.False(t, primaryOnly)
	raise(of(next), "9")
	require.NotEqual(t, floor.Token(ctx), floor.Token(next))
	position, _ = now(of(floor.WithToken(t.Context(), floor.Token(next))))
	require.Equal(t, "9", position, "the old position is overtaken")
	lose(of(next))
	_, primaryOnly = now(of(floor.WithToken(t.Context(), floor.Token(next))))
	require.True(t, primaryOnly)
	require.Empty(t, floor.Token(floor.WithToken(t.Context(), "")))
}

func TestATokenAddsToAFloorThatIsInUse(t *testing.T) {
	t.Parallel()
	ctx := floor.With(t.Context())
	raise(of(ctx), "3")
	later := floor.With(t.Context())
	raise(of(later), "8")
	require.Equal(t, ctx, floor.WithToken(ctx, floor.Token(later)))
	position, _ := now(of(ctx))
	require.Equal(t, "8", position)
}

// histories are positions of one database that can be compared only in the same history: history/number.
type histories struct{}

func (histories) Reached(position, replayed string) bool {
	a, m, _ := strings.Cut(position, "/")
	b, n, ok := strings.Cut(replayed, "/")
	return ok && a == b && number(n) >= number(m)
}
func (histories) SameDatabase(a, b string) bool { return histories{}.Valid(a) && histories{}.Valid(b) }
func (histories) Valid(text string) bool        { return strings.Contains(text, "/") }

func TestAnOldHistoryEndsWithTheNextPositionOfThePrimary(t *testing.T) {
	t.Parallel()
	in := func(ctx context.Context) *floor.Floor { return floor.Of(ctx, nil, "db", histories{}) }
	before := floor.With(t.Context())
	raise(in(before), "1/90")

	ctx := floor.WithToken(t.Context(), floor.Token(before))
	raise(in(ctx), "2/10") // after a failover
	next := floor.WithToken(t.Context(), floor.Token(ctx))
	position, primaryOnly := now(in(next))
	require.Equal(t, "2/10", position)
	require.False(t, primaryOnly, "the token has no old position")

	floor.WithToken(next, floor.Token(before))
	_, primaryOnly = now(in(next))
	require.True(t, primaryOnly)
	_, primaryOnly = now(in(floor.WithToken(t.Context(), floor.Token(next))))
	require.True(t, primaryOnly, "until the primary was asked")
	raise(in(next), "2/11")
	_, primaryOnly = now(in(floor.WithToken(t.Context(), floor.Token(next))))
	require.False(t, primaryOnly)
}

func TestAPositionDoesNotHaveAWriteThatWasLostWhileItWasAskedFor(t *testing.T) {
	t.Parallel()
	f := of(floor.With(t.Context()))
	mark := f.Mark()
	lose(f)
	f.Raise(mark, dialects.Log{Position: "5"})
	_, primaryOnly := now(f)
	require.True(t, primaryOnly)
	raise(f, "6")
	_, primaryOnly = now(f)
	require.False(t, primaryOnly)
}

func TestAContextKeepsFewTokens(t *testing.T) {
	t.Parallel()
	for _, used := range []bool{false, true} {
		ctx := floor.With(t.Context())
		if used {
			of(ctx)
		}
		for n := range 1000 {
			floor.WithToken(ctx, floor.Token(with(t, strconv.Itoa(n))))
			require.Less(t, len(floor.Token(ctx)), 200)
		}
		position, primaryOnly := now(of(ctx))
		require.True(t, primaryOnly || position == "999")
		require.Equal(t, !used, primaryOnly, "without a database positions cannot be compared")
	}
}

func with(t *testing.T, position string) context.Context {
	ctx := floor.With(t.Context())
	raise(of(ctx), position)
	return ctx
}

func FuzzAnyTokenIsAtWorstAReadOnThePrimary(f *testing.F) {
	for _, seed := range []string{"1.Pw", "1.Nzs4", "2.x", "1.", "", "1.%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		ctx := floor.WithToken(t.Context(), token)
		position, primaryOnly := now(of(ctx))
		require.True(t, token == "" || primaryOnly || numbers{}.Valid(position))
		require.LessOrEqual(t, len(floor.Token(ctx)), floor.MaxToken)
	})
}

// A floor never falls: what a token says, and what is written, a later look has too.
func TestAFloorNeverFalls(t *testing.T) {
	t.Parallel()
	r := rand.New(rand.NewPCG(1, 2))
	for range 200 {
		ctx, highest, lost := floor.With(t.Context()), -1, false
		for log := range 20 { // a primary's positions only rise
			n := r.IntN(log + 1)
			switch r.IntN(4) {
			case 0:
				raise(of(ctx), strconv.Itoa(log))
				highest, lost = log, false
			case 1:
				other := floor.With(t.Context())
				raise(of(other), strconv.Itoa(n))
				floor.WithToken(ctx, floor.Token(other))
				highest = max(highest, n)
			case 2:
				ctx = floor.WithToken(t.Context(), floor.Token(ctx))
			case 3:
				lose(of(ctx))
				lost = true
			}
			position, primaryOnly := now(of(ctx))
			require.Equal(t, lost, primaryOnly)
			require.True(t, lost || number(position) == highest)
		}
	}
}

func TestNothingOlderIsShownThanWhatAReplicaHasShown(t *testing.T) {
	t.Parallel()
	one, other, later := floor.Server{Replica: "one", Era: 1}, floor.Server{Replica: "two", Era: 1}, floor.Server{Replica: "one", Era: 2}
	f := of(floor.With(t.Context()))
	f.LoseServer()
	_, primaryOnly := now(f)
	require.False(t, primaryOnly, "it has read nothing")
	raise(f, "5")
	require.True(t, f.Shows(one))
	require.True(t, f.Shows(one))
	raise(f, "5")
	require.Equal(t, one, f.Shown(), "a read that runs may show more than the primary had")
	f.Showed()
	f.Showed()
	require.Equal(t, one, f.Shown())
	require.False(t, f.Shows(other), "what the context has seen the other one may not have")
	require.False(t, f.Shows(later), "the replica may be another server by now")
	mark := f.Mark()
	f.LoseServer()
	require.Zero(t, f.Shown())
	require.False(t, f.Shows(other))
	f.Raise(mark, dialects.Log{Position: "6"})
	require.False(t, f.Shows(other), "the primary was asked before")
	raise(f, "7")
	require.True(t, f.Shows(other))
	f.Showed()
	position, primaryOnly := now(f)
	require.Equal(t, "7", position)
	require.False(t, primaryOnly)
	raise(f, "8")
	require.True(t, f.Shows(one), "whoever has 8 has everything that was shown before")
}

func TestAFloorIsUnknownWhileASessionOwesItsPosition(t *testing.T) {
	t.Parallel()
	ctx := floor.With(t.Context())
	f, second, foreign := of(ctx), floor.Of(ctx, nil, "another Connector", numbers{}), floor.Of(ctx, nil, "another kind", histories{})
	bare := floor.Of(ctx, nil, "without replicas", numbers{}) // of a Connector without replicas
	var a, b floor.Debts
	a.Owe(nil)
	require.False(t, a.Any())
	a.Owe(f)
	a.Owe(f)
	b.Owe(f)
	requirePrimaryOnly := func(want bool, floors ...*floor.Floor) {
		t.Helper()
		for _, f := range floors {
			_, primaryOnly := now(f)
			require.Equal(t, want, primaryOnly)
		}
	}
	requirePrimaryOnly(true, f, second)
	require.False(t, f.Shows(floor.Server{Replica: "one", Era: 1}))
	a.Settle(func() (dialects.Log, error) { return dialects.Log{Position: "3"}, nil })
	requirePrimaryOnly(true, f, second)
	b.Settle(func() (dialects.Log, error) { return dialects.Log{Position: "5"}, nil })
	requirePrimaryOnly(false, f, second, foreign)
	position, _ := now(second)
	require.Equal(t, "5", position, "the other Connector may lead to the same database")
	position, _ = now(floor.Of(ctx, nil, "a later Connector", numbers{}))
	require.Equal(t, "5", position)

	a.Owe(f)
	a.Fail()
	a.Settle(func() (dialects.Log, error) { return dialects.Log{Position: "6"}, nil })
	requirePrimaryOnly(true, f, second)
	requirePrimaryOnly(false, foreign)
	raise(f, "7")
	requirePrimaryOnly(false, f)
	requirePrimaryOnly(true, second)
	raise(second, "7")

	raise(bare, "7")
	a.Owe(bare)
	requirePrimaryOnly(true, f, second)
	a.Drop()
	requirePrimaryOnly(true, f, second)
	requirePrimaryOnly(false, foreign)
	raise(f, "8")
	requirePrimaryOnly(false, f)
}

// clusters are positions of several databases: cluster/number.
type clusters struct{ histories }

func (clusters) SameDatabase(a, b string) bool {
	one, _, _ := strings.Cut(a, "/")
	other, _, _ := strings.Cut(b, "/")
	return one == other
}

func TestAWriteToAnotherClusterMarksNothing(t *testing.T) {
	t.Parallel()
	ctx := floor.With(t.Context())
	ours, others, unknown := floor.Of(ctx, nil, "ours", clusters{}), floor.Of(ctx, nil, "others", clusters{}), floor.Of(ctx, nil, "unknown", clusters{})
	raise(ours, "a/1")
	lose(others)
	_, primaryOnly := now(ours)
	require.True(t, primaryOnly, "it may be the same")
	raise(others, "b/1")
	raise(ours, "a/2")
	raise(unknown, "a/1")
	lose(others)
	var debts floor.Debts
	debts.Owe(others)
	position, primaryOnly := now(ours)
	require.Equal(t, "a/2", position)
	require.False(t, primaryOnly)
	debts.Settle(func() (dialects.Log, error) { return dialects.Log{Position: "b/9"}, nil })
	position, primaryOnly = now(ours)
	require.Equal(t, "a/2", position)
	require.False(t, primaryOnly)
}
