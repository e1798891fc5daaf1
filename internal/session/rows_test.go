package session_test

import (
	"database/sql/driver"
	"io"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

func TestRowsPassOnWhatTheDriverSays(t *testing.T) {
	f := open(t, setup{})
	r := f.query("SELECT 1 AS a, 'x' AS b; SELECT 2 AS c", false)
	require.Same(t, r, f.Rows())
	require.True(t, r.Live())
	require.Equal(t, []string{"a", "b"}, r.Columns())
	require.Equal(t, reflect.TypeFor[int64](), r.Column(0).ScanType)
	require.Equal(t, "TEXT", r.Column(1).DatabaseTypeName)
	dest := make([]driver.Value, 2)
	require.NoError(t, r.Next(dest))
	require.Equal(t, []driver.Value{int64(1), "x"}, dest)
	require.Equal(t, io.EOF, r.Next(dest))
	require.True(t, r.HasNextResultSet())
	require.NoError(t, r.NextResultSet())
	require.Equal(t, []string{"c"}, r.Columns())
	require.Equal(t, []int64{2}, numbers(t, r.Next))
	require.False(t, r.HasNextResultSet())
	require.Equal(t, io.EOF, r.NextResultSet())
	require.NoError(t, r.Close())
	require.False(t, r.Live() || r.Gone())
	require.Nil(t, f.Rows())
	require.Zero(t, f.db.State().OpenRows())
	require.Empty(t, f.hears())

	single := open(t, setup{without: fakedb.RowsNextResultSet})
	r = single.query("SELECT 1; SELECT 2", false)
	require.False(t, r.HasNextResultSet())
	require.Equal(t, io.EOF, r.NextResultSet(), "a driver that knows of one only")
	require.NoError(t, r.Close())
}

// TestBytesOfARowStayAsTheyAreWhereTheRestMayBeReadAhead: the driver reuses its memory.
func TestBytesOfARowStayAsTheyAreWhereTheRestMayBeReadAhead(t *testing.T) {
	for name, tc := range map[string]struct {
		inTask, detachable, kept bool
		stays                    bool
	}{
		"in a task":                          {inTask: true, stays: true},
		"rows that can be taken back":        {detachable: true, stays: true},
		"rows that cannot":                   {},
		"the driver does not reuse anything": {inTask: true, detachable: true, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{inTask: tc.inTask, traits: dialects.Traits{BytesKept: tc.kept}})
			for _, v := range []any{[]byte{}, []byte("one"), []byte("two"), nil, make([]byte, 5000), []byte("last")} {
				require.NoError(t, f.exec("INSERT INTO b VALUES (?)", v))
			}
			r := f.query("SELECT v FROM b", tc.detachable)
			var got []driver.Value
			dest := make([]driver.Value, 1)
			for r.Next(dest) == nil {
				got = append(got, dest[0])
			}
			require.NoError(t, r.Close())
			require.Len(t, got, 6)
			require.Equal(t, []byte{}, got[0], "empty is not NULL")
			require.Nil(t, got[3])
			if !tc.stays {
				require.Equal(t, []byte("###"), got[1], "it is the driver's memory: nothing was copied")
				return
			}
			require.Equal(t, []byte("one"), got[1])
			_ = append(got[1].([]byte), '!')
			require.Equal(t, []byte("two"), got[2], "the values share memory, and do not grow into each other")
			require.Equal(t, make([]byte, 5000), got[4])
			require.Equal(t, []byte("last"), got[5])
		})
	}
}

func TestCopiesOfSeveralRowsShareMemory(t *testing.T) {
	const half = 500
	allocations := func(kept bool) float64 {
		f := open(t, setup{inTask: true, traits: dialects.Traits{BytesKept: kept}})
		for range 2 * half {
			require.NoError(t, f.exec("INSERT INTO b VALUES (?)", []byte("12345678")))
		}
		r := f.query("SELECT v FROM b", false)
		dest := make([]driver.Value, 1)
		defer func() { require.NoError(t, r.Close()) }()
		return testing.AllocsPerRun(1, func() { // calls it twice
			for range half {
				_ = r.Next(dest)
			}
		})
	}
	require.InDelta(t, allocations(true)+half, allocations(false), half/10, "one allocation a row, for the slice: its bytes are among those of other rows")
}

// TestAnErrorOfRowsIsActedOn: a server may find only at the third row that it must not
// write.
func TestAnErrorOfRowsIsActedOn(t *testing.T) {
	for name, tc := range map[string]struct {
		err      error
		kill     bool
		told     []string
		unusable bool
		unclear  bool
	}{
		"an error of the statement":        {err: errNo, told: []string{"failed"}},
		"a diagnosis":                      {err: meansError(dialects.ServerLeaving), told: []string{"failed", "diagnosed 10"}},
		"ErrBadConn":                       {err: driver.ErrBadConn, told: []string{"failed"}, unusable: true},
		"another, and the session is dead": {err: errNo, kill: true, told: []string{"failed"}, unusable: true},
		"that nothing was sent is not so":  {err: safeError{errNo}, told: []string{"failed"}, unclear: true},
	} {
		for _, call := range []fakedb.Call{fakedb.RowsNext, fakedb.RowsNextSet} {
			t.Run(name+", "+string(call), func(t *testing.T) {
				f := open(t, setup{traits: dialects.Traits{StatusKnown: true}})
				r := f.query("SELECT 1; SELECT 2", false)
				f.db.Inject(fakedb.Fault{Call: call, Err: tc.err, Kill: tc.kill})
				var err error
				if call == fakedb.RowsNext {
					err = r.Next(make([]driver.Value, 1))
					require.Equal(t, tc.unusable, f.Unusable())
				} else {
					err = r.NextResultSet()
				}
				if tc.unclear {
					require.ErrorIs(t, err, ctxerr.ErrUnclear)
				} else {
					require.Equal(t, tc.err, err)
				}
				require.Equal(t, tc.told, f.hears())
				require.NoError(t, r.Close())
			})
		}
	}
}

func TestTheEndOfRowsIsNoError(t *testing.T) {
	f := open(t, setup{})
	r := f.query("SELECT 1", false)
	require.Equal(t, []int64{1}, numbers(t, r.Next))
	require.Empty(t, f.hears())
	f.db.Fail(fakedb.RowsClose, 1, errNo)
	require.Equal(t, errNo, r.Close())
	require.Nil(t, f.Rows())
	require.True(t, f.Healthy())
}

func TestClosingRowsEndsTheUseOfTheirStatement(t *testing.T) {
	f := open(t, setup{})
	for _, keep := range []bool{true, false} {
		st := f.statement("SELECT 1")
		var err error
		prepared, err := f.PrepareText(t.Context(), st.Text, 0, keep)
		st.SetPrepared(prepared)
		require.NoError(t, err)
		_, columns, err := f.Query(t.Context(), st)
		require.NoError(t, err)
		require.Equal(t, []string{"value"}, columns)
		st.Prepared().Open++
		r := new(session.Rows)
		f.OpenRows(r, st, false)
		require.Nil(t, f.Kept(st.Text, 0), "it has open rows")
		require.NoError(t, r.Close())
		if keep {
			require.Same(t, st.Prepared(), f.Kept(st.Text, 0))
			f.Drop(st.Text)
		}
		require.Zero(t, f.db.State().Prepared())
	}
}

func TestRowsAreAbandonedWithTheirTask(t *testing.T) {
	for name, tc := range map[string]struct {
		inPlace bool
		told    []string
	}{
		"their checkout uses the session": {false, nil},
		"they use it in its place":        {true, []string{"detached"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{inTask: true})
			r := f.query("SELECT 1", true)
			if tc.inPlace {
				r.Keep()
			}
			require.NoError(t, r.Lost())
			r.Abandon(errNo)
			require.True(t, r.Gone())
			require.Equal(t, errNo, r.Lost())
			require.False(t, r.Live() || r.LetGo())
			require.Nil(t, f.Rows())
			require.Zero(t, f.db.State().OpenRows())
			require.Equal(t, tc.told, f.hears())
			r.LoseSession()
			require.Equal(t, errNo, r.Lost(), "the first reason counts")
		})
	}
}
