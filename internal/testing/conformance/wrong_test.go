package conformance

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// The wrappers of this file are wrong, each in one way that a wrapper has been
// wrong before. The suite must see each of them, in the case that is named.

type everyConn interface {
	driver.Conn
	driver.Pinger
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
	ID() int
}

type everyStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
	driver.NamedValueChecker
	driver.ColumnConverter //nolint:staticcheck // Deprecated, and drivers with it exist.
}

type everyRows interface {
	driver.RowsNextResultSet
	columnFacts
}

type columnFacts interface {
	driver.RowsColumnTypeScanType
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeLength
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypePrecisionScale
}

// hooks change what a delegating connection does; a nil hook delegates.
type hooks struct {
	connect func(everyConn) driver.Conn
	begin   func(context.Context, everyConn, driver.TxOptions) (driver.Tx, error)
	exec    func(context.Context, everyConn, string, []driver.NamedValue) (driver.Result, error)
	query   func(context.Context, everyConn, string, []driver.NamedValue) (driver.Rows, error)
	prepare func(context.Context, everyConn, string) (driver.Stmt, error)
	check   func(everyConn, *driver.NamedValue) error
	rows    func(everyRows) driver.Rows
	stmt    func(everyStmt) driver.Stmt
	ping    func(context.Context, everyConn) error
	reset   func(context.Context, everyConn) error
	valid   func(everyConn) bool
	close   func(everyConn) error
}

type wrongConnector struct {
	driver.Connector
	hooks hooks
}

func (c wrongConnector) Close() error {
	if closer, ok := c.Connector.(io.Closer); ok {
		return closer.Close()
	}
	return nil
}

func (c wrongConnector) Connect(ctx context.Context) (driver.Conn, error) {
	dc, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	every := dc.(everyConn)
	if c.hooks.connect != nil {
		return c.hooks.connect(every), nil
	}
	return &wrongConn{every, c.hooks}, nil
}

type wrongConn struct {
	everyConn
	hooks hooks
}

func (c *wrongConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.hooks.begin != nil {
		return c.hooks.begin(ctx, c.everyConn, opts)
	}
	return c.everyConn.BeginTx(ctx, opts)
}

func (c *wrongConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	if c.hooks.exec != nil {
		return c.hooks.exec(ctx, c.everyConn, text, args)
	}
	return c.everyConn.ExecContext(ctx, text, args)
}

func (c *wrongConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Rows, error) {
	if c.hooks.query != nil {
		return c.hooks.query(ctx, c.everyConn, text, args)
	}
	rows, err := c.everyConn.QueryContext(ctx, text, args)
	if err == nil && c.hooks.rows != nil {
		return c.hooks.rows(rows.(everyRows)), nil
	}
	return rows, err
}

func (c *wrongConn) PrepareContext(ctx context.Context, text string) (driver.Stmt, error) {
	if c.hooks.prepare != nil {
		return c.hooks.prepare(ctx, c.everyConn, text)
	}
	s, err := c.everyConn.PrepareContext(ctx, text)
	if err == nil && c.hooks.stmt != nil {
		return c.hooks.stmt(s.(everyStmt)), nil
	}
	return s, err
}

func (c *wrongConn) CheckNamedValue(nv *driver.NamedValue) error {
	if c.hooks.check != nil {
		return c.hooks.check(c.everyConn, nv)
	}
	return c.everyConn.CheckNamedValue(nv)
}

func (c *wrongConn) Ping(ctx context.Context) error {
	if c.hooks.ping != nil {
		return c.hooks.ping(ctx, c.everyConn)
	}
	return c.everyConn.Ping(ctx)
}

func (c *wrongConn) ResetSession(ctx context.Context) error {
	if c.hooks.reset != nil {
		return c.hooks.reset(ctx, c.everyConn)
	}
	return c.everyConn.ResetSession(ctx)
}

func (c *wrongConn) IsValid() bool {
	if c.hooks.valid != nil {
		return c.hooks.valid(c.everyConn)
	}
	return c.everyConn.IsValid()
}

func (c *wrongConn) Close() error {
	if c.hooks.close != nil {
		return c.hooks.close(c.everyConn)
	}
	return c.everyConn.Close()
}

var (
	everything = fakedb.Variant{Name: "everything", Features: fakedb.All}
	skipping   = fakedb.Variant{Name: "skipping", Features: fakedb.All, Quirks: fakedb.SkipWithArgs}
)

// caught returns those of the named cases, or of all, that see a difference.
func caught(t *testing.T, v fakedb.Variant, wrap func(driver.Connector) driver.Connector, names ...string) []string {
	t.Helper()
	target := Fake(v, wrap)
	target.patience = time.Second
	var failing []string
	for _, c := range Cases() {
		if !target.SQL.provides().has(c.Needs) || len(names) > 0 && !slices.Contains(names, c.Name) {
			continue
		}
		if len(compare(t, target, c)) > 0 {
			failing = append(failing, c.Name)
		}
	}
	return failing
}

func TestAWrapperThatOnlyDelegatesIsTransparent(t *testing.T) {
	t.Parallel()
	wrap := func(c driver.Connector) driver.Connector { return wrongConnector{Connector: c} }
	require.Empty(t, caught(t, everything, wrap))
	require.Empty(t, caught(t, skipping, wrap))
}

func TestEveryWrongWrapperIsCaught(t *testing.T) {
	type (
		ctx    = context.Context
		args   = []driver.NamedValue
		txOpts = driver.TxOptions
	)
	wrapped := errors.New("wrapper")
	for _, wrong := range []struct {
		name  string
		over  fakedb.Variant
		hooks hooks
		by    []string // cases that must see it
	}{
		{"drops isolation levels", everything, hooks{
			begin: func(ctx ctx, c everyConn, _ txOpts) (driver.Tx, error) { return c.BeginTx(ctx, txOpts{}) },
		}, []string{"IsolationLevelsReachTheServer", "ReadOnlyTransactionsRefuseWrites", "IsolationAndReadOnlyAreTheServersBusiness"}},
		{"loses every column type", everything, hooks{
			rows: func(r everyRows) driver.Rows { return struct{ driver.Rows }{r} },
		}, []string{"ColumnTypesAreTheDrivers", "ResultSetsComeInOrder"}},
		{"loses ScanType", everything, hooks{
			rows: func(r everyRows) driver.Rows { return struct{ scanless }{r} },
		}, []string{"ColumnTypesAreTheDrivers", "ColumnTypesFollowTheResultSet"}},
		{"loses ColumnConverter", everything, hooks{
			stmt: func(s everyStmt) driver.Stmt { return noConverter{s, s, s, s} },
		}, []string{"ColumnConvertersConvertWhatIsInserted"}},
		{"loses the statement's NamedValueChecker", everything, hooks{
			stmt: func(s everyStmt) driver.Stmt { return noChecker{s, s, s} },
		}, []string{"ArgumentTypesOfTheDriverReachItsChecker"}},
		{"makes an error of ErrSkip", skipping, hooks{
			exec: func(ctx ctx, c everyConn, text string, args args) (driver.Result, error) {
				res, err := c.ExecContext(ctx, text, args)
				if errors.Is(err, driver.ErrSkip) {
					err = fmt.Errorf("wrapper: %w", err)
				}
				return res, err
			},
		}, []string{"StatementsThatSkipAreExecutedOnce"}},
		{"swallows ErrSkip", skipping, hooks{
			exec: func(ctx ctx, c everyConn, text string, args args) (driver.Result, error) {
				res, err := c.ExecContext(ctx, text, args)
				if errors.Is(err, driver.ErrSkip) {
					return driver.ResultNoRows, nil
				}
				return res, err
			},
		}, []string{"StatementsThatSkipAreExecutedOnce", "ArgumentsAreStoredAlike"}},
		{"swallows ErrRemoveArgument", everything, hooks{
			check: func(c everyConn, nv *driver.NamedValue) error {
				if err := c.CheckNamedValue(nv); !errors.Is(err, driver.ErrRemoveArgument) {
					return err
				}
				return driver.ErrSkip
			},
		}, []string{"ArgumentsForTheDriverAloneAreRemoved"}},
		{"drops the caller's context", everything, hooks{
			exec: func(_ ctx, c everyConn, text string, args args) (driver.Result, error) {
				return c.ExecContext(context.Background(), text, args)
			},
		}, []string{"ContextValuesReachTheDriver", "CancelReachesTheRunningCall"}},
		{"executes twice", everything, hooks{
			exec: func(ctx ctx, c everyConn, text string, args args) (driver.Result, error) {
				_, _ = c.ExecContext(ctx, text, args)
				return c.ExecContext(ctx, text, args)
			},
		}, []string{"ExecReportsRowsAffectedAndLastInsertID", "ErrorsAfterExecutionAreNotRetried"}},
		{"makes a result of its own", everything, hooks{
			exec: func(ctx ctx, c everyConn, text string, args args) (driver.Result, error) {
				res, err := c.ExecContext(ctx, text, args)
				if err != nil {
					return nil, err
				}
				n, _ := res.RowsAffected()
				return driver.RowsAffected(n), nil
			},
		}, []string{"ExecReportsRowsAffectedAndLastInsertID", "ExecOfDDLHasTheDriversResult"}},
		{"adds a text to errors", everything, hooks{
			query: func(ctx ctx, c everyConn, text string, args args) (driver.Rows, error) {
				rows, err := c.QueryContext(ctx, text, args)
				if err != nil {
					return nil, fmt.Errorf("query: %w", err)
				}
				return rows, nil
			},
		}, []string{"ErrorsKeepTextTypeAndChain", "SyntaxErrorsComeAtOnce"}},
		{"replaces driver.ErrBadConn", everything, hooks{
			exec: func(ctx ctx, c everyConn, text string, args args) (driver.Result, error) {
				res, err := c.ExecContext(ctx, text, args)
				if errors.Is(err, driver.ErrBadConn) {
					return nil, wrapped
				}
				return res, err
			},
		}, []string{"OneBadConnectionIsTriedAgain", "OnlyBadConnectionsAreReported"}},
		{"ends rows instead of failing", everything, hooks{
			rows: func(r everyRows) driver.Rows { return &silentRows{everyRows: r} },
		}, []string{"ErrorsInMidStreamComeAfterTheRows"}},
		{"reads a row ahead without copying it", everything, hooks{
			rows: func(r everyRows) driver.Rows { return &aheadRows{everyRows: r} },
		}, []string{"BytesScannedBelongToTheCaller", "RawBytesAreValidUntilTheNextRow"}},
		{"checks syntax late", everything, hooks{
			prepare: func(ctx ctx, c everyConn, text string) (driver.Stmt, error) {
				s, err := c.PrepareContext(ctx, text)
				if err != nil {
					return c.PrepareContext(ctx, "SELECT 1")
				}
				return s, nil
			},
		}, []string{"SyntaxErrorsComeAtOnce"}},
		{"answers pings itself", everything, hooks{
			ping: func(ctx, everyConn) error { return nil },
		}, []string{"PingErrorsGoThroughUnchanged"}},
		{"forgets ResetSession", everything, hooks{
			reset: func(ctx, everyConn) error { return nil },
		}, []string{"ResetComesBetweenTwoCheckouts"}},
		{"finds every connection valid", everything, hooks{
			valid: func(everyConn) bool { return true },
		}, []string{"InvalidConnectionsAreNotReused"}},
		{"never closes", everything, hooks{
			close: func(everyConn) error { return nil },
		}, []string{"PingReachesTheServer"}},
		{"closes twice", everything, hooks{
			close: func(c everyConn) error { return errors.Join(c.Close(), c.Close()) },
		}, []string{"PingReachesTheServer"}},
		{"turns panics into errors", everything, hooks{
			exec: func(ctx ctx, c everyConn, text string, args args) (res driver.Result, err error) {
				defer func() {
					if r := recover(); r != nil {
						err = wrapped
					}
				}()
				return c.ExecContext(ctx, text, args)
			},
		}, []string{"PanicsOfExecGiveTheConnectionBack"}},
		{"commits what is rolled back", everything, hooks{
			begin: func(ctx ctx, c everyConn, opts txOpts) (driver.Tx, error) {
				tx, err := c.BeginTx(ctx, opts)
				return keepingTx{tx}, err
			},
		}, []string{"CommitKeepsAndRollbackUndoes", "ContextThatEndsRollsTheTransactionBack"}},
	} {
		t.Run(wrong.name, func(t *testing.T) {
			t.Parallel()
			wrap := func(c driver.Connector) driver.Connector { return wrongConnector{c, wrong.hooks} }
			require.ElementsMatch(t, wrong.by, caught(t, wrong.over, wrap, wrong.by...))
		})
	}
}

func TestAWrapperThatPanicsWithoutExecerIsCaught(t *testing.T) {
	wrap := func(c driver.Connector) driver.Connector { return panickyConnector{c} }
	by := []string{"ExecReportsRowsAffectedAndLastInsertID", "ArgumentsAreStoredAlike"}
	require.ElementsMatch(t, by, caught(t, fakedb.Variant{Name: "bare minimum"}, wrap, by...))
}

type panickyConnector struct{ driver.Connector }

func (c panickyConnector) Connect(ctx context.Context) (driver.Conn, error) {
	dc, err := c.Connector.Connect(ctx)
	return panickyConn{dc}, err
}

type panickyConn struct{ driver.Conn }

func (c panickyConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (driver.Result, error) {
	return c.Conn.(driver.ExecerContext).ExecContext(ctx, text, args)
}

// scanless is everything that rows can have but the type to scan into.
type scanless interface {
	driver.RowsNextResultSet
	driver.RowsColumnTypeDatabaseTypeName
	driver.RowsColumnTypeLength
	driver.RowsColumnTypeNullable
	driver.RowsColumnTypePrecisionScale
}

type noConverter struct {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
	driver.NamedValueChecker
}

type noChecker struct {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

type silentRows struct{ everyRows }

func (r *silentRows) Next(dest []driver.Value) error {
	if r.everyRows.Next(dest) != nil {
		return io.EOF
	}
	return nil
}

// aheadRows hands out each row after having asked the driver for the next.
type aheadRows struct {
	everyRows
	ahead []driver.Value
	err   error
	begun bool
}

func (r *aheadRows) read() {
	r.ahead = make([]driver.Value, len(r.Columns()))
	r.err = r.everyRows.Next(r.ahead)
}

func (r *aheadRows) Next(dest []driver.Value) error {
	if !r.begun {
		r.begun = true
		r.read()
	}
	if r.err != nil {
		return r.err
	}
	copy(dest, r.ahead)
	r.read()
	return nil
}

type keepingTx struct{ driver.Tx }

func (t keepingTx) Rollback() error { return t.Commit() }
