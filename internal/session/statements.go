package session

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
)

// Statement is a text to be executed, with its arguments. Convert makes the arguments what
// the driver expects.
type Statement struct {
	Text   string
	Effect dialects.Effect
	Args   []driver.NamedValue
	// Prepared is the prepared statement that is executed; nil: the text is sent as it is.
	Prepared *stmtcache.Stmt
}

// CanExec reports whether the driver executes statements without preparing them.
func (s *Session) CanExec() bool { return s.conn.CanExec() }

// CanQuery is CanExec for queries.
func (s *Session) CanQuery() bool { return s.conn.CanQuery() }

// Exec executes a statement.
func (s *Session) Exec(ctx context.Context, st *Statement) (res driver.Result, err error) {
	s.recordStatement(st)
	if st.Prepared == nil {
		return s.ExecText(ctx, st.Text, st.Effect, s.readAnew(st.Args))
	}
	s.call()
	res, err = driverconn.ExecStmt(ctx, st.Prepared.Driver, st.Args)
	s.returned()
	return res, err
}

// Rereads reports whether texts are to be read anew, because the session's settings are not those at
// connect.
func (s *Session) Rereads() bool { return s.effect&dialects.Rereads != 0 }

// SendsAsItIs reports whether a text is sent as it is, with its arguments as they are, and no kept
// statement of the text is in the way. The caller asks Rereads first.
func (s *Session) SendsAsItIs(text string, args []driver.NamedValue) bool {
	return s.TakesArgsAsGiven(args) && !(s.traits.PreparedAges && s.stmts.Has(text))
}

// ExecText executes a text that is sent as it is. In a transaction of a task, and for a text that may
// leave more than data, call Exec.
func (s *Session) ExecText(ctx context.Context, text string, effect dialects.Effect, args []driver.NamedValue) (driver.Result, error) {
	s.effect |= effect
	s.call()
	res, err := s.conn.Exec(ctx, text, args)
	if err != nil {
		var again bool
		if again, err = s.recompiles(ctx, text, err); again {
			res, err = s.conn.Exec(ctx, text, args)
		}
	}
	s.returned()
	return res, err
}

// QueryText is ExecText for a query.
func (s *Session) QueryText(ctx context.Context, text string, effect dialects.Effect, args []driver.NamedValue) (rows driver.Rows, columns []string, err error) {
	s.effect |= effect
	s.call()
	if rows, err = s.conn.Query(ctx, text, args); err != nil {
		var again bool
		if again, err = s.recompiles(ctx, text, err); again {
			rows, err = s.conn.Query(ctx, text, args)
		}
	}
	if err == nil {
		columns = columnsOf(rows)
	}
	s.returned()
	return rows, columns, err
}

// Query runs a query. columns are the names of its columns. They are nil if the driver has
// panicked when it was asked for them: Rows.Columns asks again.
func (s *Session) Query(ctx context.Context, st *Statement) (rows driver.Rows, columns []string, err error) {
	s.recordStatement(st)
	if st.Prepared == nil {
		return s.QueryText(ctx, st.Text, st.Effect, s.readAnew(st.Args))
	}
	s.call()
	if rows, err = driverconn.QueryStmt(ctx, st.Prepared.Driver, st.Args); err == nil {
		columns = columnsOf(rows)
	}
	s.returned()
	return rows, columns, err
}

// readAnew returns the arguments of a text that is sent as it is. If the session's settings are not
// those at connect, the driver neither keeps a statement for the text nor uses a kept one.
func (s *Session) readAnew(args []driver.NamedValue) []driver.NamedValue {
	bySettings := s.ReadBySettings()
	if bySettings && s.effect&dialects.Suspect != 0 {
		s.effect |= dialects.Rereads // a function keeps what it has read by the settings
	}
	if s.rereader != nil && (bySettings || s.Rereads()) {
		return s.rereader.Anew(args)
	}
	return args
}

// columnsOf asks the driver for the names of the columns, because database/sql is about to ask
// for them. If the driver panics, it is asked again when database/sql asks. database/sql
// survives a panic there, and does not survive one in Query.
func columnsOf(rows driver.Rows) (names []string) {
	defer func() { _ = recover() }()
	return rows.Columns()
}

// Ping asks the driver for a sign of life.
func (s *Session) Ping(ctx context.Context) error {
	s.call()
	err := s.conn.Ping(ctx)
	s.returned()
	return err
}

// Command executes a statement of this package or of its caller, and not of the program.
func (s *Session) Command(ctx context.Context, text string, args ...driver.NamedValue) error {
	return s.conn.Command(ctx, text, args...)
}

// Statements are the prepared statements that are kept.
func (s *Session) Statements() *stmtcache.Cache { return &s.stmts }

// Kept returns the kept statement of a text, or nil if there is none that is valid in the
// given generation of the text.
func (s *Session) Kept(text string, generation uint64) *stmtcache.Stmt {
	return s.stmts.Get(text, generation, s.currentSchema())
}

// PrepareOwned prepares a text for a statement of the program's that owns what it prepares.
func (s *Session) PrepareOwned(ctx context.Context, text string, owner *stmtcache.Owner) (*stmtcache.Stmt, error) {
	s.call()
	si, err := s.conn.Prepare(ctx, text)
	s.returned()
	if err != nil {
		return nil, err
	}
	return s.stmts.Own(owner, si), nil
}

// Disown closes what a statement of the program's has prepared here.
func (s *Session) Disown(owner *stmtcache.Owner) error {
	s.running++
	err := s.stmts.Disown(owner)
	s.running--
	return err
}

// Prepare prepares a text, and keeps the statement if keep is true.
func (s *Session) Prepare(ctx context.Context, text string, generation uint64, keep bool) (*stmtcache.Stmt, error) {
	s.call()
	si, err := s.conn.Prepare(ctx, text)
	if err != nil && s.env.Dialect.Diagnose(err)&dialects.TooManyPrepared != 0 {
		s.stmts.CloseAll()
		s.owner.StatementsExhausted()
		si, err = s.conn.Prepare(ctx, text)
	}
	if err != nil {
		var again bool
		if again, err = s.recompiles(ctx, text, err); again {
			si, err = s.conn.Prepare(ctx, text)
		}
	}
	s.returned()
	if err != nil {
		return nil, err
	}
	st := s.stmts.Add(text, generation, si, keep)
	st.SchemaGeneration = s.currentSchema()
	return st, nil
}

// recompiles reports whether a text has failed only because the connection did not know the present
// schema, and can be sent again. Otherwise the error is failed, perhaps with the reason.
func (s *Session) recompiles(ctx context.Context, text string, failed error) (again bool, _ error) {
	var why error
	complete := func() {
		if s.env.Dialect.Diagnose(failed)&dialects.UnknownName != 0 {
			why = s.owner.CompleteSettings(ctx)
		}
	}
	if r, ok := s.server.(dialects.Recompiler); !ok {
		complete()
	} else if r.Recompiles(ctx, text, failed, complete) {
		return true, nil
	}
	if why != nil {
		failed = fmt.Errorf("%w; pooldriver: the settings of the *sql.DB are not complete on this connection: %w", failed, why)
	}
	return false, failed
}

// currentSchema is the schema generation in a task's transaction, else 0.
func (s *Session) currentSchema() uint64 {
	if s.tx == nil || !s.inTask {
		return 0
	}
	return s.schemaGeneration
}

// Convert converts the arguments of st for the driver. The driver or code of the program may
// panic. If fatal is true, Calls counts that.
func (s *Session) Convert(st *Statement, fatal bool) (err error) {
	if fatal {
		s.running++
	}
	if st.Prepared != nil {
		st.Args, err = s.converter(st.Prepared).Convert(st.Args)
	} else {
		direct := driverconn.ConverterOf(s.conn.Checker, nil)
		st.Args, err = direct.Convert(st.Args)
	}
	if fatal {
		s.running--
	}
	return err
}

// Converter returns what converts arguments for a statement. It may be used without the lock.
func (s *Session) Converter(prepared *stmtcache.Stmt) driverconn.Converter {
	if prepared == nil {
		return driverconn.ConverterOf(s.conn.Checker, nil)
	}
	s.call()
	c := *s.converter(prepared)
	s.returned()
	return c
}

func (s *Session) converter(st *stmtcache.Stmt) *driverconn.Converter {
	if !st.Asked {
		s.running++
		st.Converter = driverconn.ConverterOf(s.conn.Checker, st.Driver)
		s.running--
		st.Asked = true
	}
	return &st.Converter
}

// TakesArgsAsGiven reports whether a text that is sent as it is needs no conversion any more. It
// converts args if they are of the types that every program uses.
func (s *Session) TakesArgsAsGiven(args []driver.NamedValue) bool {
	return s.traits.ArgsAsGiven || s.conn.Checker == nil && driverconn.MakePlain(args)
}

// Fits reports whether the prepared statement of st can be executed with arguments of these
// kinds. If it cannot, it is not used again.
func (s *Session) Fits(st *Statement) bool {
	if !s.traits.PreparedKeepsTypes || st.Prepared.Fits(st.Args) {
		return true
	}
	s.stmts.MarkStale(st.Prepared)
	return false
}

// DropStale closes the kept statement of a text, if it is not valid any more, before the text
// is sent as it is. A driver that finds prepared statements by their texts (pgx) would
// execute the old statement.
func (s *Session) DropStale(text string, generation uint64) {
	s.running++
	s.stmts.DropStale(text, generation, s.currentSchema())
	s.running--
}

// Drop closes the kept statement of a text.
func (s *Session) Drop(text string) {
	s.running++
	s.stmts.Drop(text)
	s.running--
}

// ReturnStatements closes all kept statements, and then pings. MySQL does not answer when it
// closes a statement. But when it answers the ping, it has closed the statements.
func (s *Session) ReturnStatements(ctx context.Context) {
	if s.stmts.Len() == 0 {
		return
	}
	s.running++
	s.stmts.CloseAll()
	err := s.PingServer(ctx)
	s.running--
	if err != nil {
		s.MarkUnusable()
	}
}

// MayRenew reports whether a statement that the server has called stale can be prepared and
// executed again: it must not have changed anything. In a transaction the program decides. A
// statement that calls code on the server may have committed something before it failed. A script
// that writes may have done so, too: SQLite's driver prepares and commits its statements one by
// one.
func (s *Session) MayRenew(st *Statement) bool {
	if s.Begun() || st.Effect&(dialects.Suspect|dialects.TxControl) != 0 {
		return false
	}
	if st.Effect&dialects.Writes != 0 && dialects.MayBeScript(st.Text) {
		return false
	}
	switch s.server.TxStatus() {
	case dialects.TxOpen, dialects.TxFailed, dialects.TxImplicit:
		return false
	}
	return true
}
