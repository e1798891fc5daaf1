package connpool

import (
	"context"
	"database/sql/driver"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/dbsettings"
	"github.com/pooldriver/pooldriver/internal/observe/report"
	"github.com/pooldriver/pooldriver/internal/observe/usage"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/pool"
)

// Owner is who has a connection, or had it last, as far as the pool uses it.
type Owner interface {
	// Has reports whether r is lent to the owner. It needs no lock.
	Has(r *Conn) bool
	// CountedOnTx and Detached are what a session tells its owner; see session.Owner.
	CountedOnTx(*session.LostError)
	Detached()
}

// Conn is one real connection.
type Conn struct {
	Number     uint64 // in the pool, from 1
	owner      atomic.Pointer[Owner]
	pool       *Pool
	generation uint64 // of the pool when it was dialled: see Pool.flushOnce
	lease      pool.Lease[*Conn]
	born       int64         // by the clock of the meter
	notices    atomic.Uint32 // bits that the next use of the connection looks at; see ready

	// setting is the text of the last statement without a task that has set session state,
	// with its arguments.
	setting     string
	settingArgs []driver.NamedValue
	stoodIn     bool               // a stand-in is set for the setting that the statement ends: see recordSetting
	applied     dbsettings.Applied // which settings of the *sql.DB it has

	// why is the report.Reason of its end, plus 1; 0: the pool's own reason counts.
	why atomic.Uint32
	// ended is closed when the server has ended the connection, or when nobody waits for the
	// server any more; nil: nobody waits for it. It is made when the connection is discarded: a
	// channel that was made earlier may belong to another bubble of testing/synctest.
	ended chan struct{}

	Session session.Session
	Era     uint64 // of a replica, see floor.Server
	Meter   usage.Meter
	// Told is the number, plus 1, of the last checkout that the log was warned of because it
	// lasts long.
	Told atomic.Uint64
}

var _ session.Owner = (*Conn)(nil)

// NewConn returns a connection over server, which is not in the pool.
func (p *Pool) NewConn(server dialects.Session, generation uint64) *Conn {
	r := &Conn{pool: p, generation: generation}
	r.Number, r.born = p.numbers.Add(1), p.usage.Clock.Fine()
	r.Session.Init(&p.env, server, p.traits, r)
	r.Meter.Init(p.usage)
	return r
}

// LendTo makes o, whose address stays the same, the owner of r.
func (r *Conn) LendTo(o *Owner) {
	if r.owner.Load() != o { // mostly it is: both are used again in the order in which they came back
		r.owner.Store(o)
	}
}

// Owner is who has r, or had it last; nil: nobody. It needs no lock.
func (r *Conn) Owner() Owner {
	if o := r.owner.Load(); o != nil {
		return *o
	}
	return nil
}

// borrowed reports whether r has a borrower.
func (r *Conn) borrowed() bool {
	o := r.Owner()
	return o != nil && o.Has(r)
}

// Waited is how long its borrower has waited for it. It is to be asked before the connection
// goes back.
func (r *Conn) Waited() time.Duration { return r.lease.Waited() }

// TakeAlong takes borrowers that wait along: see pool.Lease.TakeAlong.
func (r *Conn) TakeAlong(most func(waiting, resources int) int, may func(who any) bool) []pool.Follower[*Conn] {
	return r.lease.TakeAlong(most, may)
}

// Return gives back a connection that was not used.
func (r *Conn) Return() { mustEnd(r.lease.Release()) }

// mustEnd: a borrower ends its lease exactly once. If it did not, two borrowers could hold
// one connection, and no other promise of pooldriver would hold.
func mustEnd(err error) {
	if err != nil {
		panic("pooldriver: broken invariant: " + err.Error())
	}
}

// Host is its server, where the DSN names several; else empty.
func (r *Conn) Host() string {
	host, _ := location(r.Session.Server())
	return host
}

// location is the server of s, and the servers that its dial has passed over.
func location(s dialects.Session) (host, passedOver string) {
	if l, ok := s.(dialects.Hosted); ok {
		return l.Host()
	}
	return "", ""
}

// Diagnosed acts on what an error says of the server and of the session.
func (r *Conn) Diagnosed(said dialects.Diagnosis) {
	if said&dialects.Spent != 0 {
		r.Session.RecordEffect(dialects.Stateful | dialects.Unresettable)
	}
	if said&dialects.ServerLeaving != 0 {
		r.FlushGeneration()
	}
	if said&dialects.SessionEnded != 0 {
		r.Session.MarkUnusable()
	}
}

// Sending remembers a statement that sets session state outside of explicit tasks. GiveBack decides what
// happens to the state. The error is that of a setting which no connection may have alone. Before a
// statement that may be a VACUUM, Sending executes the setting of the *sql.DB that waits for a VACUUM.
func (r *Conn) Sending(ctx context.Context, st *session.Statement) error {
	switch {
	case st.Effect&pinning.ChangesSession != 0:
		if r.Session.InTask() {
			return nil
		}
		if err := r.pool.settings.Refusal(st.Text); err != nil {
			return err
		}
		r.recordSetting(st.Text, st.Args)
	case st.Effect&dialects.ForgetPrepared != 0:
		if text := r.pool.settings.ForVacuum(); text != "" {
			return r.execute(ctx)(text)
		}
	}
	return nil
}

// Failed forgets the recorded statement.
func (r *Conn) Failed() {
	r.Meter.Failed()
	if r.stoodIn {
		r.Session.MarkUnusable() // the stand-in is still there
	}
	r.setting, r.settingArgs, r.stoodIn = "", nil, false
}

// StatementsExhausted closes the prepared statements of idle connections: the server has reached
// its limit, which counts the statements of all its clients.
func (r *Conn) StatementsExhausted() { r.pool.returnStatements() }

// execute executes settings on r.
func (r *Conn) execute(ctx context.Context) dbsettings.Execute {
	return func(text string, args ...driver.NamedValue) error {
		return r.Session.Guard(func() error { return r.Session.Command(ctx, text, args...) })
	}
}

// CountAffected tells the log of slow statements how many rows a slow one has affected.
func (r *Conn) CountAffected(result driver.Result, err error) {
	if err != nil || result == nil || !r.Meter.IsSlow() {
		return
	}
	if n, err := result.RowsAffected(); err == nil {
		r.Meter.Affected(n)
	}
}

// FlushGeneration replaces the connections of r's generation: the cause of r's end may have ended
// them, too.
func (r *Conn) FlushGeneration() { r.pool.flushOnce(r.generation) }

// endsBy records why r ends, if the pool does not know the reason. The first reason counts.
func (r *Conn) endsBy(why report.Reason) { r.why.CompareAndSwap(0, uint32(why)+1) }

// tellEnded wakes the goroutine that has discarded r and waits for its end. Nobody else waits for that.
func (r *Conn) tellEnded() {
	if r.ended != nil {
		close(r.ended)
	}
}

// CountedOnTx implements session.Owner: a context has ended a transaction in which others ran.
func (r *Conn) CountedOnTx(loss *session.LostError) { r.Owner().CountedOnTx(loss) }

// Detached implements session.Owner: a checkout does not use the session any more.
func (r *Conn) Detached() { r.Owner().Detached() }

// returnStatements closes the prepared statements of idle connections.
func (p *Pool) returnStatements() {
	var idle []*Conn
	defer func() { // also after a panic of the driver, which closes that connection
		for _, r := range idle {
			if r.Session.Calls() > 0 || r.Session.Unusable() {
				r.Discard(report.Lost)
			} else {
				r.Return()
			}
		}
	}()
	for lease, ok := p.pool.TryAcquire(); ok; lease, ok = p.pool.TryAcquire() {
		r, _ := connOf(lease, nil)
		idle = append(idle, r)
		r.Session.ReturnStatements(context.Background())
	}
}

// Outline is a statement's text without literals; text may be nil.
func Outline(d dialects.Dialect, text *string) string {
	if text == nil {
		return ""
	}
	return d.Outline(*text)
}

// LastUse returns for the log what is known of the last use of r. Nobody else uses r meanwhile.
func (r *Conn) LastUse(task string) (known []any) {
	l, _ := r.Meter.Look()
	add := func(key, value string) {
		if value != "" {
			known = append(known, key, value)
		}
	}
	add("task", task)
	add("label", usage.Text(l.Label))
	add("statement", Outline(r.pool.config.Dialect, l.Text))
	if at := l.Site.Frames(); len(at) > 0 {
		add("taken_at", at[0].String())
	}
	return known
}
