package sandbox

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/session"
)

// template gives the Connector of a sandbox the one session of the test, again and again.
type template struct {
	dialects.Template
	stage   *stage
	hook    func(context.Context, driver.Conn) error // Config.AfterConnect; nil: the program has none
	dialled bool                                     // the first connection has had its hook when the real connection was made
}

var _ session.Guards = (*template)(nil)

func (t *template) PoolParams() []dialects.Param { return nil }
func (t *template) TakesCredential() bool        { return false }
func (t *template) Close() error                 { return nil }
func (t *template) Traits() dialects.Traits      { return t.Adapt(t.Template.Traits()) }

// Adapt returns the driver's traits that hold here: the session outlives what the Connector takes for one.
func (t *template) Adapt(of dialects.Traits) dialects.Traits {
	of.TxKeepsContext = false           // the driver gets no context that ends
	of.StatementsEndWithSession = false // the session stays
	of.RoleMatters, of.CloseWrites = false, false
	of.ResetOnlyLooks = true
	of.BatchesBypass = false // the guard sends nothing in the packet of a batch
	return of
}

func (t *template) Dial(ctx context.Context, _ *dialects.Credential) (dialects.Session, error) {
	st := t.stage
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.broken != nil {
		return nil, st.broken
	}
	if t.dialled {
		if err := t.connected(ctx); err != nil {
			return nil, err
		}
	}
	t.dialled = true
	return st.server, nil
}

// connected calls the program's hook for connections that the Connector takes for new.
func (t *template) connected(ctx context.Context) error {
	if t.hook == nil {
		return nil
	}
	t.stage.ever |= dialects.Suspect
	return t.hook(ctx, t.stage.server.Conn())
}

func (t *template) Guard() session.Guard { return &guard{stage: t.stage, template: t} }

// guard is what a Connector of a sandbox takes for one session. It dies where the driver would have closed a real
// connection, and then the template gives another one.
type guard struct {
	stage    *stage
	template *template
	effect   dialects.Effect // the effect of the session's statements since it was last clean
	alone    dialects.SandboxLocals
	lent     bool   // a function of Raw has had the driver's connection
	ahead    bool   // settings were set for the loan that follows
	changed  change // the first change of the session since it was clean
	dead     bool
	ended    error // the error of the context whose end has ended the session; nil: none has
}

// change is what has changed the session, or may have.
type change struct {
	what string // the statement that changed the session, without literals; empty: none has
	at   place
}

// usable returns why the session cannot be used; nil: it can.
func (g *guard) usable() error {
	switch {
	case g.stage.broken != nil:
		return g.stage.broken
	case g.dead:
		return driver.ErrBadConn
	}
	return nil
}

// ready is usable for a call with this context.
func (g *guard) ready(ctx context.Context) error { return cmp.Or(g.usable(), ctx.Err()) }

// die ends the session as the server ends one whose client has gone: the transaction of the program is rolled back, or
// its last statement, and the session's state is cleaned.
func (g *guard) die() error {
	if g.dead {
		return nil
	}
	g.dead = true
	st := g.stage
	if st.broken != nil {
		return nil
	}
	st.closeRows()
	var err error
	switch {
	case st.tx != nil:
		err = st.rollback()
	case st.guard && st.server.TxStatus() == dialects.TxFailed:
		err = st.back(guardName)
	}
	if err == nil && g.effect.Dirty() {
		err = g.clean()
	}
	return err
}

// clean brings the session back to its state at connect, as far as that goes in a transaction.
func (g *guard) clean() error {
	st := g.stage
	clear(st.bases)
	ctx, cancel := st.bounded()
	defer cancel()
	if setter, ok := st.server.(dialects.SettingsSetter); ok && st.keeper == nil {
		if err := setter.SetSettings(ctx, nil); err != nil {
			return err
		}
	}
	_, err := st.server.CleanInTx(ctx, g.effect)
	changed := g.changed
	g.effect, g.changed = dialects.Clean, change{}
	if errors.Is(err, dialects.ErrCannotClean) {
		if changed.what != "" {
			st.tell.note(fmt.Sprintf("the session has changed in a way that cannot be undone before the end of the test: %s, at %v", changed.what, changed.at))
		}
		return nil
	}
	return err
}

// changes records what changes the session.
func (g *guard) changes(what string, at place) {
	if g.changed.what == "" {
		g.changed = change{what, at}
	}
}

// TxStatus is that of the program's transaction.
func (g *guard) TxStatus() dialects.TxStatus {
	st := g.stage
	st.mu.Lock()
	defer st.mu.Unlock()
	_ = g.afterRaw()
	switch {
	case g.dead || st.broken != nil:
		return dialects.TxLost
	case st.tx == nil:
		return dialects.TxNone
	case st.server.TxStatus() == dialects.TxFailed:
		return dialects.TxFailed
	}
	return dialects.TxOpen
}

// Begin begins a savepoint. The isolation level is that of the sandbox.
func (g *guard) Begin(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	st := g.stage
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := g.ready(ctx); err != nil {
		return nil, err
	}
	if st.tx != nil {
		return nil, errors.New("sandbox: a transaction is open already on this connection")
	}
	if err := st.begin(opts); err != nil {
		return nil, err
	}
	return &transaction{g}, nil
}

// transaction is a transaction of the program. A text may have ended it: then its methods do what
// COMMIT and ROLLBACK do on the server.
type transaction struct{ g *guard }

func (t *transaction) Commit() error {
	return t.end(func(st *stage) error {
		if st.server.TxStatus() == dialects.TxFailed {
			return cmp.Or(st.rollback(), st.traits.FailedCommit)
		}
		return st.commit()
	})
}

func (t *transaction) Rollback() error { return t.end((*stage).rollback) }

func (t *transaction) end(how func(*stage) error) error {
	st := t.g.stage
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.broken == nil && t.g.ended != nil {
		return fmt.Errorf("sandbox: the transaction is rolled back already, because the context of a statement in it has ended: %w", t.g.ended)
	}
	if err := t.g.usable(); err != nil {
		return err
	}
	return how(st)
}

// Rollback rolls back the transaction of the program.
func (g *guard) Rollback() error {
	st := g.stage
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := g.usable(); err != nil || st.tx == nil {
		return err
	}
	return st.rollback()
}

// Clean cleans the session in the transaction of the test.
func (g *guard) Clean(effect dialects.Effect) error {
	st := g.stage
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := g.usable(); err != nil {
		return err
	}
	g.effect |= effect
	if err := st.script(st.outside()...); err != nil {
		return st.breaks(err)
	}
	st.settled()
	if err := g.clean(); err != nil {
		return err
	}
	ctx, cancel := st.bounded()
	defer cancel()
	return g.template.connected(ctx)
}

func (g *guard) Controls(text string) (bool, error) {
	g.stage.mu.Lock()
	defer g.stage.mu.Unlock()
	word, err := g.controls(text)
	return word != "", err
}

// Execute executes a statement. A text that begins or ends a transaction does so with a savepoint.
func (g *guard) Execute(ctx context.Context, of *session.Statement, send func(context.Context) error) error {
	g.stage.mu.Lock()
	defer g.stage.mu.Unlock()
	of.Under = nil
	if word, err := g.controls(of.Text); word != "" || err != nil {
		if err == nil {
			err = g.control(ctx, word, of.Text)
		}
		of.Result = driver.RowsAffected(0)
		if of.Queries {
			of.Rows = noRows{}
		}
		return err
	}
	s, err := g.begin(ctx, of)
	if err != nil {
		return err
	}
	err = s.call(send)
	switch {
	case err != nil || of.Rows == nil:
		return s.end(err)
	case s.guarded && ctx.Err() != nil:
		return s.end(of.Rows.Close())
	}
	s.answered, s.rows = true, of.Rows
	s.wait.end()
	g.stage.open[s], of.Under = true, s
	return nil
}

// Prepare prepares in a savepoint, because a text with a mistake is an error, too.
func (g *guard) Prepare(ctx context.Context, text string, prepare func(context.Context) error) error {
	g.stage.mu.Lock()
	defer g.stage.mu.Unlock()
	s, err := g.begin(ctx, &session.Statement{Text: text})
	if err != nil {
		return err
	}
	err = s.call(prepare)
	s.preparing = true
	return s.end(err)
}

// Call calls the driver. The context does not end: a call that is given up closes the connection.
func (g *guard) Call(ctx context.Context, text string, call func(context.Context) error) error {
	st := g.stage
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := g.ready(ctx); err != nil {
		return err
	}
	if text != "" {
		effect := st.dialect.Effect(text) &^ dialects.TxControl
		g.effect |= effect
		st.ever |= effect
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), patience)
	defer cancel()
	return call(ctx)
}

// SetSettings is for databases without CarriesSettings, and for Raw.
func (g *guard) SetSettings(ctx context.Context, settings []dialects.ContextSetting) error {
	st := g.stage
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := g.usable(); err != nil {
		return err
	}
	if st.keeper != nil {
		return g.setNow(ctx, settings)
	}
	st.ever |= dialects.Stateful
	return st.server.(dialects.SettingsSetter).SetSettings(context.WithoutCancel(ctx), settings)
}

// setNow puts settings in force by a round trip, for a loan: until the next statement outside of a transaction
// or the end of the transaction.
func (g *guard) setNow(ctx context.Context, settings []dialects.ContextSetting) error {
	st := g.stage
	s := &statement{g: g, ctx: ctx, auto: st.tx == nil, settings: settings}
	if err := st.notes(ctx, s, nil, dialects.Clean); err != nil {
		return err
	}
	var texts []string
	if s.auto {
		texts = append(st.outside(), savepoint(guardName))
	}
	for _, set := range settings {
		texts = append(texts, setLocal(set.Name, set.Value))
	}
	if err := st.script(texts...); err != nil {
		return s.unprotected(err)
	}
	s.isProtected()
	g.ahead = s.auto
	return nil
}

// Lend prepares the session for a function of Raw, or for one call of a loan: it sets a savepoint, to which an error
// goes back. While rows of the loan are open it sets none.
func (g *guard) Lend() {
	st := g.stage
	st.mu.Lock()
	defer st.mu.Unlock()
	_ = g.afterRaw() // ends the savepoint of the loan's last call, which has failed
	if st.tx == nil && st.traits.ErrorFailsTx && g.usable() == nil {
		texts := st.outside()
		if g.ahead {
			texts = st.released()
		}
		if err := st.script(append(texts, savepoint(guardName))...); err == nil {
			st.guard = true
			if !g.ahead {
				clear(st.set)
			}
		}
	}
	g.lent = true
	g.changes("a function of Raw", here())
}

// EndLoan: the settings of the loan end with the next statement.
func (g *guard) EndLoan() {
	g.stage.mu.Lock()
	defer g.stage.mu.Unlock()
	g.ahead = false
}

// Returned is called when a function of Raw has returned without an error.
func (g *guard) Returned() error {
	g.stage.mu.Lock()
	defer g.stage.mu.Unlock()
	return g.afterRaw()
}

// afterRaw looks at what a function of Raw has left, at the first look at the session after the function.
// After an error, the function's work is undone, or the sandbox is broken.
func (g *guard) afterRaw() error {
	st := g.stage
	if !g.lent || g.dead || st.broken != nil {
		return nil
	}
	g.lent = false
	g.effect |= dialects.Suspect
	st.ever |= dialects.Suspect
	switch status := st.server.TxStatus(); {
	case status == dialects.TxNone:
		return st.breaks(errRawEnded)
	case status == dialects.TxFailed && st.tx == nil:
		return cmp.Or(st.back(guardName), errRawUndone)
	}
	return nil
}

// errRawUndone is the error of a function of Raw that has ignored the error of a statement.
var errRawUndone = errors.New("sandbox: a statement of a function of Raw has failed, and the function has returned no error; the function stands in one savepoint, so all that it has done is undone, where in production the statements before the error stay; a test of such functions needs sandbox.Database")

var errRawEnded = errors.New("sandbox: a function of Raw has ended the transaction of the test, so what the test has written may be committed; a test of such functions needs sandbox.Database")

// Interrupt stops the statement that does not end.
func (g *guard) Interrupt() { g.stage.interrupt() }

// CloseStmt does nothing after the test: the connection is another test's then.
func (g *guard) CloseStmt(si driver.Stmt) error {
	g.stage.mu.Lock()
	defer g.stage.mu.Unlock()
	if g.stage.broken != nil {
		return nil
	}
	return si.Close()
}

// End ends what the Connector takes for a session. The real one stays.
func (g *guard) End() {
	g.stage.mu.Lock()
	defer g.stage.mu.Unlock()
	_ = g.die()
}
