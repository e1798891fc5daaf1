package sandbox

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/beneath"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/driverconn"
)

// stage is the one real transaction in which a test and its subtests run.
//
// On a database where an error fails the transaction, each statement outside of a transaction of the
// program stands in a savepoint. The savepoint stays when the statement has succeeded, and the next
// statement releases it in its own packet: this costs no round trip.
type stage struct {
	taken   beneath.Taken
	of      beneath.Beneath
	server  dialects.Sandboxer
	carrier dialects.SandboxCarrier // server, if it is one; else nil
	keeper  dialects.SandboxKeeper  // server, if it is one; else nil
	judge   dialects.SandboxJudge   // the dialect, if it is one; else nil
	dialect dialects.Dialect
	driver  driverconn.Conn
	traits  dialects.SandboxTraits
	tell    *speech
	waits   *lockWaits
	moves   atomic.Uint64 // statements and transactions that have ended, for whoever waits

	mu     sync.Mutex          // held during calls of the driver; protects following fields
	locked bool                // Lock was executed
	guard  bool                // the savepoint of a statement is open
	tx     *level              // the transaction of the program that is open; nil: none
	depth  int                 // how many savepoints of subtests are open
	ever   dialects.Effect     // the effect of all statements so far
	broken error               // why nothing can be executed any more; nil: it can
	open   map[*statement]bool // statements whose rows are open

	// The following fields are used only with a keeper.
	set      map[string]string // context settings in force, with the values that they replaced
	bases    map[string]string // values of settings that are known, until a text may have changed them
	deferred []string          // constraints that are initially deferred
	asked    bool              // deferred is known: tables have not changed since the server was asked
}

// level is a transaction of the program: a savepoint.
type level struct {
	readOnly bool
	locals   dialects.SandboxLocals
}

// The savepoints. Those of subtests have a number.
const (
	guardName = "sandbox_statement"
	txName    = "sandbox_transaction"
	testName  = "sandbox_test_"
	valueName = "sandbox_value"
)

// patience bounds the stage's own statements.
const patience = 10 * time.Second

// newStage begins the transaction on a connection.
func newStage(ctx context.Context, taken beneath.Taken, of beneath.Beneath, tell *speech, shared bool) (*stage, error) {
	d := of.Config().Dialect
	server, ok := taken.Session().(dialects.Sandboxer)
	if !ok {
		return nil, errors.New("a sandbox needs PostgreSQL, MySQL, MariaDB or SQLite, by a driver that its dialect knows; over ODBC, or under a wrapper that hides the driver's connection, it cannot stop statements")
	}
	st := &stage{
		taken: taken, server: server, dialect: d, tell: tell, traits: server.Sandbox(),
		driver: driverconn.New(server.Conn()), set: map[string]string{}, bases: map[string]string{}, open: map[*statement]bool{}, of: of,
	}
	st.waits = &lockWaits{of: of}
	st.carrier, _ = server.(dialects.SandboxCarrier)
	st.keeper, _ = server.(dialects.SandboxKeeper)
	st.judge, _ = d.(dialects.SandboxJudge)
	if !shared && st.traits.Lock != "" {
		if err := st.lock(ctx); err != nil {
			return nil, err
		}
	}
	return st, st.beginTest(ctx)
}

// beginTest begins the transaction of the test. SQLite may be busy with the test of another program.
func (st *stage) beginTest(ctx context.Context) error {
	for {
		err := st.script(st.traits.Begin)
		if err == nil || st.dialect.Diagnose(err)&dialects.Conflict == 0 || ctx.Err() != nil {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// lock keeps the sandboxes of other processes out.
func (st *stage) lock(ctx context.Context) error {
	for {
		rows, err := st.driver.Query(context.WithoutCancel(ctx), st.traits.Lock, nil)
		if err != nil {
			return err
		}
		value := make([]driver.Value, 1)
		err = rows.Next(value)
		_ = rows.Close()
		if err != nil {
			return err
		}
		if text := fmt.Sprintf("%s", value[0]); text == "1" || value[0] == int64(1) {
			st.locked = true
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("another program has a sandbox on this database, where sandboxes run one after the other: %w", err)
		}
	}
}

// end rolls everything back and gives the connection back. It returns when the connection is clean.
func (st *stage) end() error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.closeRows()
	ctx, cancel := st.bounded()
	defer cancel()
	err := st.server.Rollback(ctx)
	if err != nil || st.server.TxStatus() == dialects.TxLost {
		st.taken.Discard()
		st.broken = errors.Join(st.broken, errEnded)
		return err
	}
	if st.locked {
		err = st.script(st.traits.Unlock)
	}
	st.broken = errors.Join(st.broken, errEnded)
	st.taken.GiveBack(st.ever &^ (dialects.TxControl | dialects.Writes))
	return err
}

var errEnded = errors.New("sandbox: the test has ended")

// stop stops what still runs when the test has ended. It returns when nothing does or, where a
// statement cannot be stopped, after a while.
func (st *stage) stop() {
	for end := time.Now().Add(patience); st.running() && time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		st.interrupt()
	}
}

// interrupt asks the server to stop the statement that runs. It needs no lock.
func (st *stage) interrupt() {
	if st.traits.Uninterrupted {
		return
	}
	ctx, cancel := st.bounded()
	defer cancel()
	_ = st.server.Interrupt(ctx) // whoever waits goes on
}

// process is the server's number of the session, 0 if it has none.
func (st *stage) process() uint64 { return dialects.ProcessID(st.server) }

// brief is a text for an error: without literals.
func (st *stage) brief(text string) string { return connpool.Outline(st.dialect, &text) }

func (st *stage) bounded() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}

// script executes statements of the sandbox, in one round trip where the driver can do that.
func (st *stage) script(texts ...string) error {
	ctx, cancel := st.bounded()
	defer cancel()
	texts = slices.DeleteFunc(texts, func(text string) bool { return text == "" })
	if st.traits.Scripts && len(texts) > 0 {
		texts = []string{strings.Join(texts, "; ")}
	}
	for _, text := range texts {
		if err := st.driver.Command(ctx, text); err != nil {
			return err
		}
	}
	return nil
}

func savepoint(name string) string { return "SAVEPOINT " + name }
func release(name string) string   { return "RELEASE SAVEPOINT " + name }
func rollBack(name string) string  { return "ROLLBACK TO SAVEPOINT " + name }

// breaks records that the stage cannot be used any more, and fails the test. It returns the error
// for the statement.
func (st *stage) breaks(why error) error {
	if st.broken == nil {
		st.broken = why
		st.tell.fail(why)
	}
	return st.broken
}

// back goes back to a savepoint, which stays. A request to stop the statement before may come late
// and stop the ROLLBACK TO instead.
func (st *stage) back(name string, further ...string) error {
	var err error
	for range 3 {
		if err = st.script(append([]string{rollBack(name)}, further...)...); err == nil {
			return nil
		}
	}
	return st.breaks(fmt.Errorf("sandbox: going back to the savepoint %s failed, so the state of the database is not known: %w", name, err))
}

// outside returns the statements to send before anything that is not part of a statement's savepoint.
// They end the last statement's savepoint, and set the settings of its context back.
func (st *stage) outside() []string {
	texts := st.released()
	for _, name := range slices.Sorted(maps.Keys(st.set)) {
		texts = append(texts, setLocal(name, st.set[name]))
	}
	return texts
}

// released ends the last statement's savepoint.
func (st *stage) released() []string {
	if st.guard {
		return []string{release(guardName)}
	}
	return nil
}

// settled records that the statements of outside were executed.
func (st *stage) settled() {
	st.guard = false
	clear(st.set)
}

// setLocal returns the statement that sets back a setting of a context: PostgreSQL.
func setLocal(name, value string) string {
	quoted := strings.ReplaceAll(strings.ReplaceAll(name, `"`, `""`), ".", `"."`)
	return `SET LOCAL "` + quoted + `" TO E'` + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(value) + "'"
}

const noteIsolation = "a transaction asks for an isolation level, and has that of the sandbox: the transaction of the test has begun before"

// begin begins a transaction of the program.
func (st *stage) begin(opts driver.TxOptions) error {
	if opts.Isolation != 0 {
		st.tell.note(noteIsolation)
	}
	texts := append(st.outside(), savepoint(txName))
	if opts.ReadOnly {
		texts = append(texts, st.traits.ReadOnly)
	}
	if err := st.script(texts...); err != nil {
		return st.breaks(fmt.Errorf("sandbox: a transaction of the program did not begin as a savepoint: %w", err))
	}
	st.settled()
	st.tx = &level{readOnly: opts.ReadOnly}
	return nil
}

// commit ends the transaction of the program as COMMIT does: what waits for COMMIT is checked, and
// what ends with a transaction ends. The COMMIT of a transaction that has failed is a ROLLBACK.
func (st *stage) commit() error {
	l := st.tx
	switch {
	case l == nil:
		return st.traits.CommitOutside
	case st.server.TxStatus() == dialects.TxFailed:
		return st.rollback()
	}
	check, err := st.checks(&l.locals)
	if err == nil {
		err = st.script(check)
	}
	if err == nil {
		err = st.checkDeferred()
	}
	if err != nil {
		return errors.Join(err, st.rollback())
	}
	undo := ""
	if st.keeper != nil {
		undo = st.keeper.Undo(&l.locals)
	}
	if err := st.script(undo, release(txName)); err != nil {
		return errors.Join(err, st.rollback())
	}
	st.tx = nil
	st.moves.Add(1)
	return nil
}

// rollback ends the transaction of the program as ROLLBACK does.
func (st *stage) rollback() error {
	if st.tx == nil {
		return st.traits.RollbackOutside
	}
	st.tx = nil
	st.moves.Add(1)
	clear(st.bases)
	st.asked = false
	return st.back(txName, release(txName))
}

// checks returns the statement that checks the constraints that wait for the end of a transaction;
// empty: none waits.
func (st *stage) checks(l *dialects.SandboxLocals) (string, error) {
	if st.keeper == nil {
		return "", nil
	}
	if !st.asked {
		ctx, cancel := st.bounded()
		defer cancel()
		var err error
		if st.deferred, err = st.keeper.Deferred(ctx); err != nil {
			return "", fmt.Errorf("sandbox: asking for the deferred constraints: %w", err)
		}
		st.asked = true
	}
	if len(st.deferred) == 0 && !l.Defers {
		return "", nil
	}
	return st.keeper.Check(st.deferred), nil
}

// checkDeferred checks what waits for the end of a transaction, on a database without a statement for that.
func (st *stage) checkDeferred() error {
	checker, ok := st.server.(dialects.SandboxChecker)
	if !ok {
		return nil
	}
	ctx, cancel := st.bounded()
	defer cancel()
	return checker.CheckDeferred(ctx)
}

// enter makes a level for a subtest. It returns the name of its savepoint.
func (st *stage) enter() (string, error) {
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.broken != nil {
		return "", st.broken
	}
	name := fmt.Sprintf("%s%d", testName, st.depth+1)
	if err := st.script(append(st.outside(), savepoint(name))...); err != nil {
		return "", err
	}
	st.settled()
	st.depth++
	return name, nil
}

// leave ends the level of a subtest.
func (st *stage) leave(name string) error {
	st.mu.Lock()
	defer st.mu.Unlock()
	st.depth--
	st.tx, st.guard, st.asked = nil, false, false
	clear(st.set)
	clear(st.bases)
	if st.broken != nil {
		return nil // its test has failed
	}
	st.closeRows()
	err := st.back(name, release(name))
	if err == nil && st.ever.Dirty() {
		ctx, cancel := st.bounded()
		defer cancel()
		_, err = st.server.CleanInTx(ctx, st.ever)
		if errors.Is(err, dialects.ErrCannotClean) {
			return nil // the log says so
		}
	}
	return err
}
