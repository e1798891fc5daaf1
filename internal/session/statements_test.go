package session_test

import (
	"context"
	"database/sql/driver"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

const insertOne = "INSERT INTO t VALUES (?)"

// prepare prepares a text and keeps the statement.
func (f *fixture) prepare(text string, generation uint64) *stmtcache.Stmt {
	f.t.Helper()
	st, err := f.PrepareText(f.t.Context(), text, generation, true)
	require.NoError(f.t, err)
	return st
}

// use is exec for a text that is prepared.
func (f *fixture) use(text string, args ...any) error {
	st := f.statement(text, args...)
	st.Prepares, st.Keep, st.Converted = true, true, true
	_, err := f.Run(f.t.Context(), st)
	return err
}

func (f *fixture) prepares() int { return len(f.db.Events(fakedb.ConnPrepareCtx)) }

func TestAStatementIsExecutedPreparedOrAsItIs(t *testing.T) {
	f := open(t, setup{})
	require.True(t, f.CanExec() && f.CanQuery())
	before := f.events()
	require.NoError(t, f.exec(insertOne, int64(1)))
	require.NoError(t, f.use(insertOne, int64(2)))
	require.NoError(t, f.use(insertOne, int64(3)))
	require.NoError(t, f.Command(t.Context(), insertOne, driver.NamedValue{Ordinal: 1, Value: int64(4)}))
	require.Equal(t, []string{
		"Conn.ExecContext " + insertOne,
		"Conn.PrepareContext " + insertOne,
		"Stmt.ExecContext " + insertOne,
		"Stmt.ExecContext " + insertOne,
		"Conn.ExecContext " + insertOne,
	}, f.calls(before))
	require.Equal(t, []int64{1, 2, 3, 4}, f.stored())

	_, _, err := f.Query(t.Context(), f.statement("SELECT 1 /*+ error 'no' */"))
	require.ErrorContains(t, err, "no")
	old := open(t, setup{intercept: true})
	old.Init(&old.env, &server{Session: old.server.Session, db: old.db, conn: struct{ driver.Conn }{old.conn}}, dialects.Traits{}, old.holder)
	require.False(t, old.CanExec() || old.CanQuery())
}

func TestStatementsAreKeptUpToTheirNumber(t *testing.T) {
	f := open(t, setup{env: config.Config{StmtCache: 2}})
	for i := range 3 {
		require.NoError(t, f.use(fmt.Sprintf("SELECT %d", i)))
	}
	require.Nil(t, f.Kept("SELECT 0", 0))
	require.NotNil(t, f.Kept("SELECT 1", 0))
	require.Equal(t, 2, f.db.State().Prepared())
	st, err := f.PrepareText(t.Context(), "SELECT 9", 0, false)
	require.NoError(t, err)
	f.Statements().Done(st)
	require.Nil(t, f.Kept("SELECT 9", 0), "it was not to be kept")
	require.Equal(t, 2, f.db.State().Prepared())
}

func TestWhichKeptStatementsAreStillOfUse(t *testing.T) {
	ages := dialects.Traits{PreparedAges: true}
	for name, tc := range map[string]struct {
		traits dialects.Traits
		after  func(*fixture) // the statement was prepared
		asks   uint64         // the generation that is asked for
		kept   bool
	}{
		"nothing has happened":              {after: func(*fixture) {}, kept: true},
		"its text has aged":                 {asks: 2, after: func(*fixture) {}},
		"names mean something else":         {after: func(f *fixture) { f.RecordResult(dialects.ForgetPrepared, nil) }},
		"texts are read in another way":     {after: func(f *fixture) { f.RecordResult(dialects.Rereads, nil) }},
		"the same, although it failed":      {after: func(f *fixture) { f.RecordResult(dialects.ForgetPrepared, errNo) }},
		"but not where nothing ran":         {after: func(f *fixture) { f.RecordResult(dialects.ForgetPrepared, driver.ErrSkip) }, kept: true},
		"state was set":                     {after: func(f *fixture) { f.RecordResult(dialects.Stateful, nil) }, kept: true},
		"state was set, and it keeps types": {traits: dialects.Traits{PreparedKeepsTypes: true}, after: func(f *fixture) { f.RecordResult(dialects.Stateful, nil) }},
		"a transaction has ended":           {traits: ages, after: func(f *fixture) { require.NoError(f.t, f.begin(f.t.Context()).End()) }, kept: true},
		"a transaction that has changed what names mean": {traits: ages, after: func(f *fixture) {
			tx := f.begin(f.t.Context())
			f.RecordEffect(dialects.ForgetPrepared)
			require.NoError(f.t, tx.End())
		}},
		"the same, begun by hand": {traits: ages, after: func(f *fixture) {
			require.NoError(f.t, f.exec("BEGIN"))
			f.RecordEffect(dialects.ForgetPrepared)
			require.NoError(f.t, f.exec("ROLLBACK"))
		}},
		"the same, where nothing ages": {after: func(f *fixture) {
			tx := f.begin(f.t.Context())
			f.RecordEffect(dialects.ForgetPrepared)
			require.NoError(f.t, tx.End())
		}, kept: true},
		"its borrower has changed what names mean":    {after: func(f *fixture) { f.RecordEffect(dialects.ForgetPrepared); f.Inspect() }},
		"its borrower has changed how texts are read": {after: func(f *fixture) { f.RecordEffect(dialects.Rereads); f.Inspect() }},
		"a transaction has changed how texts are read": {traits: ages, after: func(f *fixture) {
			tx := f.begin(f.t.Context())
			f.RecordEffect(dialects.Rereads)
			require.NoError(f.t, tx.End())
		}},
		"it was dropped":    {after: func(f *fixture) { f.Drop(insertOne) }},
		"all were returned": {after: func(f *fixture) { f.ReturnStatements(f.t.Context()) }},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{traits: tc.traits})
			f.prepare(insertOne, 1)
			tc.after(f)
			require.Equal(t, tc.kept, f.Kept(insertOne, tc.asks) != nil)
			require.Equal(t, tc.kept, f.db.State().Prepared() > 0, "it is closed otherwise")
		})
	}
}

// TestNamesSettleWithTheWholeTransactionOnly: after the end of a savepoint the rest may still
// be undone.
func TestNamesSettleWithTheWholeTransactionOnly(t *testing.T) {
	f := open(t, setup{inTask: true, traits: dialects.Traits{PreparedAges: true}})
	outer := f.begin(t.Context())
	f.RecordEffect(dialects.ForgetPrepared)
	inner := f.savepoint(t.Context())
	f.prepare(insertOne, 0)
	require.NoError(t, inner.Commit())
	require.Nil(t, f.Kept(insertOne, 0))
	f.prepare(insertOne, 0)
	require.NoError(t, outer.Commit())
	require.Nil(t, f.Kept(insertOne, 0))
	f.prepare(insertOne, 0)
	require.NoError(t, f.begin(t.Context()).Commit())
	require.NotNil(t, f.Kept(insertOne, 0), "it is settled")
}

// TestInATasksTransactionAStatementIsGoodWhateverItsTextsAge: its tables are locked, until
// a statement changes them or a savepoint is rolled back.
func TestInATasksTransactionAStatementIsGoodWhateverItsTextsAge(t *testing.T) {
	for name, tc := range map[string]struct {
		inTask, none bool // none: no transaction
		after        func(*fixture)
		kept         bool
	}{
		"nothing has happened":         {inTask: true, after: func(*fixture) {}, kept: true},
		"data has changed":             {inTask: true, after: func(f *fixture) { f.insert(1) }, kept: true},
		"a table may have changed":     {inTask: true, after: func(f *fixture) { require.NoError(f.t, f.exec("CREATE TABLE x (a INT)")) }},
		"a savepoint was released":     {inTask: true, after: func(f *fixture) { require.NoError(f.t, f.savepoint(f.t.Context()).Commit()) }, kept: true},
		"a savepoint was rolled back":  {inTask: true, after: func(f *fixture) { require.NoError(f.t, f.savepoint(f.t.Context()).End()) }},
		"it is no task's":              {after: func(*fixture) {}},
		"there is no transaction":      {inTask: true, none: true, after: func(*fixture) {}},
		"it is another transaction":    {inTask: true, after: func(f *fixture) { require.NoError(f.t, f.Innermost().Commit()); f.begin(f.t.Context()) }},
		"a query has run, and no more": {inTask: true, after: func(f *fixture) { require.NoError(f.t, f.query("SELECT 1", false).Close()) }, kept: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{inTask: tc.inTask, traits: dialects.Traits{PreparedAges: true}})
			if !tc.none {
				f.begin(t.Context())
			}
			f.prepare(insertOne, 1)
			tc.after(f)
			require.Equal(t, tc.kept, f.Kept(insertOne, 2) != nil)
		})
	}
}

func TestAStaleStatementOfATextThatIsSentAsItIsIsClosedBefore(t *testing.T) {
	f := open(t, setup{})
	f.prepare(insertOne, 2)
	f.DropStale(insertOne, 2)
	require.Equal(t, 1, f.db.State().Prepared(), "it is valid")
	f.DropStale(insertOne, 3)
	require.Zero(t, f.db.State().Prepared())
}

func TestWhereTheServerHasNoRoomForAStatementOthersAreClosed(t *testing.T) {
	for name, tc := range map[string]struct {
		err   error
		times int
		tries int
		told  []string
		kept  int
	}{
		"room is made":         {meansError(dialects.TooManyPrepared), 1, 2, []string{"statements exhausted"}, 1},
		"room is not made":     {meansError(dialects.TooManyPrepared), 2, 2, []string{"statements exhausted"}, 0},
		"it is another reason": {errNo, 1, 1, nil, 2},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, setup{})
			f.prepare("SELECT 1", 0)
			f.prepare("SELECT 2", 0)
			before := f.prepares()
			f.db.Inject(fakedb.Fault{Call: fakedb.ConnPrepareCtx, Err: tc.err, Times: tc.times})
			st, err := f.PrepareText(t.Context(), insertOne, 0, true)
			require.Equal(t, tc.times == tc.tries || tc.err == errNo, err != nil)
			require.Equal(t, err == nil, st != nil)
			require.Equal(t, tc.tries, f.prepares()-before)
			require.Equal(t, tc.told, f.hears())
			require.Equal(t, tc.kept, f.db.State().Prepared())
		})
	}
}

func TestReturnedStatementsAreClosedBeforeTheServersNextSignOfLife(t *testing.T) {
	f := open(t, setup{})
	before := f.events()
	f.ReturnStatements(t.Context())
	require.Empty(t, f.calls(before), "there are none")
	f.prepare(insertOne, 0)
	before = f.events()
	f.ReturnStatements(t.Context())
	require.Equal(t, []string{"Stmt.Close " + insertOne, "Conn.Ping"}, f.calls(before))
	require.False(t, f.Unusable())
	f.prepare(insertOne, 0)
	f.db.Fail(fakedb.ConnPing, 1, errNo)
	f.ReturnStatements(t.Context())
	require.True(t, f.Unusable())
}

func TestStatementsAreClosedAtTheEndUnlessTheSessionsEndDoesIt(t *testing.T) {
	for _, end := range []bool{false, true} {
		f := open(t, setup{traits: dialects.Traits{StatementsEndWithSession: end}})
		f.prepare(insertOne, 0)
		f.CloseStatements()
		require.Equal(t, end, f.db.State().Prepared() == 1)
	}
}

func TestArgumentsAreConvertedByTheDriver(t *testing.T) {
	for _, prepared := range []bool{false, true} {
		for name, tc := range map[string]struct {
			arg, want any
			err       string
		}{
			"as database/sql does":   {arg: int32(7), want: int64(7)},
			"what only it can":       {arg: fakedb.Point{X: 1, Y: 2}, want: map[bool]string{false: "conn(1,2)", true: "stmt(1,2)"}[prepared]},
			"what it does not take":  {arg: fakedb.Refused{}, err: "sql: converting argument $1 type: fakedb: type Refused is not accepted"},
			"what it keeps for self": {arg: fakedb.Option("o")},
		} {
			t.Run(fmt.Sprintf("%s, prepared %t", name, prepared), func(t *testing.T) {
				f := open(t, setup{})
				st := f.statement("SHOW options", tc.arg)
				if tc.want != nil {
					st = f.statement("SELECT ?", tc.arg)
				}
				if prepared && tc.err == "" {
					st.SetPrepared(f.prepare(st.Text, 0))
				}
				require.False(t, f.TakesArgsAsGiven(st.Args))
				again := append([]driver.NamedValue{}, st.Args...)
				err := f.Convert(st, true)
				if tc.err != "" {
					require.EqualError(t, err, tc.err)
					return
				}
				require.NoError(t, err)
				if tc.want == nil {
					require.Empty(t, st.Args)
					return
				}
				require.Equal(t, tc.want, st.Args[0].Value)
				c := f.Converter(st)
				got, err := c.Convert(again)
				require.NoError(t, err)
				require.Equal(t, st.Args, got)
			})
		}
	}
}

func TestWhichArgumentsNeedNoConversion(t *testing.T) {
	plain := []driver.NamedValue{{Ordinal: 1, Value: int64(1)}}
	odd := []driver.NamedValue{{Ordinal: 1, Value: new(int)}}
	for name, tc := range map[string]struct {
		setup
		plain, odd bool
	}{
		"the driver checks them":        {setup{}, false, false},
		"it checks nothing":             {setup{without: fakedb.ConnNamedValueChecker}, true, false},
		"it takes them all as they are": {setup{traits: dialects.Traits{ArgsAsGiven: true}}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, tc.setup)
			require.Equal(t, tc.plain, f.TakesArgsAsGiven(plain))
			require.Equal(t, tc.odd, f.TakesArgsAsGiven(odd))
		})
	}
}

// TestAStatementIsNotExecutedWithArgumentsOfOtherKinds, where the server keeps the types of
// the first ones.
func TestAStatementIsNotExecutedWithArgumentsOfOtherKinds(t *testing.T) {
	for _, keeps := range []bool{false, true} {
		f := open(t, setup{traits: dialects.Traits{PreparedKeepsTypes: keeps}})
		st := f.statement(insertOne, int64(1))
		st.SetPrepared(f.prepare(st.Text, 0))
		require.True(t, f.Fits(st))
		st.Args[0].Value = "abc"
		require.Equal(t, !keeps, f.Fits(st))
		require.Equal(t, !keeps, f.Kept(st.Text, 0) != nil)
	}
}

// TestWhichStaleStatementsMayBeExecutedAgain: those that have certainly done nothing.
func TestWhichStaleStatementsMayBeExecutedAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		setup
		before func(*fixture)
		text   string
		effect dialects.Effect
		want   bool
	}{
		"a write":                     {text: insertOne, effect: dialects.Writes, want: true},
		"a script that reads":         {text: "SELECT 1; SELECT 2", want: true},
		"a script that writes":        {text: insertOne + "; " + insertOne, effect: dialects.Writes},
		"a call":                      {text: "CALL out(?)", effect: dialects.Suspect},
		"a transaction's text":        {text: "COMMIT", effect: dialects.TxControl},
		"in a transaction":            {before: func(f *fixture) { f.begin(f.t.Context()) }, text: insertOne},
		"in a savepoint":              {before: func(f *fixture) { _ = f.exec("BEGIN"); f.savepoint(f.t.Context()) }, setup: setup{inTask: true}, text: insertOne},
		"in one begun by hand":        {before: func(f *fixture) { _ = f.exec("BEGIN") }, text: insertOne},
		"in one that has failed":      {before: func(f *fixture) { _ = f.exec("BEGIN"); f.server.failed = true }, text: insertOne},
		"in one that began by itself": {before: func(f *fixture) { f.server.implicit = true }, text: insertOne},
		"nobody can say":              {setup: setup{blind: true}, text: insertOne, want: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, tc.setup)
			if tc.before != nil {
				tc.before(f)
			}
			require.Equal(t, tc.want, f.MayRenew(&session.Statement{Text: tc.text, Effect: tc.effect}))
		})
	}
}

func TestAnEndedContextReachesTheDriver(t *testing.T) {
	f := open(t, setup{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	st := f.statement("SELECT 1")
	_, err := f.Exec(ctx, st)
	require.ErrorIs(t, err, context.Canceled)
	_, _, err = f.Query(ctx, st)
	require.ErrorIs(t, err, context.Canceled)
	_, err = f.PrepareText(ctx, st.Text, 0, true)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, f.Ping(ctx), context.Canceled)
}

// TestAStatementThatRunsAgainIsNotJudgedByItsLastError: it would be executed twice.
func TestAStatementThatRunsAgainIsNotJudgedByItsLastError(t *testing.T) {
	f := open(t, setup{})
	tx := f.begin(t.Context())
	st := f.statement("INSERT INTO t VALUES (1)")
	f.db.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Err: meansError(dialects.StaleStatement)})
	executed, err := f.Run(t.Context(), st)
	require.True(t, executed)
	require.Error(t, err, "in a transaction the program decides")
	require.NoError(t, tx.End())
	executed, err = f.Run(t.Context(), st)
	require.True(t, executed)
	require.NoError(t, err)
	require.Equal(t, []int64{1}, f.stored())
}
