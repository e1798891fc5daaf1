package session_test

import (
	"context"
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// TestAPanicOfTheDriverStaysKnown: a driver that has panicked may hold a lock of its own.
// Whoever calls the session gets the panic, and Calls tells it to whoever has the session
// next.
func TestAPanicOfTheDriverStaysKnown(t *testing.T) {
	for name, tc := range map[string]struct {
		call   fakedb.Call
		inTask bool
		do     func(*fixture)
	}{
		"exec":           {call: fakedb.ConnExecCtx, do: func(f *fixture) { _ = f.exec("SELECT 1") }},
		"query":          {call: fakedb.ConnQueryCtx, do: func(f *fixture) { f.query("SELECT 1", false) }},
		"prepare":        {call: fakedb.ConnPrepareCtx, do: func(f *fixture) { f.prepare("SELECT 1", 0) }},
		"prepared exec":  {call: fakedb.StmtExecCtx, do: func(f *fixture) { _ = f.use("SELECT 1") }},
		"prepared query": {call: fakedb.StmtQueryCtx, do: func(f *fixture) { f.queryPrepared("SELECT 1") }},
		"closing a statement": {call: fakedb.StmtClose, do: func(f *fixture) {
			f.prepare("SELECT 1", 0)
			f.Drop("SELECT 1")
		}},
		"dropping one that is stale": {call: fakedb.StmtClose, do: func(f *fixture) {
			f.prepare("SELECT 1", 1)
			f.DropStale("SELECT 1", 2)
		}},
		"returning statements": {call: fakedb.StmtClose, do: func(f *fixture) {
			f.prepare("SELECT 1", 0)
			f.ReturnStatements(f.t.Context())
		}},
		"ping":                               {call: fakedb.ConnPing, do: func(f *fixture) { _ = f.Ping(f.t.Context()) }},
		"asking for the transaction's state": {call: fakedb.ConnPing, do: func(f *fixture) { f.EndsTx(dialects.TxDoubt, 0) }},
		"begin":                              {call: fakedb.ConnBeginCtx, do: func(f *fixture) { f.begin(f.t.Context()) }},
		"savepoint":                          {call: fakedb.ConnExecCtx, inTask: true, do: func(f *fixture) { f.begin(f.t.Context()); f.savepoint(f.t.Context()) }},
		"commit":                             {call: fakedb.TxCommit, do: func(f *fixture) { _ = f.begin(f.t.Context()).Commit() }},
		"rollback":                           {call: fakedb.TxRollback, do: func(f *fixture) { _ = f.begin(f.t.Context()).End() }},
		"next":                               {call: fakedb.RowsNext, do: func(f *fixture) { _ = f.query("SELECT 1", false).Next(make([]driver.Value, 1)) }},
		"next result set":                    {call: fakedb.RowsNextSet, do: func(f *fixture) { _ = f.query("SELECT 1; SELECT 2", false).NextResultSet() }},
		"closing rows":                       {call: fakedb.RowsClose, do: func(f *fixture) { _ = f.query("SELECT 1", false).Close() }},
		"reading ahead":                      {call: fakedb.RowsNext, do: func(f *fixture) { f.query("SELECT 1", false); _ = f.ReadAhead(f.t.Context()) }},
		"converting":                         {call: fakedb.ConnCheck, do: func(f *fixture) { _ = f.Convert(f.statement("SELECT ?", int64(1)), true) }},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{inTask: tc.inTask})
			text := ""
			if tc.inTask {
				text = "SAVEPOINT"
			}
			f.db.Inject(fakedb.Fault{Call: tc.call, Text: text, Panic: "boom"})
			f.panics(func() { tc.do(f) })
			require.Equal(t, 1, f.Calls())
			require.True(t, f.Inspect().Unusable)
		})
	}
}

// queryPrepared runs a query prepared.
func (f *fixture) queryPrepared(text string) {
	st := f.statement(text)
	st.SetPrepared(f.prepare(text, 0))
	_, _, err := f.Query(f.t.Context(), st)
	require.NoError(f.t, err)
}

// TestAPanicInAConversionIsTheProgramsWhereDatabaseSQLSurvivesIt: it may be a Valuer's, and
// the driver has lost nothing.
func TestAPanicInAConversionIsTheProgramsWhereDatabaseSQLSurvivesIt(t *testing.T) {
	f := open(t, setup{})
	f.db.Inject(fakedb.Fault{Call: fakedb.ConnCheck, Panic: "boom"})
	require.PanicsWithValue(t, "boom", func() { _ = f.Convert(f.statement("SELECT ?", int64(1)), false) })
	require.Zero(t, f.Calls())
	require.True(t, f.Inspect().Valid)
}

// TestAPanicWhereRowsAreClosedEndsThem: their owner, who may be another goroutine, is told.
func TestAPanicWhereRowsAreClosedEndsThem(t *testing.T) {
	for name, tc := range map[string]struct {
		close func(*fixture, *session.Rows)
		told  []string
	}{
		"by their owner":     {func(_ *fixture, r *session.Rows) { _ = r.Close() }, nil},
		"in place of it":     {func(_ *fixture, r *session.Rows) { r.Keep(); _ = r.Close() }, []string{"detached"}},
		"by a task's end":    {func(_ *fixture, r *session.Rows) { r.Abandon(errNo) }, nil},
		"when they are read": {func(f *fixture, _ *session.Rows) { _ = f.ReadAhead(f.t.Context()) }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{inTask: true})
			r := f.query("SELECT 1", false)
			f.db.Inject(fakedb.Fault{Call: fakedb.RowsClose, Panic: "boom"})
			f.panics(func() { tc.close(f, r) })
			require.True(t, f.Unusable())
			require.Nil(t, f.Rows())
			require.True(t, r.Gone())
			require.False(t, r.Live())
			require.Nil(t, r.Buffer())
			require.Zero(t, f.buffered.Load())
			if name == "by a task's end" {
				require.Equal(t, errNo, r.Lost())
			} else {
				require.Equal(t, session.ErrRowsLost, r.Lost())
			}
			require.Equal(t, tc.told, f.hears())
		})
	}
}

// TestRowsLoseASessionThatIsSomebodyElsesNow: the driver has panicked in another call.
func TestRowsLoseASessionThatIsSomebodyElsesNow(t *testing.T) {
	f := open(t, setup{})
	r := f.query("SELECT 1", false)
	before := f.events()
	r.LoseSession()
	require.Empty(t, f.calls(before), "the driver is not asked")
	require.False(t, r.Live())
	require.Equal(t, session.ErrRowsLost, r.Lost())
	require.Nil(t, f.Rows())

	later := f.query("SELECT 1", false)
	r.LoseSession()
	require.Same(t, later, f.Rows(), "those of somebody else stay")
	require.NoError(t, later.Close())
}

// moody stands for rows whose Columns panics.
type moody struct{ driver.Rows }

func (moody) Columns() []string { panic("boom") }

// TestAPanicOfColumnsIsNotTheQuerys: database/sql survives the one and not the other.
func TestAPanicOfColumnsIsNotTheQuerys(t *testing.T) {
	f := open(t, setup{intercept: true})
	f.conn.rows = func(rows driver.Rows) driver.Rows { return moody{rows} }
	st := f.statement("SELECT 1")
	_, columns, err := f.Query(context.Background(), st)
	require.NoError(t, err)
	require.Nil(t, columns)
	require.Zero(t, f.Calls())
	r := new(session.Rows)
	f.OpenRows(r, st, false)
	require.PanicsWithValue(t, "boom", func() { r.Columns() }, "they are asked again")
	require.NoError(t, r.Close())
}
