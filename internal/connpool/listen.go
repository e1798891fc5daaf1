package connpool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"

	"github.com/pooldriver/pooldriver/dialects"
)

// Listening makes the connection that listens: with a template of its own, and the pool's credentials and
// limits of time.
type Listening struct {
	pool     *Pool
	template dialects.ListenTemplate
}

// NewListening returns the Listening of p, which has one. It is called before the first dial.
func NewListening(p *Pool, t dialects.ListenTemplate) *Listening {
	p.listening = t
	return &Listening{p, t}
}

// Dial opens a connection. AfterConnect is not called: no statement of the program runs there.
func (l *Listening) Dial(ctx context.Context) (conn *Listener, err error) {
	p := l.pool
	p.real.Begin()
	defer func() {
		if err != nil {
			p.report.DialErrors.Add(1)
			p.real.End()
			err = fmt.Errorf("connecting to %s: %w", l.template.Target(), err)
		}
	}()
	defer p.report.Guarded("a function that Connector.Listen calls to connect", nil, &err)
	ctx, cancel := context.WithTimeout(ctx, p.config.ConnectTimeout)
	defer cancel()
	begun := p.usage.Clock.Fine()
	s, err := p.dialBy(ctx, func(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
		return l.template.DialListener(ctx, cred)
	})
	host := ""
	if err == nil {
		host, _ = location(s)
	}
	p.report.Dialled(host, p.since(begun), err)
	if err != nil {
		return nil, err
	}
	return &Listener{s.(dialects.Listener), p.numbers.Add(1), host, p}, nil
}

// Denied reports whether the server has refused a login.
func (l *Listening) Denied(err error) bool { return l.pool.refusesUs(err) }

// Outage reports whether err says that the network or the server does not work now, or that a failover
// is under way. Any other error of a dial would come again.
func (l *Listening) Outage(err error) bool {
	said := l.pool.config.Dialect.Diagnose(err)
	if said&dialects.AuthFailed != 0 {
		return false
	}
	_, network := errors.AsType[net.Error](err)
	return network || said&(dialects.ServerLeaving|dialects.ServerFull) != 0 || errors.Is(err, dialects.ErrWrongRole) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, context.DeadlineExceeded)
}

// Listener is the connection that listens. It is not in the pool, and counts to none of its limits.
type Listener struct {
	dialects.Listener
	Number uint64 // the number of the connection in its Connector
	Host   string // the server that it leads to
	pool   *Pool
}

// Close ends the session, as the end of a connection of the pool does.
func (l *Listener) Close() {
	defer l.pool.real.End()
	l.pool.closeSession(l.Listener, endTimeout)
}
