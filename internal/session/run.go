package session

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/direct"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
)

// Statement is a text to be executed, with its arguments, and what came of it.
type Statement struct {
	Text    string
	Effect  dialects.Effect
	Args    []driver.NamedValue
	Queries bool // it returns rows

	// Prepares: the text is executed by a prepared statement. Generation is that of the program's
	// statement (stmtcache.Generations), and Owner owns what is prepared; nil: it is kept by its
	// text, if Keep is true.
	Prepares   bool
	Keep       bool
	Generation uint64
	Owner      *stmtcache.Owner

	Cargo Cargo // the settings of the context that it carries

	// Wrote is told whether a text that is sent as it is has written; nil: nobody asks.
	Wrote func(wrote bool)

	// Fatal: if the conversion of the arguments panics, Calls counts that.
	Fatal bool
	// Converted: the arguments are what the driver expects.
	Converted bool

	// The results of Run.
	Result  driver.Result
	Rows    driver.Rows
	Columns []string           // names of Rows; nil: the driver has panicked, and is asked again
	Said    dialects.Diagnosis // of an error of the driver
	// Unprepared: the server was asked to prepare it, and has refused.
	Unprepared bool

	renewals int8 // how often it was stale and was prepared again
	prepared *stmtcache.Stmt

	// Direct sends it in place of the driver's methods for texts; nil: those do. Converted is true then.
	Direct *direct.Call

	Under Under // of Rows; nil: no Guard is there
}

// Settings are the settings that c carries.
func (c *Cargo) Settings() []dialects.ContextSetting { return c.settings }

// ErrUnconverted is Run's error if the arguments are to be converted by Converter without the lock, because code of the program may
// run, which may use the session. Then Run is called again.
var ErrUnconverted = errors.New("pooldriver: the arguments are not converted")

// Run executes st: it finds or makes the prepared statement, converts the arguments, sends, and
// prepares a stale statement again. executed: the driver was called to execute it, and may have failed. Otherwise err says why not.
func (s *Session) Run(ctx context.Context, st *Statement) (executed bool, err error) {
	for again := true; again; {
		again, executed, err = s.runOnce(ctx, st)
	}
	if err != nil || !st.Queries {
		s.settle()
	}
	return executed, err
}

// runOnce is one try of Run. again: it is to be run once more.
func (s *Session) runOnce(ctx context.Context, st *Statement) (again, executed bool, err error) {
	if !s.isReady(st) {
		if again, err = s.makeReady(ctx, st); again || err != nil {
			return again, false, err
		}
	}
	if st.Effect&(pinning.ChangesSession|dialects.ForgetPrepared) != 0 {
		err = s.owner.Sending(ctx, st)
	}
	switch {
	case err != nil:
	case st.Cargo.settings != nil:
		err = s.sendWithSettings(ctx, st)
	case st.Wrote != nil && st.prepared == nil:
		err = s.sendAsking(ctx, st)
	default:
		err = s.send(ctx, st)
	}
	if err != nil || st.prepared != nil || !LeavesNothing(st.Effect) {
		again, err = s.answered(st, err)
	}
	return again, true, err
}

// isReady reports whether makeReady has nothing to do for st: a text that is sent as it is, with arguments that
// the driver takes, on a session that keeps no statement which could be stale.
func (s *Session) isReady(st *Statement) bool {
	if st.Prepares || st.Direct != nil || st.renewals != 0 || s.traits.PreparedAges && s.stmts.Len() != 0 || !s.sendsTexts(st) {
		return false
	}
	st.Converted = st.Converted || s.takesArgsAsGiven(st.Args)
	return st.Converted
}

// makeReady finds the prepared statement, if st is executed by one, and converts the arguments. again: that statement does not fit.
func (s *Session) makeReady(ctx context.Context, st *Statement) (again bool, err error) {
	st.prepared, st.Said, st.Unprepared = nil, 0, false
	switch {
	case s.prepares(st):
		asked, err := s.find(ctx, st)
		if err != nil {
			st.Unprepared = asked
			return false, err
		}
	case st.Direct == nil && !s.sendsTexts(st):
		return false, driver.ErrSkip
	}
	if !st.Converted {
		if err = s.convert(st); err != nil {
			return false, err
		}
	}
	if st.prepared == nil {
		return false, s.dropStale(ctx, st)
	}
	if s.fits(st) {
		return false, nil
	}
	s.stmts.Done(st.prepared)
	return true, nil
}

// prepares reports whether st is executed by a prepared statement. A text whose literals the server reads by the settings
// is not, nor is one that the Guard executes itself. An error of the Guard is reported when st is executed.
func (s *Session) prepares(st *Statement) bool {
	if !st.Prepares || s.ReadBySettings() && s.sendsTexts(st) {
		return false
	}
	controls, err := s.controls(st.Text)
	return !controls && err == nil
}

// sendsTexts reports whether the driver executes st without a prepared statement.
func (s *Session) sendsTexts(st *Statement) bool {
	if st.Queries {
		return s.conn.CanQuery()
	}
	return s.conn.CanExec()
}

// send calls the driver.
func (s *Session) send(ctx context.Context, st *Statement) (err error) {
	s.recordStatement(st)
	s.call()
	counts := s.rereader != nil && st.prepared == nil
	var prepared, executed uint64
	if counts {
		prepared, executed = s.rereader.Kept()
	}
	err = s.sendOnce(ctx, st)
	if err != nil && st.prepared == nil {
		again := false
		if again, err = s.recompiles(ctx, st.Text, err); again {
			err = s.sendOnce(ctx, st)
		}
	}
	if counts {
		s.countKept(prepared, executed)
	}
	if st.Queries && err == nil {
		st.Columns = columnsOf(st.Rows)
	}
	s.returned()
	return err
}

// sendAsking is send for a text that is to be told whether it has written.
func (s *Session) sendAsking(ctx context.Context, st *Statement) error {
	defer s.ask(ctx, st)()
	return s.send(ctx, st)
}

// countKept counts what the driver itself has prepared and executed since, of what it keeps.
func (s *Session) countKept(prepared, executed uint64) {
	nowPrepared, nowExecuted := s.rereader.Kept()
	misses, uses := nowPrepared-prepared, nowExecuted-executed
	if misses+uses == 0 {
		return
	}
	s.env.Misses.Add(misses)
	s.env.Hits.Add(max(misses, uses) - misses)
}

// sendOnce has the driver execute st, under the Guard if there is one.
func (s *Session) sendOnce(ctx context.Context, st *Statement) error {
	if s.guard != nil {
		return s.execute(ctx, st)
	}
	return s.toDriver(ctx, st)
}

func (s *Session) toDriver(ctx context.Context, st *Statement) (err error) {
	switch {
	case st.prepared != nil && st.Queries:
		st.Rows, err = driverconn.QueryStmt(ctx, st.prepared.Driver, st.Args)
		return err
	case st.prepared != nil:
		st.Result, err = driverconn.ExecStmt(ctx, st.prepared.Driver, st.Args)
		return err
	}
	if st.Direct != nil {
		return s.sendDirect(ctx, st)
	}
	args := st.Args
	if s.rereader != nil {
		args = s.readAnew(args)
	}
	if st.Queries {
		st.Rows, err = s.conn.Query(ctx, st.Text, args)
	} else {
		st.Result, err = s.conn.Exec(ctx, st.Text, args)
	}
	return err
}

// sendDirect has the caller send st.
func (s *Session) sendDirect(ctx context.Context, st *Statement) (err error) {
	how := direct.SendOptions{Unkept: s.rereader != nil && s.readsAnew()}
	st.Rows, err = st.Direct.Sender.Send(ctx, s.realConn(), how)
	return err
}

// answered records what the driver has answered. again: st is to be run once more.
func (s *Session) answered(st *Statement, err error) (again bool, _ error) {
	if err != nil && err != driver.ErrSkip {
		st.Said = s.Diagnose(err)
	}
	stale := st.Said&dialects.StaleStatement != 0
	if p := st.prepared; p != nil {
		if stale {
			s.stmts.MarkStale(p)
		}
		if st.Queries && err == nil {
			p.Open++
		}
		s.letGo(p, err)
	}
	if stale && s.renews(st) {
		return true, nil
	}
	s.RecordResult(st.Effect, err)
	if err != nil {
		s.owner.Failed()
	}
	return false, err
}

// letGo ends the use of a prepared statement, whose execution has ended with err. If the statement is
// closed, what that sends is not what the execution has sent: see Unsent.
func (s *Session) letGo(p *stmtcache.Stmt, err error) {
	unsent := false
	if err != nil {
		unsent, _ = s.Unsent()
	}
	s.stmts.Done(p)
	if unsent {
		s.sent, _ = s.server.Sent()
	}
}

// maxRenewals bounds how often a stale statement is prepared again. Each ALTER TABLE between the
// prepare and the execution makes the statement stale once more. On two busy
// processors, with an ALTER TABLE every 18 ms, 14 of 15,700 statements needed more than
// three renewals. After the last one the program gets the server's error.
const maxRenewals = 10

// renews prepares that st, which was stale, is run once more, if it may be.
func (s *Session) renews(st *Statement) bool {
	if st.renewals == maxRenewals || !s.mayRenew(st) {
		return false
	}
	st.renewals++
	if st.prepared == nil {
		s.drop(st.Text) // pgx keeps statements itself, and finds ours by their texts
	}
	return true
}

// mayRenew reports whether a statement that the server has called stale can be prepared and
// executed again: it must not have changed anything. In a transaction the program decides. A
// statement that calls code on the server may have committed something before it failed. A script
// that writes may have done so, too: SQLite's driver prepares and commits its statements one by
// one.
func (s *Session) mayRenew(st *Statement) bool {
	if s.Begun() || st.Effect&(dialects.Suspect|dialects.TxControl) != 0 {
		return false
	}
	if st.Effect&dialects.Writes != 0 && dialects.MayBeScript(st.Text) {
		return false
	}
	switch s.status() {
	case dialects.TxOpen, dialects.TxFailed, dialects.TxImplicit:
		return false
	}
	return true
}

// readAnew returns the arguments of a text that is sent as it is. If the session's settings are not
// those at connect, the driver neither keeps a statement for the text nor uses a kept one.
func (s *Session) readAnew(args []driver.NamedValue) []driver.NamedValue {
	if s.readsAnew() {
		return s.rereader.Anew(args)
	}
	return args
}

// readsAnew reports whether the session's settings are not those at connect.
func (s *Session) readsAnew() bool {
	bySettings := s.ReadBySettings()
	if bySettings && s.effect&dialects.Suspect != 0 {
		s.effect |= dialects.Rereads // a function keeps what it has read by the settings
	}
	return bySettings || s.effect&dialects.Rereads != 0
}

// columnsOf asks the driver for the names of the columns, because database/sql is about to ask
// for them. If the driver panics, it is asked again when database/sql asks. database/sql
// survives a panic there, and does not survive one in Query.
func columnsOf(rows driver.Rows) (names []string) {
	defer func() { _ = recover() }()
	return rows.Columns()
}

// convert converts the arguments of st for the driver. The driver or code of the program may
// panic.
func (s *Session) convert(st *Statement) (err error) {
	if st.prepared == nil && s.takesArgsAsGiven(st.Args) {
		st.Converted = true
		return nil
	}
	if s.inTask && driverconn.MayRunCode(st.Args) {
		return ErrUnconverted
	}
	done := false
	defer func() {
		if !done && st.prepared != nil { // an error or a panic
			s.stmts.Done(st.prepared)
		}
	}()
	if st.Fatal {
		s.running++
	}
	if st.prepared != nil {
		st.Args, err = s.converterFor(st.prepared).Convert(st.Args)
	} else {
		direct := driverconn.ConverterOf(s.conn.Checker, nil)
		st.Args, err = direct.Convert(st.Args)
	}
	if st.Fatal {
		s.running--
	}
	done, st.Converted = err == nil, err == nil
	return err
}

// Converter returns what converts the arguments of st after ErrUnconverted. It may be used without
// the lock.
func (s *Session) Converter(st *Statement) driverconn.Converter {
	if st.prepared == nil {
		return driverconn.ConverterOf(s.conn.Checker, nil)
	}
	s.call()
	c := *s.converterFor(st.prepared)
	s.returned()
	s.stmts.Done(st.prepared)
	return c
}

func (s *Session) converterFor(prepared *stmtcache.Stmt) *driverconn.Converter {
	if !prepared.Asked {
		s.running++
		prepared.Converter = driverconn.ConverterOf(s.conn.Checker, prepared.Driver)
		s.running--
		prepared.Asked = true
	}
	return &prepared.Converter
}

// takesArgsAsGiven reports whether a text that is sent as it is needs no conversion any more. It
// converts args if they are of the types that every program uses.
func (s *Session) takesArgsAsGiven(args []driver.NamedValue) bool {
	return s.traits.ArgsAsGiven || s.conn.Checker == nil && driverconn.MakePlain(args)
}

// fits reports whether the prepared statement of st can be executed with arguments of these
// kinds. If it cannot, it is not used again.
func (s *Session) fits(st *Statement) bool {
	if !s.traits.PreparedKeepsTypes || st.prepared.Fits(st.Args) {
		return true
	}
	s.stmts.MarkStale(st.prepared)
	return false
}

// dropStale closes the kept statement of a text that is about to be sent as it is, if it is stale: a
// driver that finds prepared statements by their texts (pgx) would execute it. If the server is to
// read the text by the settings of a context, every prepared statement of the text is stale. For a batch none is
// kept: that the server calls one stale may be known too late to send the batch again.
func (s *Session) dropStale(ctx context.Context, st *Statement) error {
	switch text := st.Text; {
	case !s.traits.PreparedAges || s.stmts.Len() == 0:
		return nil
	case st.Direct != nil && len(st.Direct.MoreTexts) > 0:
		s.drop(st.Direct.Text)
		for _, text := range st.Direct.MoreTexts {
			s.drop(text)
		}
	case !s.stmts.Has(text):
		return nil
	case s.ReadBySettings():
		s.drop(text)
	default:
		s.dropBefore(text, s.env.Generations.Of(text))
	}
	return ctxerr.Of(ctx, ctx.Err()) // closing may have taken long
}

// dropBefore closes the kept statement of a text if it is not valid in a generation of the text.
func (s *Session) dropBefore(text string, generation uint64) {
	s.running++
	s.stmts.DropStale(text, generation, s.currentSchema())
	s.running--
}

// drop closes the kept statement of a text.
func (s *Session) drop(text string) {
	s.running++
	s.stmts.Drop(text)
	s.running--
}
