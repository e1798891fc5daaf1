package connpool

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"runtime/debug"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/mergedctx"
	"github.com/pooldriver/pooldriver/pool"
)

// create dials, and tells of an outage or of a change between several servers. It is the pool's
// hook.
func (p *Pool) create(ctx context.Context) (*Conn, error) {
	begun := p.usage.Clock.Fine()
	r, err := p.dial(ctx)
	host, passedOver := "", ""
	if r != nil {
		host, passedOver = location(r.Session.Server())
	}
	p.report.Dialled(host, p.since(begun), err)
	p.dialEnded(ctx, err)
	if err != nil {
		return nil, err
	}
	if host == "" {
		return r, nil
	}
	before := p.host.Swap(&host)
	if before == nil && passedOver == "" || before != nil && *before == host {
		return r, nil
	}
	from := ""
	if before != nil {
		from = *before
	}
	p.report.OtherServer(host, from, passedOver)
	return r, nil
}

// dialEnded tells of an outage.
func (p *Pool) dialEnded(ctx context.Context, err error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return // the pool is being closed
	}
	if err != nil && p.serverFull(err) {
		if open := p.pool.Stats().Count - 1; open > 0 { // the one that was refused still counts
			p.report.ServerFull(open, err)
			return
		}
	}
	p.report.DialsEnded(err)
}

// dial makes one real connection, in the background, with a context that
// Limits.ConnectTimeout bounds.
func (p *Pool) dial(ctx context.Context) (r *Conn, err error) {
	generation := p.generation.Load()
	p.real.Begin()
	var s dialects.Session
	left := false // the dial was given up while AfterConnect has the session: it closes the session itself
	defer func() {
		if r != nil {
			return
		}
		// An error, or a panic on its way to the pool.
		p.report.DialErrors.Add(1)
		if left {
			return
		}
		if s != nil {
			p.closeSession(s, endTimeout)
		}
		p.real.End()
	}()
	if s, err = p.dialBy(ctx, p.template.Dial); err != nil {
		return nil, &dialects.ConnectError{Target: p.report.Target(), Hosts: dialects.HostsOf(p.template), Err: err}
	}
	if left, err = p.boundedAfterConnect(ctx, s); err != nil {
		return nil, fmt.Errorf("pooldriver: a new connection to %s is closed: %w", p.report.Target(), err)
	}
	r = p.NewConn(s, generation)
	if p.config.Confirm != nil {
		r.Era = p.config.Confirm(ctx)
	}
	p.real.Add(r)
	return r, nil
}

// dialBy dials with the DSN's user and password, or with those of Config.Credentials. If the server
// refuses those of Config.Credentials, dialBy asks the source once more. dial is Dial of a template.
func (p *Pool) dialBy(ctx context.Context, dial func(context.Context, *dialects.Credential) (dialects.Session, error)) (dialects.Session, error) {
	if p.credentials == nil {
		return dial(ctx, nil)
	}
	var refused uint64
	for {
		cred, serial, err := p.credential(ctx, refused)
		if err != nil {
			return nil, err
		}
		s, err := dial(ctx, cred)
		if err == nil || refused != 0 || !p.refusesUs(err) {
			return s, err
		}
		refused = serial
	}
}

// afterConnect runs the program's hook. The hook must not leave a transaction open: the
// first borrower's work would be part of it, and would be rolled back.
func (p *Pool) afterConnect(ctx context.Context, s dialects.Session) error {
	if p.config.AfterConnect == nil || p.env.Guards != nil { // Guards call it
		return nil
	}
	if err := p.config.AfterConnect(ctx, s.Conn()); err != nil {
		return fmt.Errorf("AfterConnect: %w", err)
	}
	switch s.TxStatus() {
	case dialects.TxOpen, dialects.TxFailed, dialects.TxImplicit:
		return errors.New("AfterConnect left a transaction open, or switched autocommit off; it must leave neither")
	}
	return nil
}

// hookGrace is how long a hook may take to return when its context has ended.
const hookGrace = 100 * time.Millisecond

// boundedAfterConnect waits for afterConnect as long as ctx lasts, and then for hookGrace. So a
// dial ends in time whatever the program's hook does. left reports that the hook has not
// returned. In that case the session is the hook's until the hook returns, and is closed after
// that.
func (p *Pool) boundedAfterConnect(ctx context.Context, s dialects.Session) (left bool, _ error) {
	if p.config.AfterConnect == nil || p.env.Guards != nil {
		return false, nil
	}
	running, err := callBounded(ctx, hookGrace, func() error { return p.afterConnect(ctx, s) }, func(value any) error {
		return &pool.PanicError{Hook: "AfterConnect", Value: value, Stack: debug.Stack()}
	})
	if running == nil {
		return false, err
	}
	if cut, ok := s.(dialects.Severable); ok {
		cut.Sever() // in case the hook waits for the server
	}
	p.report.Orphans.Add(1)
	go func() {
		err := <-running
		p.closeSession(s, endTimeout)
		p.real.End()
		p.report.HookReturned(err)
	}()
	return true, fmt.Errorf("AfterConnect does not return, although its context has ended: %w (pool_connect_timeout=%v)", ctx.Err(), p.config.ConnectTimeout)
}

var errNoConn = errors.New("Config.Dial has returned neither a connection nor an error")

// BoundedDial waits for dial as long as the context lasts, and then for hookGrace. It returns a
// connection or an error, whatever dial does. A connection that comes late is closed.
func BoundedDial(dial dialects.DialFunc) dialects.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		var nc net.Conn
		running, err := callBounded(ctx, hookGrace, func() (err error) {
			switch nc, err = dial(ctx, network, address); {
			case err != nil:
				return fmt.Errorf("Config.Dial: %w", err)
			case isNil(nc):
				return errNoConn
			}
			return nil
		}, func(value any) error {
			return &pool.PanicError{Hook: "Config.Dial", Value: value, Stack: debug.Stack()}
		})
		if running != nil {
			go func() {
				if <-running == nil {
					_ = nc.Close()
				}
			}()
			return nil, fmt.Errorf("Config.Dial does not return, although its context has ended: %w", ctx.Err())
		}
		if err != nil {
			return nil, err
		}
		return nc, nil
	}
}

// isNil reports whether nc is nil, or a nil pointer that looks like a connection.
func isNil(nc net.Conn) bool {
	if nc == nil {
		return true
	}
	v := reflect.ValueOf(nc)
	return v.Kind() == reflect.Pointer && v.IsNil()
}

// credential returns a copy of the credential that a dial is to use. If the source has given a
// new credential, connections made with an older one are replaced as they come back. The
// connection for which the pool has made ctx is not replaced.
func (p *Pool) credential(ctx context.Context, refused uint64) (*dialects.Credential, uint64, error) {
	cred, serial, changed, err := p.credentials.Get(ctx, refused)
	if changed {
		p.pool.FlushOthers(ctx)
	}
	if err != nil {
		return nil, 0, err
	}
	return &cred, serial, nil
}

// renewCredential asks the source for the next credential before this one expires. Without it a
// connection could outlive its credential because nobody dials. If the source fails, it is asked
// again, and connections go on.
func (p *Pool) renewCredential() {
	if p.real.Empty() {
		return // the next dial asks the source again
	}
	ctx, cancel := context.WithTimeout(p.credentials.Context(), p.config.ConnectTimeout)
	defer cancel()
	var panicked error // the next dial reports it
	defer p.report.Guarded("Config.Credentials", nil, &panicked)
	changed, err := p.credentials.Renew(ctx)
	if err != nil && p.credentials.Context().Err() == nil {
		p.report.NoCredential(err)
	}
	if changed {
		p.pool.Flush()
	}
}

// credentialOfNow returns the credential with which a dialect ends a statement on the server. It
// runs on the goroutine that closes a connection, and not in a dial.
func (p *Pool) credentialOfNow(ctx context.Context, refused dialects.Credential) (_ dialects.Credential, err error) {
	if err := p.credentials.Context().Err(); err != nil {
		return refused, err // the program has closed us, and perhaps its source
	}
	ctx, merged := mergedctx.New(ctx, p.credentials.Context())
	defer merged.Release()
	defer p.report.Guarded("Config.Credentials", nil, &err)
	cred, serial, err := p.credential(ctx, 0)
	if err == nil && !cred.Expires.IsZero() && cred.User == refused.User && cred.Password == refused.Password {
		cred, _, err = p.credential(ctx, serial) // the server refuses it before it expires
	}
	if err != nil {
		return refused, err
	}
	return *cred, nil
}

// DialBeside opens a session that is none of the pool's connections, and counts to none of its limits. Its caller
// closes it.
func DialBeside(ctx context.Context, p *Pool) (_ dialects.Session, err error) {
	defer p.report.Guarded("a function that is called to connect", nil, &err)
	ctx, cancel := context.WithTimeout(ctx, p.config.ConnectTimeout)
	defer cancel()
	return p.dialBy(ctx, p.template.Dial)
}
