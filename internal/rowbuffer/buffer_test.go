package rowbuffer

import (
	"database/sql/driver"
	"errors"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// result is a driver's rows: sets of rows with a number in each of two columns.
type result struct {
	sets []int // rows of each
	read int
}

func (r *result) Columns() []string { return []string{"a", "b"} }
func (r *result) Close() error      { return nil }

func (r *result) Next(dest []driver.Value) error {
	if r.read == r.sets[0] {
		return io.EOF
	}
	dest[0], dest[1] = int64(r.read), make([]byte, 100)
	r.read++
	return nil
}

// fill reads up to n rows of each set into b, and reports whether that was all.
func (r *result) fill(t *testing.T, b *Buffer, n int) {
	t.Helper()
	for i := range r.sets {
		b.Capture(r, nil)
		r.read, r.sets[0] = 0, r.sets[i]
		for range n {
			if _, err := b.Add(r.Next); err != nil {
				require.Equal(t, io.EOF, err)
				break
			}
		}
		b.End(io.EOF)
		more := i < len(r.sets)-1
		if more {
			b.EndSets(true, nil)
		} else {
			b.EndSets(false, io.EOF)
		}
	}
}

func TestTheReaderGetsRowsAndSetsInOrder(t *testing.T) {
	var held atomic.Int64
	b := New(&held)
	(&result{sets: []int{3, 0, 2}}).fill(t, b, 10)
	require.Positive(t, held.Load())
	require.Equal(t, held.Load(), b.Bytes())
	var got []int
	dest := make([]driver.Value, 2)
	for {
		n := 0
		for ; ; n++ {
			err := b.Next(dest)
			if err == io.EOF {
				break
			}
			require.NoError(t, err)
			require.EqualValues(t, n, dest[0])
		}
		got = append(got, n)
		require.Equal(t, b.Behind(), b.Current().More)
		if err := b.NextSet(); err == io.EOF {
			break
		}
	}
	require.Equal(t, []int{3, 0, 2}, got)
	require.Zero(t, held.Load(), "what was given is not counted")
	require.False(t, b.Left())
}

func TestRowsThatNobodyWantsAreNotCounted(t *testing.T) {
	var held atomic.Int64
	b := New(&held)
	(&result{sets: []int{5, 5}}).fill(t, b, 10)
	require.NoError(t, b.Next(make([]driver.Value, 2)))
	require.NoError(t, b.NextSet())
	require.Equal(t, 5, b.Rows())
	rest := held.Load()
	require.Positive(t, rest)
	b.Drop()
	require.Zero(t, held.Load())
}

func TestTheDriversErrorsStandWhereTheyWere(t *testing.T) {
	var held atomic.Int64
	broken := errors.New("broken")
	b, r := New(&held), &result{sets: []int{2}}
	b.Capture(r, nil)
	for range 2 {
		_, err := b.Add(r.Next)
		require.NoError(t, err)
	}
	_, err := b.Add(func([]driver.Value) error { return broken })
	require.Equal(t, broken, err)
	b.End(err)
	dest := make([]driver.Value, 2)
	require.NoError(t, b.Next(dest))
	require.NoError(t, b.Next(dest))
	require.Equal(t, broken, b.Next(dest))
	b.EndSets(true, broken)
	require.Equal(t, broken, b.NextSet())
	b.SetClosed(broken)
	require.Equal(t, broken, b.Closed())
}

// Reading and filling in turns, with rows dropped on the way, keeps every row once.
func TestABufferThatIsFilledWhileItIsReadLosesNothing(t *testing.T) {
	for seed := range uint64(30) {
		random := rand.New(rand.NewPCG(seed, 1))
		var held atomic.Int64
		b, r := New(&held), &result{sets: []int{200}}
		b.Capture(r, nil)
		dest := make([]driver.Value, 2)
		want := int64(0)
		for ended := false; !ended || b.Left(); {
			b.Compact()
			for range random.IntN(10) {
				if _, err := b.Add(r.Next); err == io.EOF {
					b.End(err)
					ended = true
				}
			}
			for range random.IntN(10) {
				if !b.Left() {
					break
				}
				require.NoError(t, b.Next(dest))
				require.Equal(t, want, dest[0], "seed %d", seed)
				want++
			}
			require.LessOrEqual(t, len(b.last().values), 2*(2*b.Rows()+40), "what was read is freed")
		}
		require.EqualValues(t, 200, want)
		require.Zero(t, held.Load())
	}
}

// values are rows of one row.
type values struct {
	result
	row []driver.Value
}

func (v *values) Columns() []string { return make([]string, len(v.row)) }

func (v *values) Next(dest []driver.Value) error {
	copy(dest, v.row)
	return nil
}

// TestWhatARowWeighs: the slots of its values, and what is behind them.
func TestWhatARowWeighs(t *testing.T) {
	for name, tc := range map[string]struct {
		row  []driver.Value
		want int64
	}{
		"nothing":                {nil, 0},
		"what needs no memory":   {[]driver.Value{nil, true}, 2 * 16},
		"numbers":                {[]driver.Value{int64(1), 1.5}, 2 * (16 + 8)},
		"a time":                 {[]driver.Value{time.Now()}, 16 + 24},
		"a string, and its text": {[]driver.Value{"abc"}, 16 + 16 + 3},
		"bytes":                  {[]driver.Value{make([]byte, 1000)}, 16 + 24 + 1000},
	} {
		t.Run(name, func(t *testing.T) {
			var held atomic.Int64
			b, rows := New(&held), &values{row: tc.row}
			b.Capture(rows, nil)
			weight, err := b.Add(rows.Next)
			require.NoError(t, err)
			require.Equal(t, tc.want, weight)
			require.Equal(t, tc.want, held.Load())
			require.NoError(t, b.Next(make([]driver.Value, len(tc.row))))
			require.Zero(t, held.Load())
		})
	}
}

func TestAColumnOfWhichNothingIsKnownHasAnyType(t *testing.T) {
	require.Equal(t, "interface {}", new(Set).Column(3).ScanType.String())
}
