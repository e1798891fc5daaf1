package sandbox

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/session"
)

// statement is one statement of the program that runs on a stage: from its savepoint to its result
// or, if it has rows, to the end of its rows.
type statement struct {
	g     *guard
	ctx   context.Context
	text  string
	watch *watch
	auto  bool // outside of a transaction of the program
	// guarded: it has a savepoint that ends with it (SQLite).
	guarded bool
	// carried: the savepoint and the settings are to be sent in the statement's packet.
	carried  bool
	batch    bool                      // pgx may write it past what carries something
	settings []dialects.ContextSetting // of its context
	wait     *lockWait
	// preparing: the text is only prepared.
	preparing bool
	answered  bool // the server has begun to answer with rows
	rows      driver.Rows
	err       error // the error that reading the rows has met
	stopped   bool  // the server was asked to stop it, before its rows were over
	ended     bool
	effect    dialects.Effect
	at        place // of a statement that may change the session
}

// begin prepares the stage for a statement. The lock of the stage is held.
func (g *guard) begin(ctx context.Context, of *session.Statement) (*statement, error) {
	st, text := g.stage, of.Text
	g.ahead = false
	if err := g.ready(ctx); err != nil {
		return nil, err
	}
	if err := st.refuses(text); err != nil {
		return nil, err
	}
	effect := st.dialect.Effect(text)
	g.effect |= effect
	st.ever |= effect
	s := &statement{g: g, ctx: ctx, text: text, auto: st.tx == nil, settings: of.Cargo.Settings(), effect: effect}
	s.batch = of.Direct != nil && of.Direct.MoreTexts != nil
	if effect.Dirty() {
		s.at = here()
	}
	if err := st.notes(ctx, s, argsOf(of), effect); err != nil {
		return nil, err
	}
	if err := s.protect(); err != nil {
		return nil, err
	}
	s.watch = st.watchOver(ctx)
	s.wait = st.waits.begin(st, text)
	return s, nil
}

// argsOf are the arguments of a statement, also of one of package direct.
func argsOf(of *session.Statement) []driver.NamedValue {
	if of.Direct == nil {
		return of.Args
	}
	var args []driver.NamedValue
	for i, value := range of.Direct.Args {
		args = append(args, driver.NamedValue{Ordinal: i + 1, Value: value})
	}
	return args
}

// refuses returns an error for a text that a sandbox cannot execute, and fails the test.
func (st *stage) refuses(text string) error {
	if st.judge == nil {
		return nil
	}
	if why := st.judge.Refuses(text); why != "" {
		err := fmt.Errorf("sandbox: %s; a test of such statements needs sandbox.Database", why)
		st.tell.fail(err)
		return err
	}
	if st.tx != nil && st.tx.readOnly && st.traits.ReadOnly == "" {
		return st.judge.ReadsOnly(text)
	}
	return nil
}

// notes records what the text does until the end of its transaction.
func (st *stage) notes(ctx context.Context, s *statement, args []driver.NamedValue, effect dialects.Effect) error {
	if st.keeper == nil {
		return nil
	}
	l := st.keeper.LocalsOf(s.text, args)
	for _, note := range l.Notes {
		st.tell.note(note)
	}
	if l.Changes {
		st.asked = false
	}
	if effect&dialects.Stateful != 0 || len(l.Settings) > 0 {
		defer clear(st.bases) // the text may change any of them
	}
	for _, set := range s.settings {
		l.Settings = append(l.Settings, set.Name)
	}
	if err := st.learn(ctx, l.Settings); err != nil {
		return err
	}
	if st.tx != nil {
		st.tx.add(&l, st.bases)
		return nil
	}
	s.g.alone = l
	s.g.alone.Before = map[string]string{}
	for _, name := range l.Settings {
		s.g.alone.Before[name] = st.bases[name]
	}
	return nil
}

// learn asks for the values of settings that are about to change, unless they are known.
func (st *stage) learn(ctx context.Context, names []string) error {
	for _, name := range names {
		if _, known := st.bases[name]; known {
			continue
		}
		if before, set := st.set[name]; set {
			st.bases[name] = before
			continue
		}
		if st.server.TxStatus() == dialects.TxFailed {
			continue // the text is not executed
		}
		if err := st.learnOne(ctx, name); err != nil {
			return st.breaks(fmt.Errorf("sandbox: asking for the value of %s, to set it back later: %w", name, err))
		}
	}
	return nil
}

// learnOne asks for a value, in a savepoint: a setting that the user may not read is an error, and
// the program's own statement will say so.
func (st *stage) learnOne(ctx context.Context, name string) error {
	if err := st.script(savepoint(valueName)); err != nil {
		return err
	}
	value, err := st.keeper.Value(context.WithoutCancel(ctx), name)
	if err != nil {
		return st.script(rollBack(valueName), release(valueName))
	}
	st.bases[name] = value
	return st.script(release(valueName))
}

// add records what a text does in the transaction.
func (l *level) add(of *dialects.SandboxLocals, values map[string]string) {
	all := &l.locals
	for _, name := range of.Settings {
		if _, again := all.Before[name]; again {
			continue
		}
		if all.Before == nil {
			all.Before = map[string]string{}
		}
		all.Before[name] = values[name]
		all.Settings = append(all.Settings, name)
	}
	all.Drop, all.Empty = append(all.Drop, of.Drop...), append(all.Empty, of.Empty...)
	all.Defers = all.Defers || of.Defers
}

// protect opens the savepoint of a statement, and puts the settings of its context in force.
func (s *statement) protect() error {
	st := s.g.stage
	var texts []string
	switch {
	case s.auto && st.traits.ErrorFailsTx:
		texts = append(st.outside(), savepoint(guardName))
	case st.traits.Uninterrupted && (s.auto || s.ctx.Done() != nil) && st.dialect.Effect(s.text)&dialects.TxControl == 0:
		s.guarded = true
		texts = append(texts, savepoint(guardName))
	}
	if len(texts) == 0 && len(s.settings) == 0 {
		return nil
	}
	// A request to stop the statement must not stop the savepoint in front of it, and nobody can tell
	// when the server has executed the savepoint. So a statement whose context may end is sent afterwards.
	if st.carrier != nil && s.ctx.Done() == nil && !s.batch && st.carrier.CarryAhead(texts, s.settings) {
		s.carried = true
		return nil
	}
	for _, set := range s.settings {
		texts = append(texts, setLocal(set.Name, set.Value))
	}
	if err := st.script(texts...); err != nil {
		return s.unprotected(err)
	}
	s.isProtected()
	return nil
}

// unprotected handles a script of protect that has failed. A setting that the server refuses is an
// error of the statement.
func (s *statement) unprotected(err error) error {
	st := s.g.stage
	if len(s.settings) == 0 || st.server.TxStatus() == dialects.TxLost {
		return st.breaks(fmt.Errorf("sandbox: a statement did not get its savepoint: %w", err))
	}
	if !s.auto {
		return err // the transaction has failed, as in production
	}
	st.settled()
	st.guard = true
	return errors.Join(err, st.back(guardName))
}

// isProtected records that the savepoint and the settings have reached the server.
func (s *statement) isProtected() {
	st := s.g.stage
	if s.auto && st.traits.ErrorFailsTx {
		st.settled()
		st.guard = true
	}
	for _, set := range s.settings {
		if s.auto {
			st.set[set.Name] = s.g.alone.Before[set.Name]
		}
	}
}

// call calls the driver. If an argument panics there, the session is about to be closed, and nobody ends s.
func (s *statement) call(how func(context.Context) error) error {
	returned := false
	defer func() {
		if s.carried && s.g.stage.carrier.DropAhead() {
			s.isProtected()
		}
		if s.carried = false; !returned {
			s.ended = true
			s.watch.end()
			s.wait.end()
		}
	}()
	err := how(context.WithoutCancel(s.ctx))
	returned = true
	return err
}

// end ends the statement. err is what the driver has said of it. end returns the error for the
// program.
func (s *statement) end(err error) error {
	if s.ended {
		return err
	}
	s.ended = true
	st := s.g.stage
	st.moves.Add(1)
	stopped := s.watch.end() || s.stopped
	if err == driver.ErrSkip {
		s.wait.end()
		return err
	}
	s.leaves(err)
	err = s.wait.explain(err)
	if lost := s.lost(err); lost != nil {
		return lost
	}
	if s.guarded {
		return s.endGuarded(err)
	}
	if stopped {
		defer st.absorb()
	}
	switch {
	case err != nil && stopped:
		return s.cancelled(err)
	case err != nil:
		if s.auto && st.server.TxStatus() == dialects.TxFailed {
			if failed := st.back(guardName); failed != nil {
				return errors.Join(err, failed)
			}
			clear(st.bases)
		}
		return err
	case s.auto && !s.preparing:
		return s.commit()
	}
	return nil
}

// leaves records what the statement has changed in its session, for the log. err is the driver's.
func (s *statement) leaves(err error) {
	st := s.g.stage
	if !s.effect.Dirty() || s.preparing {
		return
	}
	if err != nil && st.judge != nil && !dialects.MayBeScript(s.text) && st.judge.LeavesNothing(err) {
		return
	}
	s.g.changes(st.brief(s.text), s.at)
}

// lost returns an error if the transaction of the test is gone, or the connection.
func (s *statement) lost(err error) error {
	st := s.g.stage
	switch st.statusAfter(err) {
	case dialects.TxLost:
		if st.broken != nil {
			return st.broken
		}
		return st.breaks(fmt.Errorf("sandbox: the connection of the test is lost: %w", errors.Join(err, driver.ErrBadConn)))
	case dialects.TxNone:
		if err == nil {
			return st.breaks(fmt.Errorf("sandbox: this statement has ended the transaction of the test, so what the test has written may be committed: %s; a test of such statements needs sandbox.Database", st.brief(s.text)))
		}
		return st.breaks(fmt.Errorf("sandbox: the server has rolled back the transaction of the test, and everything that the test has written: %w", err))
	}
	return nil
}

// absorb takes a request to stop a statement that has come too late. PostgreSQL drops such a request;
// MySQL and MariaDB stop the next statement.
func (st *stage) absorb() {
	if st.broken == nil && !st.traits.ErrorFailsTx {
		_ = st.script("SELECT 1")
	}
}

// statusAfter is the status of the test's transaction after a statement. With an error, not every
// protocol tells it.
func (st *stage) statusAfter(err error) dialects.TxStatus {
	if err != nil && !st.traits.Uninterrupted {
		said := st.dialect.Diagnose(err)
		if said&dialects.TxEnded != 0 {
			return dialects.TxNone
		}
		if said&dialects.TxDoubt != 0 {
			ctx, cancel := st.bounded()
			defer cancel()
			_ = st.server.Ping(ctx) // the answer has the status
		}
	}
	return st.server.TxStatus()
}

// commit ends a statement outside of a transaction of the program, as its own transaction would end.
func (s *statement) commit() error {
	st := s.g.stage
	if st.keeper == nil {
		return nil // SQLite: see endGuarded
	}
	l := &s.g.alone
	if st.asked && len(st.deferred) == 0 && !l.Defers && len(l.Drop)+len(l.Empty) == 0 && len(l.Settings) == len(s.settings) {
		return nil // most statements
	}
	if len(l.Settings) == len(s.settings) && st.dialect.OnlyReads(s.text) {
		return nil
	}
	check, err := st.checks(l)
	if err == nil {
		err = st.script(check)
	}
	if err == nil {
		ending := *l
		ending.Settings = ending.Settings[:len(ending.Settings)-len(s.settings)]
		err = st.script(st.keeper.Undo(&ending))
	}
	if err != nil {
		return errors.Join(err, st.back(guardName))
	}
	return nil
}

// endGuarded ends a statement that cannot be stopped. If its context has ended before the driver
// has answered, it is undone, as if it had been stopped: the interruption of a statement that writes
// costs the whole transaction of the program. A statement outside of a transaction is undone, too, if
// its transaction could not end.
func (s *statement) endGuarded(err error) error {
	st := s.g.stage
	var undone error
	if !s.answered {
		undone = s.ctx.Err()
	}
	writes := !s.preparing && !st.dialect.OnlyReads(s.text)
	switch {
	case undone != nil && writes && !s.auto:
		return errors.Join(undone, st.rollback())
	case undone == nil && err == nil && writes && s.auto:
		undone = st.checkDeferred()
	}
	if undone != nil {
		return errors.Join(undone, st.back(guardName, release(guardName)))
	}
	if failed := st.script(release(guardName)); failed != nil {
		return st.breaks(fmt.Errorf("sandbox: a statement's savepoint did not end: %w", errors.Join(failed, err)))
	}
	return err
}

// cancelled ends a statement whose context has ended. The drivers close the connection then, and
// the server rolls back: so the connection of the program is dead, and what it had open is undone.
func (s *statement) cancelled(err error) error {
	ended := s.ctx.Err()
	s.g.ended = ended
	if failed := s.g.die(); failed != nil {
		return failed
	}
	return fmt.Errorf("%w: %w", ended, err)
}

// watch waits for the end of a statement's context.
type watch struct {
	cancel   func() bool
	finished chan struct{}
	left     chan struct{}
	sent     atomic.Bool
}

// watchOver stops the statement that is about to begin when ctx ends. nil: ctx never ends, or the
// statement cannot be stopped.
func (st *stage) watchOver(ctx context.Context) *watch {
	if ctx.Done() == nil || st.traits.Uninterrupted {
		return nil
	}
	w := &watch{finished: make(chan struct{}), left: make(chan struct{})}
	w.cancel = context.AfterFunc(ctx, func() { w.stop(st) })
	return w
}

// stop asks the server again and again: a request that comes before the statement has begun is
// ignored.
func (w *watch) stop(st *stage) {
	const shortest, longest = 20 * time.Millisecond, time.Second
	defer close(w.left)
	for pause := shortest; ; pause = min(2*pause, longest) {
		select {
		case <-w.finished:
			return
		default:
		}
		w.sent.Store(true)
		st.interrupt()
		select {
		case <-w.finished:
			return
		case <-time.After(pause):
		}
	}
}

// end is called when the statement has returned. stopped reports whether the server was asked to
// stop it. No request follows.
func (w *watch) end() (stopped bool) {
	if w == nil {
		return false
	}
	if w.cancel() {
		return false
	}
	select {
	case <-w.finished:
	default:
		close(w.finished)
	}
	<-w.left
	return w.sent.Load()
}
