package session_test

import (
	"context"
	"database/sql/driver"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

func TestRowsThatAreReadAheadAreWhatTheDriverWouldHaveGiven(t *testing.T) {
	f := open(t, setup{inTask: true})
	require.NoError(t, f.ReadAhead(t.Context()), "there are none")
	r := f.query("SELECT n FROM numbers LIMIT 5; SELECT 'x' AS name; SELECT n FROM numbers LIMIT 2", false)
	dest := make([]driver.Value, 1)
	require.NoError(t, r.Next(dest))
	require.Nil(t, r.Buffer())
	f.db.Fail(fakedb.RowsClose, 1, errNo)
	require.NoError(t, f.ReadAhead(t.Context()))

	require.False(t, r.Live() || r.Gone())
	require.Nil(t, f.Rows())
	require.Zero(t, f.db.State().OpenRows(), "the session can be used for something else")
	require.Positive(t, f.buffered.Load())
	require.EqualValues(t, 1, f.readAheads.Load())
	b := r.Buffer()
	require.Equal(t, errNo, b.Closed())
	require.Equal(t, []int64{1, 2, 3, 4}, numbers(t, b.Next), "the owner has the first one")
	require.True(t, b.Current().More)
	require.NoError(t, b.NextSet())
	require.Equal(t, []string{"name"}, b.Current().Columns)
	require.Equal(t, "TEXT", b.Current().Column(0).DatabaseTypeName)
	require.NoError(t, b.NextSet(), "rows that nobody wanted")
	require.Equal(t, []int64{0, 1}, numbers(t, b.Next))
	require.False(t, b.Current().More)
	require.Equal(t, io.EOF, b.NextSet())
	require.Zero(t, f.buffered.Load())
}

func TestAResultSetThatHasEndedIsNotReadAgain(t *testing.T) {
	f := open(t, setup{inTask: true})
	r := f.query("SELECT n FROM numbers LIMIT 2; SELECT n FROM numbers LIMIT 3", false)
	require.Len(t, numbers(t, r.Next), 2)
	before := f.events()
	require.NoError(t, f.ReadAhead(t.Context()))
	require.Equal(t, string(fakedb.RowsNextSet), f.calls(before)[0], "a driver may answer anything after io.EOF")
	require.Empty(t, numbers(t, r.Buffer().Next))
	require.NoError(t, r.Buffer().NextSet())
	require.Len(t, numbers(t, r.Buffer().Next), 3)
}

func TestAnErrorIsReadAheadToItsPlace(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		call fakedb.Call
		skip int
		sets []int // rows of each result set before the error
	}{
		"after two rows":              {"SELECT n FROM numbers LIMIT 5", fakedb.RowsNext, 2, []int{2}},
		"in the second result set":    {"SELECT 1; SELECT 2", fakedb.RowsNext, 2, []int{1, 0}},
		"between two result sets":     {"SELECT 1; SELECT 2", fakedb.RowsNextSet, 0, []int{1}},
		"ErrBadConn is kept, as said": {"SELECT n FROM numbers LIMIT 5", fakedb.RowsNext, 0, []int{0}},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{inTask: true})
			r := f.query(tc.text, false)
			f.db.Inject(fakedb.Fault{Call: tc.call, Skip: tc.skip, Err: driver.ErrBadConn})
			require.NoError(t, f.ReadAhead(t.Context()))
			require.Equal(t, []string{"failed"}, f.hears())
			b, dest := r.Buffer(), make([]driver.Value, 1)
			for i, rows := range tc.sets {
				if i > 0 {
					require.Equal(t, io.EOF, b.Next(dest))
					require.NoError(t, b.NextSet())
				}
				for range rows {
					require.NoError(t, b.Next(dest))
				}
			}
			if tc.call == fakedb.RowsNextSet {
				require.Equal(t, io.EOF, b.Next(dest))
				require.Equal(t, driver.ErrBadConn, b.NextSet())
			} else {
				require.Equal(t, driver.ErrBadConn, b.Next(dest))
				require.True(t, f.Unusable())
			}
		})
	}
}

// TestRowsThatCannotBeReadAheadGoOnFromThere: nothing is lost, and nothing comes twice.
func TestRowsThatCannotBeReadAheadGoOnFromThere(t *testing.T) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, tc := range map[string]struct {
		env      config.Config
		others   int64 // bytes in memory of other rows
		ctx      context.Context
		want     error
		text     string
		tooLarge bool
		prefix   int // rows that were read
	}{
		"too large":               {env: config.Config{NestedBuffer: 100, NestedBufferTotal: 1 << 20}, want: session.ErrNestedBuffer, text: "5 rows in 120B are not all that is left", tooLarge: true, prefix: 5},
		"others fill the memory":  {env: config.Config{NestedBuffer: 1 << 20, NestedBufferTotal: 100}, others: 60, want: session.ErrNestedBuffer, text: "108 of 100 bytes are taken", prefix: 2},
		"its context ends":        {env: config.Config{NestedBuffer: 1 << 20, NestedBufferTotal: 1 << 20}, ctx: canceled, want: context.Canceled, text: "context canceled"},
		"memory was full already": {env: config.Config{NestedBuffer: 1 << 20, NestedBufferTotal: 100}, others: 101, want: session.ErrNestedBuffer, text: "101 of 100 bytes are taken"},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{inTask: true, env: tc.env})
			r := f.query("SELECT n FROM numbers LIMIT 20; SELECT n FROM numbers LIMIT 2", false)
			dest := make([]driver.Value, 1)
			require.NoError(t, r.Next(dest))
			f.buffered.Store(tc.others)
			ctx := t.Context()
			if tc.ctx != nil {
				ctx = tc.ctx
			}
			err := f.ReadAhead(ctx)
			require.ErrorIs(t, err, tc.want)
			require.ErrorContains(t, err, tc.text)
			require.Equal(t, tc.tooLarge, r.TooLarge())
			require.Nil(t, r.Buffer())
			require.Same(t, r, f.Rows())
			require.True(t, r.Live())
			require.EqualValues(t, 24*tc.prefix, r.Tried())
			require.EqualValues(t, 24*tc.prefix+int(tc.others), f.buffered.Load())
			require.Zero(t, f.readAheads.Load())
			require.NotNil(t, r.Prefix())
			require.Equal(t, []string{"n"}, r.Columns())
			require.Equal(t, "BIGINT", r.Column(0).DatabaseTypeName)
			require.True(t, r.HasNextResultSet())

			require.Len(t, numbers(t, r.Next), 19)
			require.Nil(t, r.Prefix())
			require.NoError(t, r.NextResultSet())
			require.Len(t, numbers(t, r.Next), 2)
			require.NoError(t, r.Close())
			require.Equal(t, tc.others, f.buffered.Load())
		})
	}
}

// TestWhatWasReadAheadIsPassedOverWithItsResultSet, where the owner does not want it.
func TestWhatWasReadAheadIsPassedOverWithItsResultSet(t *testing.T) {
	for name, tc := range map[string]struct {
		buffer int64
		text   string
		behind bool // the second result set is in memory, too
	}{
		"the first in part":             {60, "SELECT n FROM numbers LIMIT 9; SELECT n FROM numbers LIMIT 9", false},
		"the first, and some of second": {100, "SELECT n FROM numbers LIMIT 2; SELECT n FROM numbers LIMIT 9", true},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{inTask: true, env: config.Config{NestedBuffer: tc.buffer, NestedBufferTotal: 1 << 20}})
			r := f.query(tc.text, false)
			require.ErrorIs(t, f.ReadAhead(t.Context()), session.ErrNestedBuffer)
			require.Equal(t, tc.behind, r.Prefix().Behind())
			require.True(t, r.HasNextResultSet())
			require.NoError(t, r.NextResultSet())
			require.Equal(t, tc.behind, r.Prefix() != nil)
			require.Len(t, numbers(t, r.Next), 9)
			require.False(t, r.HasNextResultSet())
			require.NoError(t, r.Close())
			r.DropPrefix()
			require.Zero(t, f.buffered.Load())
		})
	}
}

func TestDroppingAPrefixGivesItsMemoryBack(t *testing.T) {
	f := open(t, setup{inTask: true, env: config.Config{NestedBuffer: 60, NestedBufferTotal: 1 << 20}})
	r := f.query("SELECT n FROM numbers LIMIT 9", false)
	require.Error(t, f.ReadAhead(t.Context()))
	require.Positive(t, f.buffered.Load())
	require.NoError(t, r.Close())
	r.DropPrefix()
	require.Zero(t, f.buffered.Load())
	require.Nil(t, r.Prefix())
	r.DropPrefix()
}

// TestReadingForOthersGoesInSteps: rows that end soon must be found before memory is full of
// rows that do not.
func TestReadingForOthersGoesInSteps(t *testing.T) {
	const row = 16 + 24 + 1<<10
	f := open(t, setup{env: config.Config{NestedBuffer: 700 << 10, NestedBufferTotal: 1 << 30, NestedBufferOthers: 1 << 30}})
	value := []byte(strings.Repeat("x", 1<<10))
	for range 2000 {
		require.NoError(t, f.exec("INSERT INTO b VALUES (?)", value))
	}
	r := f.query("SELECT v FROM b", true)
	for i, step := range []int64{256 << 10, 512 << 10, 700 << 10} {
		require.True(t, r.Reclaimable(), "step %d", i)
		require.False(t, r.ReadMore(t.Context()))
		require.InDelta(t, step, r.Tried(), 3*row, "step %d", i)
		require.False(t, r.Detached())
	}
	require.True(t, r.TooLarge(), "its limit is reached")
	require.False(t, r.Reclaimable())
	require.Empty(t, f.hears())
	dest := make([]driver.Value, 1)
	for i := range 2000 {
		require.NoError(t, r.Next(dest), i)
		require.Equal(t, value, dest[0])
	}
	require.Equal(t, io.EOF, r.Next(dest))
	require.NoError(t, r.Close())
}

// TestRowsThatTheirOwnerReadsMeanwhileAreNotReadAheadForEver: they may have no end.
func TestRowsThatTheirOwnerReadsMeanwhileAreNotReadAheadForEver(t *testing.T) {
	f := open(t, setup{env: config.Config{NestedBuffer: 300 << 10, NestedBufferTotal: 1 << 30, NestedBufferOthers: 1 << 30}})
	r := f.query("SELECT n FROM numbers LIMIT 1000000", true)
	dest := make([]driver.Value, 1)
	for tries := 1; ; tries++ {
		require.False(t, r.ReadMore(t.Context()))
		require.LessOrEqual(t, r.Prefix().Bytes(), f.env.NestedBuffer)
		if r.TooLarge() {
			require.Equal(t, 2, tries)
			break
		}
		for r.Prefix().Left() {
			require.NoError(t, r.Next(dest))
		}
	}
	require.NoError(t, r.Close())
	r.DropPrefix()
}

func TestReadingForOthersIsTriedAgainOnlyWhereItMayCome(t *testing.T) {
	canceled, cancel := context.WithCancel(context.Background())
	cancel()
	for name, tc := range map[string]struct {
		ctx   context.Context
		full  bool
		again bool
	}{
		"memory is full": {ctx: t.Context(), full: true, again: true},
		"it took long":   {ctx: canceled},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{env: config.Config{NestedBuffer: 1 << 20, NestedBufferTotal: 1 << 30, NestedBufferOthers: 100}})
			r := f.query("SELECT n FROM numbers LIMIT 4", true)
			if tc.full {
				f.buffered.Store(200)
			}
			require.False(t, r.ReadMore(tc.ctx))
			require.Equal(t, tc.again, r.Reclaimable())
			f.buffered.Store(0)
			require.True(t, r.ReadMore(t.Context()))
			require.Len(t, numbers(t, r.Buffer().Next), 4)
		})
	}
}

func TestWhichRowsCanBeTakenBack(t *testing.T) {
	require.False(t, (*session.Rows)(nil).Reclaimable())
	for name, tc := range map[string]struct {
		alone bool
		but   func(*fixture, *session.Rows)
		want  bool
	}{
		"nothing else has happened":   {true, func(*fixture, *session.Rows) {}, true},
		"something has, before":       {false, func(*fixture, *session.Rows) {}, false},
		"something happens, since":    {true, func(_ *fixture, r *session.Rows) { r.Attach() }, false},
		"they are too large":          {true, func(_ *fixture, r *session.Rows) { r.SkipReadAhead() }, false},
		"their session is unusable":   {true, func(f *fixture, _ *session.Rows) { f.MarkUnusable() }, false},
		"they use it in their own":    {true, func(_ *fixture, r *session.Rows) { r.Keep() }, false},
		"they have used it, and left": {true, func(_ *fixture, r *session.Rows) { r.Keep(); r.LetGo() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{})
			r := f.query("SELECT 1", tc.alone)
			tc.but(f, r)
			require.Equal(t, tc.want, r.Reclaimable())
			require.NoError(t, r.Close())
		})
	}
}

// TestRowsOfATextThatMayDoMoreThanReadKeepTheirSession, for others and in their own task.
func TestRowsOfATextThatMayDoMoreThanReadKeepTheirSession(t *testing.T) {
	for _, text := range []string{"SHOW connection_id", "SHOW vars; SHOW connection_id"} {
		f := open(t, setup{inTask: true})
		r := f.query(text, true)
		require.False(t, r.Reclaimable(), text)
		require.NoError(t, f.ReadAhead(t.Context()))
		require.False(t, r.Detached(), text)
		require.Empty(t, f.hears())
		r.Buffer().Drop()
	}
}

// TestACheckoutIsDetachedWhenItsRowsAreInMemory, if it has nothing else on the session.
func TestACheckoutIsDetachedWhenItsRowsAreInMemory(t *testing.T) {
	for name, tc := range map[string]struct {
		alone    bool
		but      func(*session.Rows)
		detached bool
	}{
		"nothing else has happened":      {true, func(*session.Rows) {}, true},
		"something has, before":          {false, func(*session.Rows) {}, false},
		"something happens, since":       {true, (*session.Rows).Attach, false},
		"the checkout has ended":         {true, func(r *session.Rows) { r.Attach(); r.Keep() }, true},
		"it has ended, and so have they": {true, func(r *session.Rows) { r.Keep(); require.True(t, r.LetGo()); r.Attach() }, false},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{inTask: true})
			r := f.query("SELECT 1", tc.alone)
			tc.but(r)
			require.False(t, r.Detached())
			require.NoError(t, f.ReadAhead(t.Context()))
			require.Equal(t, tc.detached, r.Detached())
			if tc.detached {
				require.Equal(t, []string{"detached"}, f.hears(), "once")
			} else {
				require.Empty(t, f.hears())
			}
			r.Attach()
			require.Equal(t, tc.detached, r.Detached(), "too late")
			r.Buffer().Drop()
		})
	}
}

func TestMemoryIsFreedWhileRowsAreReadAheadAndReadInTurns(t *testing.T) {
	f := open(t, setup{inTask: true, env: config.Config{NestedBuffer: 100, NestedBufferTotal: 1 << 20}})
	r := f.query("SELECT n FROM numbers LIMIT 100", false)
	dest := make([]driver.Value, 1)
	for i := range 100 {
		if err := f.ReadAhead(t.Context()); err == nil {
			require.Equal(t, int64(i), numbers(t, r.Buffer().Next)[0], "the rest is small")
			return
		}
		require.LessOrEqual(t, f.buffered.Load(), int64(120))
		require.NoError(t, r.Next(dest))
		require.EqualValues(t, i, dest[0])
	}
	t.Fatal("the rest was never small enough")
}
