package postgres

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

// TestTheLastAttemptComesFirst: with sslmode=prefer pgx tries TLS, which the server refuses, and then a login without it.
func TestTheLastAttemptComesFirst(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			b := pgproto3.NewBackend(c, c)
			if m, err := b.ReceiveStartupMessage(); err == nil {
				if _, asksForTLS := m.(*pgproto3.SSLRequest); asksForTLS {
					_, _ = io.WriteString(c, "N")
				} else {
					b.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "28P01", Message: "password authentication failed"})
					_ = b.Flush()
				}
			}
			_ = c.Close()
		}
	}()
	tmpl, err := parse("postgres://app:hunter2@" + l.Addr().String() + "/shop?sslmode=prefer")
	require.NoError(t, err)
	_, err = tmpl.Dial(t.Context(), nil)
	login, tls := strings.Index(err.Error(), "password authentication failed"), strings.Index(err.Error(), "server refused TLS connection")
	require.Positive(t, login, err)
	require.Less(t, login, tls, err)
	require.NotContains(t, err.Error(), "\n")
	refused, ok := errors.AsType[*pgconn.PgError](err)
	require.True(t, ok)
	require.Equal(t, "28P01", refused.Code)
	require.Equal(t, dialects.AuthFailed, dialect{}.Diagnose(err))
}
