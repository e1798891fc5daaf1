package postgres

import (
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
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			wg.Go(func() { s.serve(conn) })
		}
	})
	t.Cleanup(func() {
		_ = listener.Close()
		s.letGo()
		wg.Wait()
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
	s.mu.Unlock()
	b.Send(&pgproto3.AuthenticationOk{})
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
			if rows, ok := findRows(m.String); ok {
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
