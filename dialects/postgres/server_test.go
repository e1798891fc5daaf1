package postgres

import (
	"context"
	"maps"
	"net"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"
)

// server is a PostgreSQL that lets everybody in and answers every simple query
// with nothing, and those of rows_test.go with rows. It is for what a real one
// does at no known moment.
type server struct {
	addr string

	mu       sync.Mutex
	startups []map[string]string // what clients began with
	queries  []string
	reports  map[string]string       // parameters of the session that it tells
	answer   [2]string               // to asksRole: in recovery, read-only
	refuses  *pgproto3.ErrorResponse // nil: it lets everybody in
	asks     bool                    // for a password, first
	fails    *pgproto3.ErrorResponse // nil: asksRole is answered

	conns  chan net.Conn // those let in
	hangUp chan struct{} // closed: a goodbye is answered
	once   sync.Once
}

// letGo makes the server hang up on whoever says goodbye.
func (s *server) letGo() { s.once.Do(func() { close(s.hangUp) }) }

func newServer(t *testing.T) *server {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	s := &server{addr: listener.Addr().String(), conns: make(chan net.Conn, 8), hangUp: make(chan struct{})}
	ended, end := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() {
				defer context.AfterFunc(ended, func() { _ = conn.Close() })()
				s.serve(conn)
			})
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		s.letGo()
		if t.Failed() { // perhaps no goodbye comes
			end()
		}
		wg.Wait()
		end()
	})
	return s
}

func (s *server) serve(conn net.Conn) {
	defer func() { _ = conn.Close() }()
	b := pgproto3.NewBackend(conn, conn)
	startup, err := b.ReceiveStartupMessage()
	if err != nil {
		return
	}
	m, ok := startup.(*pgproto3.StartupMessage)
	if !ok {
		return // a request to cancel
	}
	s.mu.Lock()
	s.startups = append(s.startups, m.Parameters)
	reports, refuses, asks := maps.Clone(s.reports), s.refuses, s.asks
	s.mu.Unlock()
	if asks {
		b.Send(&pgproto3.AuthenticationCleartextPassword{})
		if b.Flush() != nil || b.SetAuthType(pgproto3.AuthTypeCleartextPassword) != nil {
			return
		}
		if _, err := b.Receive(); err != nil {
			return
		}
	}
	if refuses != nil {
		b.Send(refuses)
		_ = b.Flush()
		return
	}
	b.Send(&pgproto3.AuthenticationOk{})
	for name, value := range reports {
		b.Send(&pgproto3.ParameterStatus{Name: name, Value: value})
	}
	// pgx writes no simple query without knowing these.
	b.Send(&pgproto3.ParameterStatus{Name: "standard_conforming_strings", Value: "on"})
	b.Send(&pgproto3.ParameterStatus{Name: "client_encoding", Value: "UTF8"})
	b.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 1}})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if b.Flush() != nil {
		return
	}
	s.conns <- conn
	status := byte('I')
	var p portal
	for {
		msg, err := b.Receive()
		if err != nil {
			return
		}
		switch m := msg.(type) {
		case *pgproto3.Terminate:
			<-s.hangUp
			return
		case *pgproto3.Sync:
			b.Send(&pgproto3.ReadyForQuery{TxStatus: status})
		case *pgproto3.Query:
			s.mu.Lock()
			s.queries = append(s.queries, m.String)
			answer, fails := s.answer, s.fails
			s.mu.Unlock()
			switch m.String {
			case "BEGIN":
				status = 'T'
			case "ROLLBACK":
				status = 'I'
			case "FAIL":
				status = 'E'
				b.Send(&pgproto3.ErrorResponse{Severity: "ERROR", Code: "22012", Message: "division by zero"})
			}
			if m.String == (postgres{}).asksRole() && fails != nil {
				b.Send(fails)
			} else if m.String == (postgres{}).asksRole() {
				b.Send(&pgproto3.RowDescription{Fields: []pgproto3.FieldDescription{{Name: []byte("pg_is_in_recovery")}, {Name: []byte("reset_val")}}})
				b.Send(&pgproto3.DataRow{Values: [][]byte{[]byte(answer[0]), []byte(answer[1])}})
				b.Send(&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")})
			} else if rows, ok := findRows(m.String); ok {
				portal{rows: rows}.describe(b)
				portal{rows: rows}.execute(b)
			} else {
				b.Send(&pgproto3.EmptyQueryResponse{})
			}
			b.Send(&pgproto3.ReadyForQuery{TxStatus: status})
		default:
			p.extended(b, msg)
		}
		if b.Flush() != nil {
			return
		}
	}
}
