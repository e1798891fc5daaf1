package sandbox

import (
	"cmp"
	"context"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/generic"
)

// template gives the Connector of a sandbox its connections, one at a time: all of them run on the
// stage, and Dial dials nothing.
type template struct {
	dialects.Template
	stage *stage
}

// Traits are the driver's traits that hold here: the real connection outlives the connections on the stage.
func (t *template) Traits() dialects.Traits { return adapted(t.Template.Traits()) }

func adapted(t dialects.Traits) dialects.Traits {
	t.TxKeepsContext = false           // the driver gets no context that ends
	t.StatementsEndWithSession = false // the real connection stays
	t.RoleMatters, t.CloseWrites = false, false
	t.ResetOnlyLooks = true
	return t
}

func (t *template) PoolParams() []dialects.Param { return nil }
func (t *template) TakesCredential() bool        { return false }
func (t *template) Close() error                 { return nil }

// Dial makes another connection on the stage.
func (t *template) Dial(context.Context, *dialects.Credential) (dialects.Session, error) {
	t.stage.mu.Lock()
	defer t.stage.mu.Unlock()
	if t.stage.broken != nil {
		return nil, t.stage.broken
	}
	return &session{c: &conn{stage: t.stage}, stage: t.stage}, nil
}

// session is what the Connector of a sandbox takes for a session of the server.
type session struct {
	c     *conn
	stage *stage
}

var (
	_ dialects.ConnTraits      = (*session)(nil)
	_ dialects.Unwrapper       = (*session)(nil)
	_ dialects.RowDetacher     = (*session)(nil)
	_ dialects.Identified      = (*session)(nil)
	_ dialects.Severable       = (*session)(nil)
	_ dialects.TxAsker         = (*session)(nil)
	_ dialects.SettingsCarrier = (*session)(nil)
	_ dialects.Rereader        = (*session)(nil)
)

func (s *session) Conn() driver.Conn { return s.c }

func (s *session) Traits() dialects.Traits {
	if known, ok := s.stage.server.(dialects.ConnTraits); ok {
		return adapted(known.Traits())
	}
	return s.stage.template.Traits()
}

// TxStatus is that of the program's transaction.
func (s *session) TxStatus() dialects.TxStatus {
	st := s.stage
	st.mu.Lock()
	defer st.mu.Unlock()
	_ = s.c.afterRaw()
	switch {
	case s.c.dead || st.broken != nil:
		return dialects.TxLost
	case st.tx == nil:
		return dialects.TxNone
	case st.server.TxStatus() == dialects.TxFailed:
		return dialects.TxFailed
	}
	return dialects.TxOpen
}

// AskTx is TxStatus where the database may roll a transaction back by itself. Elsewhere production
// does not ask either.
func (s *session) AskTx() dialects.TxStatus {
	if _, ok := s.stage.server.(dialects.TxAsker); !ok {
		return dialects.TxOpen
	}
	return s.TxStatus()
}

func (s *session) Peek() dialects.Liveness {
	if s.TxStatus() == dialects.TxLost {
		return dialects.Dead
	}
	return dialects.Alive
}

func (s *session) Ping(ctx context.Context) error { return s.c.Ping(ctx) }

func (s *session) Sent() (n uint64, ok bool) { return s.stage.server.Sent() }

// Rollback rolls back the transaction of the program.
func (s *session) Rollback(context.Context) error {
	st := s.stage
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := s.c.usable(); err != nil || st.tx == nil {
		return err
	}
	return st.rollback()
}

// Clean cleans the session in the transaction of the test.
func (s *session) Clean(_ context.Context, effect dialects.Effect) (kept bool, err error) {
	st := s.stage
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := s.c.usable(); err != nil {
		return false, err
	}
	s.c.effect |= effect
	if err := st.script(st.outside()...); err != nil {
		return false, st.breaks(err)
	}
	st.settled()
	return false, s.c.clean()
}

func (s *session) Close(context.Context) error { return s.c.Close() }

// Unwrap is for Raw: the program gets the driver's own connection. What it does there stands in a
// savepoint.
func (s *session) Unwrap() driver.Conn {
	st := s.stage
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.tx == nil && st.traits.ErrorFailsTx && s.c.usable() == nil {
		if err := st.script(append(st.outside(), savepoint(guardName))...); err == nil {
			st.settled()
			st.guard = true
		}
	}
	s.c.lent = true
	s.c.changes("a function of Raw", here())
	if w, ok := st.server.(dialects.Unwrapper); ok {
		return w.Unwrap()
	}
	return st.server.Conn()
}

// RawReturned is called when a function of Raw has returned without an error.
func (s *session) RawReturned() error {
	st := s.stage
	st.mu.Lock()
	defer st.mu.Unlock()
	return s.c.afterRaw()
}

// afterRaw looks at what a function of Raw has left, at the first look at the session after the function.
// After an error, the function's work is undone, or the sandbox is broken.
func (c *conn) afterRaw() error {
	st := c.stage
	if !c.lent || c.dead || st.broken != nil {
		return nil
	}
	c.lent = false
	c.effect |= dialects.Suspect
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

var errNoSettings = errors.New("its dialect has none")

// DetachColumns is the dialect's, for the driver's rows.
func (s *session) DetachColumns(r driver.Rows) dialects.DetachedColumns {
	if d, ok := s.stage.server.(dialects.RowDetacher); ok {
		return d.DetachColumns(beneathRows(r))
	}
	return nil
}

func (s *session) ProcessID() uint64 { return s.stage.process() }

// Sever stops the statement that does not end.
func (s *session) Sever() {
	if s.stage.traits.Uninterrupted {
		return
	}
	ctx, cancel := s.stage.bounded()
	defer cancel()
	_ = s.stage.server.Interrupt(ctx)
}

func (s *session) CheckSettings(settings []dialects.ContextSetting) error {
	if checker, ok := s.stage.server.(dialects.SettingsChecker); ok {
		return checker.CheckSettings(settings)
	}
	return errNoSettings
}

// Anew is the dialect's.
func (s *session) Anew(args []driver.NamedValue) []driver.NamedValue {
	if r, ok := s.stage.server.(dialects.Rereader); ok {
		return r.Anew(args)
	}
	return args
}

// Rereads is the dialect's.
func (s *session) Rereads(settings []dialects.ContextSetting) bool {
	r, ok := s.stage.server.(dialects.Rereader)
	return ok && r.Rereads(settings)
}

// Kept is not counted here.
func (s *session) Kept() (prepared, executed uint64) { return 0, 0 }

// CarriesSettings: on a database where settings end with the transaction, the stage sends them with
// the statement and sets them back.
func (s *session) CarriesSettings() bool { return s.stage.keeper != nil }

func (s *session) CarrySettings(_ context.Context, settings []dialects.ContextSetting) error {
	s.c.settings, s.c.took = settings, false
	return nil
}

// DropSettings is called when the driver has returned.
func (s *session) DropSettings() (sent bool) {
	sent, s.c.settings = s.c.took, nil
	return sent
}

// SetSettings is for databases without CarriesSettings, and for Raw.
func (s *session) SetSettings(ctx context.Context, settings []dialects.ContextSetting) error {
	st := s.stage
	st.mu.Lock()
	defer st.mu.Unlock()
	if err := s.c.usable(); err != nil {
		return err
	}
	if st.keeper != nil {
		return s.c.setNow(ctx, settings)
	}
	setter, ok := st.server.(dialects.SettingsSetter)
	if !ok {
		return errNoSettings
	}
	st.ever |= dialects.Stateful
	return setter.SetSettings(context.WithoutCancel(ctx), settings)
}

// setNow puts settings in force by a round trip, until the next statement outside of a transaction
// or the end of the transaction.
func (c *conn) setNow(ctx context.Context, settings []dialects.ContextSetting) error {
	st := c.stage
	c.settings = settings
	s := &statement{c: c, ctx: ctx, auto: st.tx == nil, settings: settings}
	c.settings = nil
	if err := st.notes(ctx, s, nil, dialects.Clean); err != nil {
		return err
	}
	texts := st.outside()
	if st.tx != nil {
		texts = nil
	}
	for _, set := range settings {
		texts = append(texts, setLocal(set.Name, set.Value))
	}
	if err := st.script(texts...); err != nil {
		if s.auto && st.guard {
			return errors.Join(err, st.back(guardName))
		}
		return err
	}
	if s.auto {
		st.settled()
		for _, set := range settings {
			st.set[set.Name] = c.alone.Before[set.Name]
		}
	}
	return nil
}

// dialect is the real dialect for a handle with one connection. All rows, whatever their text does, may
// be read into memory when another statement needs the connection: the next statement of their borrower
// finds the same session.
type dialect struct {
	dialects.Dialect
}

var _ dialects.ReadJudge = dialect{}

func (dialect) OnlyReads(string) bool { return true }
func (dialect) AsksBack(string) bool  { return false }

// Outline is the real dialect's.
func (d dialect) Outline(query string) string {
	if o, ok := d.Dialect.(dialects.Outliner); ok {
		return o.Outline(query)
	}
	return generic.Dialect{}.Outline(query)
}

// keepingDialect is a dialect of a database where a *sql.DB stands for the whole database.
type keepingDialect struct {
	dialect
	keeper dialects.SettingsKeeper
}

func (d keepingDialect) Settings(query string) (settings []dialects.Setting, alone, complete bool) {
	return d.keeper.Settings(query)
}

func adapt(real dialects.Dialect) dialects.Dialect {
	if keeper, ok := real.(dialects.SettingsKeeper); ok {
		return keepingDialect{dialect{real}, keeper}
	}
	return dialect{real}
}
