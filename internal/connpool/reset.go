package connpool

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/observe/callsite"
	"github.com/pooldriver/pooldriver/internal/observe/report"
	"github.com/pooldriver/pooldriver/internal/observe/usage"
	"github.com/pooldriver/pooldriver/internal/pinning"
)

// Task is the task that has used a connection.
type Task interface{ Name() string }

// release describes a use of a connection that has ended. The program's Observer gets it after the
// connection has gone back, because the Observer may need a connection.
type release struct {
	use  usage.Use
	who  report.Who
	host string
}

// releaseOf describes the last use of r. It is called before r goes back.
func (r *Conn) releaseOf(task Task) release {
	u := r.Meter.Used()
	told := release{use: u, who: report.Who{Label: usage.Text(u.Label)}, host: r.Host()}
	if task != nil {
		told.who.Task = task.Name()
	}
	return told
}

// GiveBack takes a real connection back at the end of a checkout. As package pinning decides,
// the connection is lent again at once, or is rolled back and cleaned in the background, or is
// closed. task had the connection; nil: none had it.
func (r *Conn) GiveBack(task Task) {
	p := r.pool
	if p.report.HearsReleased() {
		told := r.releaseOf(task)
		defer func() { p.report.Released(told.use, told.who, told.host) }()
	}
	if r.setting == "" && r.pool.config.Reset == pinning.Auto && r.Session.LeftNothing() {
		r.Return()
	} else {
		r.giveBackLeft()
	}
}

// giveBackLeft gives back a connection that may have a transaction or session state left: it is cleaned, or closed, if so.
func (r *Conn) giveBackLeft() {
	p := r.pool
	lost := ""
	if r.setting != "" {
		lost = r.settingLost()
	}
	switch step, panicked := p.inspect(r); {
	case step.Discard:
		r.Discard(r.whyDiscarded())
		p.tellPanic(panicked)
	case step.Rollback || step.Clean || r.Session.RoleDoubt():
		p.restoring.Add(1)
		at := ""
		if step.Rollback {
			at = callsite.Program()
		}
		if r.Session.Irreplaceable() {
			// The caller waits. Otherwise the pool would make another connection for the
			// caller's next statement, and that is another database.
			p.restore(r, step, at)
		} else {
			go p.restore(r, step, at)
		}
	default:
		r.Session.EndReset()
		r.Return()
	}
	if lost != "" { // after the connection has left: the logger may need a connection
		p.report.StateLost(Outline(p.config.Dialect, &lost))
	}
}

// GiveBackNow is GiveBack, and returns when nothing of the borrower is left on the connection. A
// connection that is closed keeps the borrower's locks until the server has ended it. The timeout
// of the close bounds the wait.
func (r *Conn) GiveBackNow(task Task) {
	p := r.pool
	if p.report.HearsReleased() {
		told := r.releaseOf(task)
		defer func() { p.report.Released(told.use, told.who, told.host) }()
	}
	step, panicked := p.inspect(r)
	if step.Discard {
		r.Discard(r.whyDiscarded())
		p.tellPanic(panicked)
	} else {
		p.restoring.Add(1)
		step.Discard = !p.restore(r, step, "")
	}
	if step.Discard {
		<-r.ended
	}
}

// inspect decides what has to be done with r before it is lent again.
func (p *Pool) inspect(r *Conn) (step pinning.Step, panicked any) {
	f := r.Session.Inspect()
	if f.Unusable {
		return pinning.Step{Discard: true}, f.Panicked
	}
	return pinning.Next(pinning.Left{
		Status: f.Status,
		Effect: f.Effect,
		Mode:   p.config.Reset,
		Valid:  f.Valid,
		Doubt:  f.Doubt,
		Whole:  r.Session.Irreplaceable(),
	}), nil
}

// tellPanic logs a panic of the driver, nil: there was none. The connection has left already.
func (p *Pool) tellPanic(panicked any) {
	if panicked != nil {
		p.report.DriverPanicked("when asked whether a connection is valid; it was closed", panicked)
	}
}

// Discard closes r, which was in use: the server may still work for it.
func (r *Conn) Discard(why report.Reason) {
	r.pool.report.Discards.Add(1)
	r.endsBy(why)
	r.ended = make(chan struct{})
	mustEnd(r.lease.Discard())
}

// whyDiscarded returns why inspect discards r.
func (r *Conn) whyDiscarded() report.Reason {
	if !r.Session.Unusable() && r.Session.Effect()&dialects.Unresettable != 0 {
		return report.Uncleanable
	}
	return report.Lost
}

// restoreLog collects the log entries about a connection. They are written after the
// connection has left, because the logger may need a connection.
type restoreLog []func()

func (l *restoreLog) add(write func()) { *l = append(*l, write) }

func (l *restoreLog) tell() {
	for _, write := range *l {
		write()
	}
}

// restore brings a real connection back to its state at connect and returns it to the
// pool. It has a bounded context of its own: the borrower's context may have ended, and
// the checkout with it. If anything fails, or the driver panics, the connection is closed. at is the
// program's call that has given r back; "": unknown.
func (p *Pool) restore(r *Conn, step pinning.Step, at string) (restored bool) {
	var log restoreLog
	defer log.tell()
	var done reset
	begun := p.usage.Clock.Fine()
	defer p.restoring.Add(-1)
	defer func() {
		if v := recover(); v != nil {
			done.why, done.err = report.ResetFailed, fmt.Errorf("pooldriver: the driver panicked: %T", v)
			log.add(func() { p.report.DriverPanicked("while a connection was cleaned; it was closed", v) })
		}
		took := p.since(begun)
		log.add(func() { p.report.Reset(took, done.rolledBack, done.cleaned, done.err) })
		if restored {
			r.Return()
		} else {
			r.Discard(done.why)
		}
	}()
	ctx, cancel := context.WithTimeout(context.Background(), p.config.CleanTimeout)
	defer cancel()
	r.Session.BeginReset()
	if step.Rollback && !p.rollback(ctx, r, at, &log, &done) || step.Clean && !p.clean(ctx, r, &log, &done) {
		if ctx.Err() == nil && done.why == report.ResetFailed && r.Session.CheckLost() == dialects.TxLost {
			done.why = report.Lost // the server had ended the session before
		}
		return false
	}
	if r.Session.RoleDoubt() && !p.checkRole(ctx, r) {
		done.why, done.err = report.WrongRole, errWrongRole
		return false
	}
	r.Session.EndReset()
	return true
}

// reset records what restore has done with a connection.
type reset struct {
	rolledBack, cleaned bool
	err                 error         // why the connection is closed; nil: it is not
	why                 report.Reason // err in one word
}

var (
	errRollback  = errors.New("pooldriver: the outcome of the rollback is not known")
	errWrongRole = errors.New("pooldriver: the server has lost the role that the DSN asks for (target_session_attrs), or does not tell its role")
)

// rollback ends the transaction that a checkout has left open, or may have left open.
func (p *Pool) rollback(ctx context.Context, r *Conn, at string, log *restoreLog, reset *reset) bool {
	reset.why, reset.err = report.ResetFailed, errRollback // if the driver panics, too
	open, done := r.Session.Rollback(ctx)
	if done {
		reset.err = nil
	}
	reset.rolledBack = open && done
	if open {
		p.report.Rollbacks.Add(1)
		use := r.LastUse("") // before r is lent again
		if at != "" {
			use = append(use, "at", at)
		}
		log.add(func() { p.report.BackOpen(use...) })
	}
	return done
}

// clean brings the session back to its state at connect, AfterConnect included.
func (p *Pool) clean(ctx context.Context, r *Conn, log *restoreLog, reset *reset) bool {
	if err := r.Session.Clean(ctx, p.config.Reset == pinning.Always); err != nil {
		reset.why, reset.err = report.Uncleanable, err
		if !errors.Is(err, dialects.ErrCannotClean) {
			reset.why = report.ResetFailed
			log.add(func() { p.report.CannotClean(err) })
		}
		return false
	}
	if err := p.afterConnect(ctx, r.Session.Server()); err != nil {
		reset.why, reset.err = report.ResetFailed, err
		log.add(func() { p.report.HookRefused(err) })
		return false
	}
	p.report.Cleanings.Add(1)
	reset.cleaned = true
	return true
}

// CompleteSettings tries once more to set what has failed on r.
func (r *Conn) CompleteSettings(ctx context.Context) error {
	if !r.applied.Lacks() {
		return nil
	}
	err := r.applied.Complete(r.execute(ctx))
	r.Session.Statements().MarkAllStale()
	return err
}

// recordSetting remembers a statement that sets session state outside of explicit tasks,
// before it is sent. GiveBack decides what becomes of the state. If the statement ends a setting that
// r lacks, recordSetting first sets a stand-in for the setting, so that the statement succeeds.
func (r *Conn) recordSetting(text string, args []driver.NamedValue) {
	r.setting, r.settingArgs = text, args
	if r.applied.Lacks() {
		r.stoodIn = r.pool.settings.StandIn(&r.applied, text, r.execute(context.Background()))
	}
}

// settingLost is called when a checkout ends. If the checkout's only statement has set session state
// that ends now, settingLost returns the statement's text, or else "". State that is for all
// connections is kept for them here. On a broken connection nothing is lost: the statement is
// tried again, or the program gets its error.
func (r *Conn) settingLost() string {
	query, args := r.setting, r.settingArgs
	r.setting, r.settingArgs, r.stoodIn = "", nil, false
	if r.Session.Unusable() || r.Session.Effect()&pinning.ChangesSession == 0 || callsite.HeldByProgram() {
		return ""
	}
	known, all := r.pool.settings.Record(&r.applied, query, args, r.repeatable)
	if all {
		r.Session.KeepsForAll() // the setting belongs to every connection of the pool
	}
	if known || r.pool.config.Reset == pinning.Off || r.Session.Irreplaceable() {
		return ""
	}
	return query
}

// repeatable is dialects.SettingRepeater's Repeatable.
func (r *Conn) repeatable(s dialects.Setting, args []driver.NamedValue) (text string) {
	server, ok := r.Session.Server().(dialects.SettingRepeater)
	if !ok {
		return s.Text
	}
	text = s.Text
	defer func() {
		if recover() != nil { // a panic of the driver: the connection is still given back
			r.Session.MarkUnusable()
		}
	}()
	return server.Repeatable(context.Background(), s, args)
}
