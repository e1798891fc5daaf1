package callsite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestAPlaceIsOneHoweverOftenItIsReached(t *testing.T) {
	var table Table
	here := func() *Site { return table.Here(0) }
	var first, second *Site
	for range 3 {
		first = here()
		first.Taken(64, time.Millisecond)
		first.GivenBack(64, time.Second, 2*time.Second)
	}
	second = here()
	require.NotSame(t, first, second, "another line")
	require.Equal(t, Figures{192, 192 * time.Millisecond, 192 * time.Second, 384 * time.Second}, first.Figures())
	require.Equal(t, []*Site{first}, table.All(), "the second has taken nothing")
	frames := first.Frames()
	require.True(t, strings.HasSuffix(frames[0].Func, "TestAPlaceIsOneHoweverOftenItIsReached.func1"), frames[0].Func)
	require.True(t, strings.HasSuffix(frames[0].File, "callsite_test.go"))
	require.NotZero(t, frames[0].Line)
	require.True(t, strings.HasSuffix(frames[1].Func, "TestAPlaceIsOneHoweverOftenItIsReached"))
}

// above is a driver between database/sql and us.
type above struct{ connect func() }

func (a above) Connect(context.Context) (driver.Conn, error) {
	a.connect()
	return nil, errors.New("no connection")
}

func (above) Driver() driver.Driver { return nil }

func TestThePlaceIsTheProgramsAlsoUnderAnotherDriver(t *testing.T) {
	var table Table
	var site *Site
	var call string
	db := sql.OpenDB(above{func() { site, call = table.Here(0), Program() }})
	require.ErrorContains(t, db.PingContext(t.Context()), "no connection")
	require.NoError(t, db.Close())
	frames := site.Frames()
	require.NotEmpty(t, frames)
	require.True(t, strings.HasSuffix(frames[0].Func, ".TestThePlaceIsTheProgramsAlsoUnderAnotherDriver"), frames[0].Func)
	require.Regexp(t, `^\S+\.TestThePlaceIsTheProgramsAlsoUnderAnotherDriver \(callsite_test\.go:\d+\) < testing\.`, call)
	require.Empty(t, Program(), "not in a call of database/sql")
}

func TestATableIsBounded(t *testing.T) {
	var table Table
	for i := range Most {
		require.NotSame(t, &table.others, table.add(uint64(i), []uintptr{uintptr(i + 1)}))
	}
	other := table.Here(0)
	require.Same(t, &table.others, other)
	require.Same(t, other, table.Here(0))
	require.Empty(t, other.Frames())
	other.Taken(1, 0)
	require.Equal(t, []*Site{other}, table.All())
}

func TestNoSiteHasNoFrames(t *testing.T) { require.Empty(t, (*Site)(nil).Frames()) }

func BenchmarkHere(b *testing.B) {
	var table Table
	for _, n := range []int{10, 30} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			for b.Loop() {
				deep(n, func() { table.Here(0) })
			}
		})
	}
}

//go:noinline
func deep(n int, f func()) {
	if n > 0 {
		deep(n-1, f)
		return
	}
	f()
}
