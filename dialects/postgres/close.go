package postgres

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
)

// closeTimeout bounds the wait for a server when nothing else does.
const closeTimeout = 15 * time.Second

// Close says goodbye and waits until the server has hung up. The server first gives the backend's
// slot back.
func (s *session) Close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, closeTimeout)
	defer cancel()
	deadline, _ := ctx.Deadline()
	if s.wire != nil {
		s.wire.EndGracefully(deadline)
	}
	switch {
	case s.pg.IsClosed():
		return s.awaitCleanup(ctx)
	case s.pg.IsBusy():
		// A backend at work does not read our goodbye.
		_ = s.pg.CancelRequest(ctx)
		defer s.keepCancelling(ctx)()
	}
	if s.wire == nil {
		return s.hangUp(ctx, deadline)
	}
	if err := s.pgx.Close(ctx); err != nil {
		return err
	}
	if !s.wire.Ended() {
		return notGone(ctx)
	}
	return nil
}

// hangUp closes a connection that a wrapper is around. pgx's own Close does not wait for the server. If the
// connection has a socket under it, hangUp first says goodbye and waits. A program's own
// connection may have no deadlines, or share lower layers with others.
func (s *session) hangUp(ctx context.Context, deadline time.Time) error {
	if !hasSocket(s.pg.Conn()) {
		return s.pgx.Close(ctx)
	}
	defer context.AfterFunc(ctx, s.stream.Sever)()
	s.pg.Frontend().Send(&pgproto3.Terminate{})
	_ = s.pg.Frontend().Flush() // if the goodbye cannot be sent, the end of the stream says the same
	if ctx.Err() == nil {
		s.stream.EndGracefully(deadline)
	}
	_ = s.stream.Close()
	_ = s.pgx.Close(ctx) // it finds the socket closed
	if !s.stream.Ended() {
		return notGone(ctx)
	}
	return nil
}

// hasSocket reports whether nothing but TLS is between pgx and a socket.
func hasSocket(nc net.Conn) bool {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}

// endAfter is how long a backend may take to end after pgx's goodbye, if no message to the backend
// is known to have been cut.
const endAfter = 100 * time.Millisecond

// awaitCleanup waits for a connection that pgx closes by itself, after a context ended in the
// middle of a statement: pgx asks the server once to stop the statement, says goodbye and reads to
// the end.
//
// A backend whose message was cut waits for the rest of the message. It ignores the request, and
// takes the goodbye for a part of the message; under TLS no goodbye can be sent after a failed
// write. Only the end of the stream ends such a backend. To a backend at work the end of the stream
// says no more than the goodbye.
func (s *session) awaitCleanup(ctx context.Context) error {
	select {
	case <-s.pg.CleanupDone():
		return nil
	default:
	}
	defer s.keepCancelling(ctx)()
	grace := endAfter
	if s.stream.Cut() {
		grace = 0
	}
	end := time.NewTimer(grace)
	defer end.Stop()
	for {
		select {
		case <-end.C:
			_ = s.stream.CloseWrite() // below TLS
		case <-s.pg.CleanupDone():
			// pgx gives up in time, too. Under TLS it may have read to the end
			// without having seen the end of what lies below.
			if s.wire != nil && !s.sealed && !s.wire.Ended() {
				return notGone(ctx)
			}
			return nil
		case <-ctx.Done():
			return notGone(ctx)
		}
	}
}

var errNotGone = errors.New("the server has not let go of the connection in time")

func notGone(ctx context.Context) error {
	err := ctx.Err()
	if deadline, ok := ctx.Deadline(); err == nil && ok && !time.Now().Before(deadline) {
		err = context.DeadlineExceeded // the socket's clock was ahead of the context's
	}
	if err == nil {
		return errNotGone
	}
	return fmt.Errorf("%w: %w", errNotGone, err)
}

// keepCancelling repeats the request to cancel the running statement until stop is called. A
// backend ignores a request that arrives before the statement has begun, though it was sent after
// the statement (seen: the statement then ran to its end, and nobody listened). The request names
// the backend by a secret, so it can hit no other backend.
func (s *session) keepCancelling(ctx context.Context) (stop func()) {
	const shortest, longest = 50 * time.Millisecond, time.Second
	ctx, cancel := context.WithCancel(ctx)
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for pause := shortest; ; pause = min(2*pause, longest) {
			select {
			case <-time.After(pause):
				_ = s.pg.CancelRequest(ctx) // the wait for the connection's end shows a failure
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-stopped
	}
}
