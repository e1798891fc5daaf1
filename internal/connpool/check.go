package connpool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/observe/report"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/pool"
)

// This file says whether a connection still works, and whether its server is what the DSN asks
// for.
//
// A server that refuses a write may still be the primary: it refuses a write in the program's own
// READ ONLY transaction in the same words. So an error only raises a doubt. When the connection
// is back from its borrower, rolled back and clean, the server is asked. Health checks ask, too.

// The notices for the next use of a connection. They are bits of a set.
const (
	suspect uint32 = 1 << iota // the connection may be dead: another one to its server, idle as long, was
	orphans                    // prepared statements of the connection are to be closed
)

// notify leaves a notice for some of the connections.
func (p *Pool) notify(notice uint32, which func(*Conn) bool) {
	for _, r := range p.Conns() {
		if which(r) {
			r.notices.Or(notice)
		}
	}
}

// NotifyOrphans has each connection close, at its next use, the statements whose owner has
// closed them.
func (p *Pool) NotifyOrphans() { p.notify(orphans, func(*Conn) bool { return true }) }

// errSuspect is the error of an idle connection whose server has not answered on another one.
var errSuspect = errors.New("pooldriver: the server has not answered on another connection that was idle, too")

// ready checks a connection that was used before, on its way to the next borrower. So a
// dead connection is found here, and not by the borrower's statement.
func ready(ctx context.Context, r *Conn) error {
	if notices := r.notices.Load(); notices != 0 {
		r.notices.And(^notices)
		if notices&suspect != 0 && !r.Session.Irreplaceable() {
			r.pool.report.FoundDead.Add(1)
			return errSuspect
		}
		r.Session.Statements().CloseOrphans()
	}
	err := r.Session.CheckIdle(ctx)
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		r.endsBy(report.Lost) // nobody knows whether it was dead
		return err
	}
	r.pool.report.FoundDead.Add(1)
	if _, silent := errors.AsType[*session.SilentError](err); silent {
		r.pool.suspectOthers(r)
	}
	return err
}

// suspectOthers is called when r has got no answer. It marks the other idle connections to the
// same server. They are not asked one after the other, because a borrower would wait for each.
func (p *Pool) suspectOthers(r *Conn) {
	host := r.Host()
	p.notify(suspect, func(other *Conn) bool { return !other.borrowed() && other.Host() == host })
}

// healthy asks the server whether the connection works, and whether the server still has
// the role that the DSN asks for.
func (p *Pool) healthy(ctx context.Context, r *Conn) error {
	err := p.answers(ctx, r)
	if err == nil {
		r.notices.And(^suspect)
	}
	return err
}

func (p *Pool) answers(ctx context.Context, r *Conn) error {
	if _, ok := r.Session.Server().(dialects.RoleChecker); ok && p.traits.RoleMatters {
		ctx, cancel := context.WithTimeout(ctx, p.config.PingTimeout)
		defer cancel()
		return p.fits(ctx, r)
	}
	return r.Session.PingServer(ctx)
}

// fits asks the server for its role. If the role is wrong, the other connections of the same
// generation are replaced as they come back. The caller closes r.
func (p *Pool) fits(ctx context.Context, r *Conn) error {
	err := r.Session.CheckRole(ctx)
	if !errors.Is(err, dialects.ErrWrongRole) {
		return err
	}
	r.endsBy(report.WrongRole)
	p.report.RoleChanged(p.flushOnce(r.generation), r.Host(), err)
	return err
}

// checkRole asks the server for its role, because an error has cast doubt on it. It
// reports whether the connection can be lent again.
func (p *Pool) checkRole(ctx context.Context, r *Conn) bool {
	r.Session.EndRoleDoubt()
	return p.fits(ctx, r) == nil
}

// proofLasts is how long the answer of a server is proof enough for Ready.
const proofLasts = time.Second

// Ready returns nil if a statement would get a connection.
func (p *Pool) Ready(ctx context.Context) error {
	var err error
	for range p.config.MaxConns + 1 { // at most Max connections that do not answer, and a new one
		if p.draining.Load() {
			return p.DrainingError()
		}
		r, acquire := p.AcquireNow(ctx)
		if acquire == pool.ErrNoneNow {
			if p.pool.Stats().Lent > 0 && !p.report.DialsFail() {
				return nil
			}
			r, acquire = p.Acquire(ctx, nil, pool.PriorityHigh) // it waits for a dial, not for borrowers
		}
		if acquire != nil {
			return p.Explain(acquire)
		}
		if err = p.prove(ctx, r); err == nil || ctx.Err() != nil {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("pooldriver: no connection to %s answers: %w", p.report.Target(), err)
	}
	return nil
}

// Ask has ask use a connection that the pool can spare, and reports whether there was one. Nobody
// waits because of that: a connection is taken if one is idle, or opened if the server and the pool
// have room and nobody waits. ask leaves the session as it is. If ask fails, the connection is
// closed.
func (p *Pool) Ask(ctx context.Context, ask func(dialects.Session) error) (asked bool, err error) {
	if p.draining.Load() || p.report.DialsFail() || p.env.Guards != nil {
		return false, nil
	}
	r, err := p.AcquireNow(ctx)
	if s := p.pool.Stats(); err == pool.ErrNoneNow && s.Waiting == 0 && s.Count < s.Allowed {
		if r, err = p.Acquire(ctx, nil, pool.PriorityHigh); err != nil {
			return false, nil // a dial may take long
		}
	}
	if err != nil { // a connection that was idle may be asked for a sign of life first. No statement got none, so it is not counted.
		return ctx.Err() != nil, &acquireError{target: p.report.Target(), err: err}
	}
	keep := false
	defer p.asked(r, &keep) // also by a panic of the driver
	err = ask(r.Session.Server())
	keep = err == nil
	return true, err
}

// asked gives r back, whose server was asked, or closes it, unless its end would be the end of its database.
func (p *Pool) asked(r *Conn, keep *bool) {
	if *keep || r.Session.Irreplaceable() {
		r.Return()
	} else {
		r.Discard(report.CheckFailed)
	}
}

// prove has the server of a connection answer, and gives the connection back. If the server does
// not answer, the connection is closed.
func (p *Pool) prove(ctx context.Context, r *Conn) (err error) {
	keep := false
	defer p.asked(r, &keep) // also by a panic of the driver
	if last := p.proven.Load(); last == nil || time.Since(*last) >= proofLasts {
		if err := p.healthy(ctx, r); err != nil {
			return err
		}
		now := time.Now()
		p.proven.Store(&now)
	}
	keep = true
	return nil
}
