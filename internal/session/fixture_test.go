package session_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/generic"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fixture is a session on the fake database. The test holds its lock.
type fixture struct {
	*session.Session

	t      *testing.T
	db     *fakedb.Server
	server *server
	holder *holder
	env    session.Env
	conn   *conn // nil unless setup.intercept

	buffered   atomic.Int64
	readAheads atomic.Uint64
	hits       atomic.Uint64
	misses     atomic.Uint64
	// panicked says that the test made a call of the driver panic.
	panicked bool
}

// setup says what the session of a test is like.
type setup struct {
	traits    dialects.Traits
	without   fakedb.Features // what the driver lacks
	inTask    bool
	blind     bool // the server does not tell the transaction's state
	counts    bool // it counts what is sent
	env       config.Config
	intercept bool
	// extend adds optional interfaces to the dialect's session.
	extend func(*server) dialects.Session
}

func open(t *testing.T, with setup) *fixture {
	t.Helper()
	f := &fixture{t: t, db: fakedb.NewServer(), env: session.Env{Config: &with.env}}
	f.env.Dialect = dialect{}
	f.env.Buffered, f.env.ReadAheads = &f.buffered, &f.readAheads
	f.env.Hits, f.env.Misses, f.env.Generations = &f.hits, &f.misses, new(stmtcache.Generations)
	if f.env.StmtCache == 0 {
		f.env.StmtCache = 8
	}
	if f.env.CleanTimeout == 0 {
		f.env.CleanTimeout, f.env.PingTimeout, f.env.IdleTimeout = time.Minute, time.Minute, time.Minute
	}
	if f.env.NestedBuffer == 0 {
		f.env.NestedBuffer, f.env.NestedBufferTotal, f.env.NestedBufferOthers = 1<<30, 1<<30, 1<<30
	}
	// The tests read rows by Next; rows that scan their columns are tested by the root. The
	// fake driver can lack one feature at a time.
	lacks := with.without
	if lacks == 0 {
		lacks = fakedb.RowsColumnScanner
	}
	template, err := dialect{}.Wrap(f.db.Connector(fakedb.Variant{Features: fakedb.All &^ lacks}))
	require.NoError(t, err)
	inner, err := template.Dial(t.Context(), nil)
	require.NoError(t, err)
	f.server = &server{Session: inner, db: f.db, blind: with.blind, counts: with.counts}
	if with.intercept {
		f.conn = &conn{fullConn: inner.Conn().(fullConn)}
		f.server.conn = f.conn
	}
	served := dialects.Session(f.server)
	if with.extend != nil {
		served = with.extend(f.server)
	}
	f.Session, f.holder = new(session.Session), &holder{}
	f.Init(&f.env, served, with.traits, f.holder)
	f.Lend(with.inTask)
	t.Cleanup(func() {
		require.Empty(t, f.db.Violations())
		require.Equal(t, f.panicked, f.Calls() > 0, "a call of the driver that has not returned is one that panicked")
	})
	for _, text := range []string{"CREATE TABLE t (a INT)", "CREATE TABLE b (v BLOB)"} {
		require.NoError(t, f.exec(text))
	}
	return f
}

// dialect is the generic one, with errors of known meaning.
type dialect struct{ generic.Dialect }

// meansError is an error of the driver that means something to the dialect.
type meansError dialects.Diagnosis

func (e meansError) Error() string { return fmt.Sprintf("means %b", e) }

func (dialect) Diagnose(err error) dialects.Diagnosis {
	var means meansError
	errors.As(err, &means)
	return dialects.Diagnosis(means)
}

// server is the dialect's session. Beyond the generic one it knows what a real one would:
// the transaction's state and, if asked to, the number of calls that were sent.
type server struct {
	dialects.Session
	db            *fakedb.Server
	conn          driver.Conn // in the place of Session's
	blind, counts bool
	implicit      bool // autocommit is off
	failed        bool // the open transaction accepts only its end

	alive dialects.Liveness
	clean func(dialects.Effect) (bool, error)
	asked int // for the transaction's state
}

func (s *server) Conn() driver.Conn {
	if s.conn != nil {
		return s.conn
	}
	return s.Session.Conn()
}

func (s *server) TxStatus() dialects.TxStatus {
	s.asked++
	open := s.db.State().Sessions
	switch {
	case len(open) == 0:
		return dialects.TxLost
	case s.blind:
		return dialects.TxUnknown
	case !open[0].InTx && s.implicit:
		return dialects.TxImplicit
	case !open[0].InTx:
		return dialects.TxNone
	case s.failed:
		return dialects.TxFailed
	}
	return dialects.TxOpen
}

// Sent counts the calls that reached the driver.
func (s *server) Sent() (uint64, bool) { return uint64(s.db.State().Events), s.counts }

func (s *server) Peek() dialects.Liveness { return s.alive }

func (s *server) Clean(_ context.Context, effect dialects.Effect) (kept bool, err error) {
	return s.clean(effect)
}

// conn intercepts calls of the driver's connection.
type conn struct {
	fullConn
	begun func(context.Context)
	rows  func(driver.Rows) driver.Rows
	tx    func(driver.Tx) driver.Tx
}

// fullConn is a connection of the fake driver's with all features.
type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.SessionResetter
	driver.Validator
}

func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if c.begun != nil {
		c.begun(ctx)
	}
	tx, err := c.fullConn.BeginTx(ctx, opts)
	if err == nil && c.tx != nil {
		tx = c.tx(tx)
	}
	return tx, err
}

func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	rows, err := c.fullConn.QueryContext(ctx, query, args)
	if err == nil && c.rows != nil {
		rows = c.rows(rows)
	}
	return rows, err
}

// holder writes down what it is told.
type holder struct {
	told []string
	loss *session.LostError
}

func (h *holder) hear(what string) {
	h.told = append(h.told, what)
}

func (h *holder) Diagnosed(said dialects.Diagnosis)                 { h.hear(fmt.Sprintf("diagnosed %b", said)) }
func (h *holder) Failed()                                           { h.hear("failed") }
func (h *holder) Sending(context.Context, *session.Statement) error { return nil }
func (h *holder) StatementsExhausted()                              { h.hear("statements exhausted") }
func (h *holder) Detached()                                         { h.hear("detached") }

func (h *holder) CompleteSettings(context.Context) error {
	h.hear("complete settings")
	return nil
}

func (h *holder) CountedOnTx(loss *session.LostError) {
	h.loss = loss
	h.hear("counted on tx")
}

// hears returns what the holder was told since the last time.
func (f *fixture) hears() (told []string) {
	told, f.holder.told = f.holder.told, nil
	return told
}

// panics requires that the driver's panic goes through do.
func (f *fixture) panics(do func()) {
	f.t.Helper()
	require.PanicsWithValue(f.t, "boom", do)
	f.panicked = true
}

func (f *fixture) statement(text string, args ...any) *session.Statement {
	st := &session.Statement{Text: text, Effect: f.env.Dialect.Effect(text)}
	for i, v := range args {
		st.Args = append(st.Args, driver.NamedValue{Ordinal: i + 1, Value: v})
	}
	return st
}

// exec executes a text, with arguments that are converted.
func (f *fixture) exec(text string, args ...any) error {
	st := f.statement(text, args...)
	st.Converted = true
	_, err := f.Run(context.Background(), st)
	return err
}

// query opens rows of a text.
func (f *fixture) query(text string, alone bool) *session.Rows {
	f.t.Helper()
	st := f.statement(text)
	st.Queries = true
	_, err := f.Run(f.t.Context(), st)
	require.NoError(f.t, err)
	r := new(session.Rows)
	f.OpenRows(r, st, alone)
	return r
}

// begin begins a transaction.
func (f *fixture) begin(ctx context.Context) *session.Tx {
	f.t.Helper()
	tx := newTx(ctx)
	_, err := f.Begin(ctx, tx, false)
	require.NoError(f.t, err)
	f.Began(tx, time.Now())
	return tx
}

// savepoint begins a transaction inside the one that is open.
func (f *fixture) savepoint(ctx context.Context) *session.Tx {
	f.t.Helper()
	tx := new(session.Tx)
	tx.Init(ctx, f.TxOptions())
	require.NoError(f.t, f.Savepoint(ctx, tx))
	f.BeganSavepoint(tx, time.Now())
	return tx
}

// insert executes an INSERT of one number.
func (f *fixture) insert(n int) {
	f.t.Helper()
	require.NoError(f.t, f.exec(fmt.Sprintf("INSERT INTO t VALUES (%d)", n)))
}

// stored returns the numbers in the table.
func (f *fixture) stored() (numbers []int64) {
	for _, row := range f.db.Table("t") {
		numbers = append(numbers, row[0].(int64))
	}
	return numbers
}

// calls returns what reached the driver since the given number of events.
func (f *fixture) calls(before int) (calls []string) {
	for _, e := range f.db.Events()[before:] {
		call := string(e.Call)
		if e.Text != "" {
			call += " " + e.Text
		}
		calls = append(calls, call)
	}
	return calls
}

func (f *fixture) events() int { return f.db.State().Events }

// inTx reports whether the server has a transaction open.
func (f *fixture) inTx() bool { return f.db.State().InTx() > 0 }

// ended returns a context that has ended because of cause.
func ended(cause error) context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(cause)
	return ctx
}

// numbers reads integers to the end of a result set, from wherever they come.
func numbers(t *testing.T, next func([]driver.Value) error) (all []int64) {
	t.Helper()
	dest := make([]driver.Value, 1)
	for {
		err := next(dest)
		if err == io.EOF {
			return all
		}
		require.NoError(t, err)
		all = append(all, dest[0].(int64))
	}
}

// newTx returns a transaction that has not begun.
func newTx(ctx context.Context) *session.Tx {
	tx := new(session.Tx)
	tx.Init(ctx, driver.TxOptions{})
	return tx
}
