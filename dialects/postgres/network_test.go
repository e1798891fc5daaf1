package postgres

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

// pipe is a connection that shows nothing of its socket.
type pipe struct{ net.Conn }

func TestARequestToCancelAsksTheProgramForTheSameAddress(t *testing.T) {
	srv := newServer(t)
	srv.letGo()
	tmpl, err := parse("postgres://u:" + secret + "@db.invalid:4711/d?sslmode=disable")
	require.NoError(t, err)
	asked := make(chan string, 10)
	tmpl.DialNetworkBy(func(ctx context.Context, network, address string) (net.Conn, error) {
		asked <- network + " " + address
		var d net.Dialer
		nc, err := d.DialContext(ctx, "tcp", srv.addr)
		return pipe{nc}, err
	})
	opened, err := tmpl.Dial(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, "tcp db.invalid:4711", <-asked)
	s := opened.(*session)
	sent, counted := s.Sent()
	require.True(t, counted)
	require.NotZero(t, sent)
	require.False(t, s.sealed)
	require.NoError(t, s.pg.CancelRequest(t.Context()))
	require.Equal(t, "tcp db.invalid:4711", <-asked)

	conn := <-srv.conns
	_, err = conn.Write(message(t, &pgproto3.ErrorResponse{Severity: "FATAL", Code: "57P01", Message: "goodbye"}))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.Peek() == dialects.Unsure }, time.Minute, time.Millisecond)
	require.NoError(t, s.Close(t.Context()))
}

func TestANameThatTheProgramDialsIsNotLookedUp(t *testing.T) {
	tmpl, err := parse("postgres://u@db.invalid/d?sslmode=disable&target_session_attrs=read-write")
	require.NoError(t, err)
	tmpl.config.LookupFunc = func(context.Context, string) ([]string, error) {
		return nil, errors.New("looked up")
	}
	no := errors.New("no route")
	tmpl.DialNetworkBy(func(context.Context, string, string) (net.Conn, error) { return nil, no })
	_, err = tmpl.Dial(t.Context(), nil)
	require.ErrorIs(t, err, no)
}
