package floor_test

import (
	"context"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

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

func (numbers) Later(a, b string) string {
	if number(a) > number(b) {
		return a
	}
	return b
}

func (numbers) Reached(position, replayed string) bool {
	return number(position) >= 0 && number(replayed) >= number(position)
}
func (numbers) Valid(text string) bool { return number(text) >= 0 }

func of(ctx context.Context) *floor.Floor { return floor.Of(ctx, nil, "db", numbers{}) }

func TestAFloorRises(t *testing.T) {
	t.Parallel()
	require.Nil(t, of(t.Context()))
	f := of(floor.With(t.Context()))
	position, primaryOnly := f.Now()
	require.Empty(t, position)
	require.False(t, primaryOnly)
	f.Raise("5")
	f.Raise("3")
	position, _ = f.Now()
	require.Equal(t, "5", position)
	f.Unknown()
	_, primaryOnly = f.Now()
	require.True(t, primaryOnly)
	f.Raise("6")
	position, primaryOnly = f.Now()
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
	of(ctx).Raise("7")
	next := floor.WithToken(t.Context(), floor.Token(ctx))
	require.Equal(t, floor.Token(ctx), floor.Token(next), "before its first use")
	position, primaryOnly := of(next).Now()
	require.Equal(t, "7", position)
	require.False(t, primaryOnly)
	of(next).Raise("9")
	require.NotEqual(t, floor.Token(ctx), floor.Token(next))
	position, _ = of(floor.WithToken(t.Context(), floor.Token(next))).Now()
	require.Equal(t, "9", position, "the old position is overtaken")
	of(next).Unknown()
	_, primaryOnly = of(floor.WithToken(t.Context(), floor.Token(next))).Now()
	require.True(t, primaryOnly)
	require.Empty(t, floor.Token(floor.WithToken(t.Context(), "")))
}

func TestATokenAddsToAFloorThatIsInUse(t *testing.T) {
	t.Parallel()
	ctx := floor.With(t.Context())
	of(ctx).Raise("3")
	later := floor.With(t.Context())
	of(later).Raise("8")
	require.Equal(t, ctx, floor.WithToken(ctx, floor.Token(later)))
	position, _ := of(ctx).Now()
	require.Equal(t, "8", position)
}

func FuzzAnyTokenIsAtWorstAReadOnThePrimary(f *testing.F) {
	for _, seed := range []string{"1.Pw", "1.Nzs4", "2.x", "1.", "", "1.%"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		ctx := floor.WithToken(t.Context(), token)
		position, primaryOnly := of(ctx).Now()
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
				of(ctx).Raise(strconv.Itoa(log))
				highest, lost = log, false
			case 1:
				other := floor.With(t.Context())
				of(other).Raise(strconv.Itoa(n))
				floor.WithToken(ctx, floor.Token(other))
				highest = max(highest, n)
			case 2:
				ctx = floor.WithToken(t.Context(), floor.Token(ctx))
			case 3:
				of(ctx).Unknown()
				lost = true
			}
			position, primaryOnly := of(ctx).Now()
			require.Equal(t, lost, primaryOnly)
			require.True(t, lost || number(position) == highest)
		}
	}
}
