package connpool

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/observe/report"
	"github.com/pooldriver/pooldriver/pool"
)

const (
	closeWait = time.Second
	// goodbye is how long Close waits for the server to end an idle connection. No
	// connection is dialled in its place, so it does not matter when it is gone.
	goodbye = 30 * time.Millisecond
	// endTimeout is how long the end of a real connection may take on the server,
	// which may have to kill a cancelled statement first.
	endTimeout = 5 * time.Second
)

// destroying tells of a connection that is about to be closed. It is the pool's hook.
func (p *Pool) destroying(r *Conn, reason pool.Reason) {
	why := report.Reason(reason)
	if own := r.why.Load(); own != 0 {
		why = report.Reason(own - 1)
	}
	p.report.Closing(why, p.since(r.born), r.Host())
}

// destroy ends a real connection. It returns when the server has ended it, too: another
// connection may be dialled in its place only after that.
func (p *Pool) destroy(r *Conn) {
	p.real.Remove(r)
	defer p.real.End()
	defer r.tellEnded()
	defer p.closeSession(r.Session.Server(), p.patience(r))
	r.Session.CloseStatements()
	r.Session.MarkUnusable()
}

// patience is how long destroy waits for the server to end r. 0: as long as it takes.
func (p *Pool) patience(r *Conn) time.Duration {
	if p.traits.CloseWrites {
		return 0
	}
	_, severable := r.Session.Server().(dialects.Severable)
	if p.closingIdle.Load() && severable && r.ended == nil {
		return goodbye
	}
	return endTimeout
}

func (p *Pool) closeSession(s dialects.Session, patience time.Duration) {
	if p.env.Guards != nil {
		return // the sandbox ends the session
	}
	ctx := context.Background()
	if patience > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, patience)
		defer cancel()
	}
	if err := s.Close(ctx); err != nil {
		if patience == goodbye {
			return // the server was told to end it, and nothing runs on it
		}
		p.report.CloseFailed(err)
	}
}

// Close closes the pool, and the template when the last borrower is done.
func (p *Pool) Close() {
	p.closingIdle.Store(true)
	p.pool.Close() // no dial begins from here on
	p.credentials.Close()
	limit := closeWait
	if p.traits.CloseWrites {
		limit = math.MaxInt64
	}
	p.awaitUnused(limit)
	p.real.Close(p.closeTemplate) // now, or when the last borrower is done
}

// ErrSilent is the error of who waits for a connection when Sever is called.
var ErrSilent = errors.New("the server does not answer, neither on open connections nor on a new one")

// Sever replaces all connections of p, because the server is silent. Calls that wait for it fail, and so does who waits
// for a connection.
func Sever(p *Pool) {
	p.pool.RefuseWaiting(ErrSilent)
	p.Flush()
	for _, r := range p.Conns() {
		if r.borrowed() {
			r.Session.Sever()
		}
	}
}

func (p *Pool) closeTemplate() {
	err := p.template.Close()
	if own := p.listening; own != nil && own != p.template {
		err = errors.Join(err, own.Close())
	}
	if err != nil {
		p.report.TemplateCloseFailed(err)
	}
}

// awaitUnused returns when every connection that is left has a borrower.
func (p *Pool) awaitUnused(limit time.Duration) {
	for begun := time.Now(); time.Since(begun) < limit; time.Sleep(time.Millisecond) {
		// Read before Stats: if a connection is given back between the two, the loop only runs
		// once more.
		restoring := int(p.restoring.Load())
		if s := p.pool.Stats(); s.Count <= s.Lent-restoring {
			return
		}
	}
}
