package pooldriver

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/session"
)

// The life of real connections: the hooks that the pool calls, and the end of all.

const (
	closeWait = time.Second
	// goodbye is how long Close waits for the server to end an idle connection. No
	// connection is dialled in its place, so it does not matter when it is gone.
	goodbye = 30 * time.Millisecond
	// destroyTimeout is how long the end of a real connection may take on the server,
	// which may have to kill a cancelled statement first.
	destroyTimeout = 5 * time.Second
)

// connections are the real connections that are open, lent or idle.
func (c *core) connections() []*realConn { return c.real.Ready() }

// create dials, and tells the log of an outage or of a change between several servers.
func (c *core) create(ctx context.Context) (*realConn, error) {
	begun := c.usage.Clock.Fine()
	r, err := c.dial(ctx)
	host, passed := "", ""
	if r != nil {
		host, passed = location(r.Server())
	}
	c.report.Dialled(host, c.since(begun), err)
	c.dialEnded(ctx, err)
	if err != nil {
		return nil, err
	}
	if host == "" {
		return r, nil
	}
	before := c.host.Swap(&host)
	if before == nil && passed == "" || before != nil && *before == host {
		return r, nil
	}
	from := ""
	if before != nil {
		from = *before
	}
	c.report.OtherServer(host, from, passed)
	return r, nil
}

// What a connection has to be told when it is used next. It is a set of bits.
const (
	suspect uint32 = 1 << iota // its server has not answered on another one that was idle as long
	orphans                    // statements that it has prepared are closed
)

// notify leaves a notice for the idle connections, or for all.
func (c *core) notify(notice uint32, which func(*realConn) bool) {
	for _, r := range c.connections() {
		if which(r) {
			r.notices.Or(notice)
		}
	}
}

// errSuspect is the error of an idle connection to a server that has not answered on another.
var errSuspect = errors.New("pooldriver: the server has not answered on another connection that was idle as long")

// ready checks a connection that was used before, on its way to the next borrower. So a
// dead connection is found here, and not by the borrower's statement.
func (c *core) ready(ctx context.Context, r *realConn) error {
	if notices := r.notices.Load(); notices != 0 {
		r.notices.And(^notices)
		if notices&suspect != 0 && !r.Irreplaceable() {
			c.report.FoundDead.Add(1)
			return errSuspect
		}
		r.Statements().CloseOrphans()
	}
	dead, err := r.CheckIdle(ctx)
	if err == nil {
		return nil
	}
	if dead {
		c.report.FoundDead.Add(1)
	}
	if _, silent := errors.AsType[*session.SilentError](err); silent && ctx.Err() == nil {
		c.suspectOthers(r)
	}
	return err
}

// suspectOthers follows a look at r that has got no answer: the others that are idle are not
// asked one after the other, because their borrower would wait for each.
func (c *core) suspectOthers(r *realConn) {
	host, _ := location(r.Server())
	c.notify(suspect, func(other *realConn) bool {
		its, _ := location(other.Server())
		return other.holder.Load() == nil && its == host
	})
}

// healthy asks the server whether the connection works, and whether the server still has
// the role that the DSN asks for.
func (c *core) healthy(ctx context.Context, r *realConn) error {
	err := c.answers(ctx, r)
	if err == nil {
		r.notices.And(^suspect)
	}
	return err
}

func (c *core) answers(ctx context.Context, r *realConn) error {
	if _, ok := r.Server().(dialects.RoleChecker); ok && c.traits.RoleMatters {
		ctx, cancel := context.WithTimeout(ctx, c.config.PingTimeout)
		defer cancel()
		return c.fits(ctx, r)
	}
	return r.PingServer(ctx)
}

// destroy ends a real connection. It returns when the server has ended it, too: only then
// may another connection be dialled in its place.
func (c *core) destroy(r *realConn) {
	c.real.Remove(r)
	defer c.real.End()
	defer r.tellEnded()
	defer c.closeSession(r.Server(), c.patience(r))
	r.CloseStatements()
	r.Closed()
}

// tellEnded is called when nobody waits for the end who has not discarded r before.
func (r *realConn) tellEnded() {
	if r.ended != nil {
		close(r.ended)
	}
}

// patience is how long destroy waits for the server to end r. 0: as long as it takes.
func (c *core) patience(r *realConn) time.Duration {
	if c.traits.CloseWrites {
		return 0
	}
	_, severable := r.Server().(dialects.Severable)
	if c.closingIdle.Load() && severable && r.ended == nil {
		return goodbye
	}
	return destroyTimeout
}

func (c *core) closeSession(s dialects.Session, patience time.Duration) {
	ctx := context.Background()
	if patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	if err := s.Close(ctx); err != nil {
		if patience == goodbye {
			return // it was told to end, and nothing runs on it
		}
		c.report.CloseFailed(err)
	}
}

// flushOnce flushes after an event that ends all connections of a pool generation. Several
// connections report the same event. Only the first report of a generation flushes, so
// that new connections are not flushed for it.
func (c *core) flushOnce(generation uint64) (flushed bool) {
	if flushed = c.poolGeneration.CompareAndSwap(generation, generation+1); flushed {
		c.pool.Flush()
	}
	return flushed
}

// close closes the pool, and the template when the last borrower is done.
func (c *core) close() {
	c.closingIdle.Store(true)
	c.pool.Close() // no dial begins from here on
	c.credentials.Close()
	c.leaks.stop()
	limit := closeWait
	if c.traits.CloseWrites {
		limit = math.MaxInt64
	}
	c.awaitUnused(limit)
	c.real.Close(c.closeTemplate) // now, or when the last borrower is done
}

func (c *core) closeTemplate() {
	if err := c.template.Close(); err != nil {
		c.report.TemplateCloseFailed(err)
	}
}

// awaitUnused returns when every connection that is left has a borrower.
func (c *core) awaitUnused(limit time.Duration) {
	for begun := time.Now(); time.Since(begun) < limit; time.Sleep(time.Millisecond) {
		restoring := int(c.restoring.Load()) // before Stats: a restoring that ends in between makes us wait once more
		if s := c.pool.Stats(); s.Count <= s.Lent-restoring {
			return
		}
	}
}
