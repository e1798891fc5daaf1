package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/myerror"
)

// busyServer is a peer on which SELECT SLEEP hangs until it is killed, whether
// its client is there or not.
type busyServer struct {
	*peer
	host    func(*peerSession) string // as the process list shows it
	started chan *peerSession

	mu     sync.Mutex // protects following fields
	killed map[uint32]chan struct{}
	linger int // looks that find what was killed still at its rollback
}

func newBusyServer(t *testing.T) *busyServer {
	b := &busyServer{peer: newPeer(t), host: remote, killed: map[uint32]chan struct{}{}, started: make(chan *peerSession, 16)}
	b.answers(b.answerTo)
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		for _, ch := range b.killed {
			closeOnce(ch)
		}
	})
	return b
}

func closeOnce(ch chan struct{}) {
	select {
	case <-ch:
	default:
		close(ch)
	}
}

func (b *busyServer) answerTo(s *peerSession, q string) reply {
	switch {
	case strings.HasPrefix(q, "SELECT SLEEP"):
		b.mu.Lock()
		ch := make(chan struct{})
		b.killed[s.id] = ch
		b.mu.Unlock()
		b.started <- s
		return reply{hang: ch}
	case strings.HasPrefix(q, killLabel):
		b.mu.Lock()
		defer b.mu.Unlock()
		for id, ch := range b.killed {
			if strings.HasSuffix(q, " "+strconv.Itoa(int(id))) {
				closeOnce(ch)
				return reply{ok: true}
			}
		}
		return reply{errno: myerror.NoSuchThread}
	case strings.Contains(q, "processlist"):
		return b.processList(s, q, b.host, func(other *peerSession) bool {
			if other == s {
				return true
			}
			return strings.Contains(q, ", "+strconv.Itoa(int(other.id))+")") && (!other.gone || b.lingers())
		})
	}
	return reply{}
}

func (b *busyServer) lingers() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.linger--
	return b.linger >= 0
}

// cancelled runs a statement on s and cancels it when the server is at work.
func (b *busyServer) cancelled(t *testing.T, s *session) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- execute(ctx, s.conn, "SELECT SLEEP(60)") }()
	<-b.started
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	require.Equal(t, dialects.TxLost, s.TxStatus())
}

func TestCloseKillsACancelledStatementAndWaitsUntilItIsGone(t *testing.T) {
	b := newBusyServer(t)
	s := b.dial(t, b.template(t, "sql_mode=ANSI"))
	b.cancelled(t, s)
	b.said()
	require.NoError(t, s.Close(t.Context()))
	said := b.said()
	require.Equal(t, "login app/", said[0], "the killer has no database")
	require.Equal(t, 1, count(said, killLabel+"KILL 70000"))
	require.Equal(t, 1, count(said, "login"))
	require.Zero(t, count(said, "SET"), "nor the variables of the DSN")
	require.Equal(t, "quit", said[len(said)-1])
	require.Contains(t, b.session(1).attributes, "pooldriver-kill")
	b.peer.mu.Lock()
	defer b.peer.mu.Unlock()
	require.True(t, b.sessions[0].gone)
}

func TestAStatementIsKilledOnceHoweverLongItsRollbackTakes(t *testing.T) {
	b := newBusyServer(t)
	s := b.dial(t, b.template(t, ""))
	b.cancelled(t, s)
	b.mu.Lock()
	b.linger = 4
	b.mu.Unlock()
	b.said()
	require.NoError(t, s.Close(t.Context()))
	said := b.said()
	require.Equal(t, 1, count(said, killLabel))
	require.GreaterOrEqual(t, count(said, "SELECT id"), 6, "one look before it was killed, four while it lingered, one that found it gone")
	require.Equal(t, 1, count(said, "login"))
}

func TestThoseWhoKillAtTheSameTimeShareOneConnection(t *testing.T) {
	b := newBusyServer(t)
	tmpl := b.template(t, "")
	const many = 8
	var sessions []*session
	for range many {
		s := b.dial(t, tmpl)
		b.cancelled(t, s)
		sessions = append(sessions, s)
	}
	b.said()
	// All of them are in before the first may leave.
	tmpl.servers[0].killer.users.Add(1)
	var closing sync.WaitGroup
	for _, s := range sessions {
		closing.Go(func() {
			if err := s.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	closing.Wait()
	tmpl.servers[0].killer.leave()
	said := b.said()
	require.Equal(t, 1, count(said, "login"))
	require.Equal(t, many, count(said, killLabel))
	require.Equal(t, 1, count(said, "quit"))
}

func TestNobodyElsesConnectionIsKilled(t *testing.T) {
	t.Run("another port under the same number", func(t *testing.T) {
		b := newBusyServer(t)
		b.host = func(s *peerSession) string {
			if s.id == peerFirstID {
				return "127.0.0.1:1"
			}
			return remote(s)
		}
		s := b.dial(t, b.template(t, ""))
		b.cancelled(t, s)
		require.ErrorIs(t, s.Close(t.Context()), errElsewhere)
		require.Zero(t, count(b.said(), killLabel))
	})
	t.Run("another user under the same number", func(t *testing.T) {
		b := newBusyServer(t)
		s := b.dial(t, b.template(t, ""))
		b.cancelled(t, s)
		b.peer.mu.Lock()
		b.sessions[0].user, b.seesAll = "somebody else", map[string]bool{"app": true}
		b.peer.mu.Unlock()
		require.ErrorIs(t, s.Close(t.Context()), errElsewhere)
		require.Zero(t, count(b.said(), killLabel))
	})
	t.Run("ports behind a translation of addresses say nothing", func(t *testing.T) {
		b := newBusyServer(t)
		b.host = func(s *peerSession) string { return "10.0.0.1:" + strconv.Itoa(int(s.id)) }
		s := b.dial(t, b.template(t, ""))
		b.cancelled(t, s)
		require.NoError(t, s.Close(t.Context()))
		require.Equal(t, 1, count(b.said(), killLabel))
	})
}

func TestAFullServerIsAskedAgainUntilTheStatementHasEndedByItself(t *testing.T) {
	b := newBusyServer(t)
	s := b.dial(t, b.template(t, ""))
	b.cancelled(t, s)
	refusals := 0
	b.refuses(func(login) uint16 {
		if refusals++; refusals < 3 {
			return myerror.ConnectionLimit
		}
		b.mu.Lock()
		closeOnce(b.killed[peerFirstID])
		b.mu.Unlock()
		return 0
	})
	require.NoError(t, s.Close(t.Context()))
	require.Equal(t, 3, refusals)
}

func TestCloseGivesUpWithItsContext(t *testing.T) {
	b := newBusyServer(t)
	s := b.dial(t, b.template(t, ""))
	b.cancelled(t, s)
	stopped := errors.New("stopped")
	ctx, cancel := context.WithCancelCause(t.Context())
	refused := 0
	b.refuses(func(login) uint16 {
		if refused++; refused == 2 {
			cancel(stopped)
		}
		return myerror.UserLimit
	})
	err := s.Close(ctx)
	require.ErrorIs(t, err, stopped)
}

func TestNothingIsKilledBehindAProxyThatSharesConnections(t *testing.T) {
	b := newBusyServer(t)
	b.answers(func(s *peerSession, q string) reply {
		if q == askHome {
			return homeRow(4711, "utf8mb4", "utf8mb4_general_ci", "utf8mb4", "", nil)
		}
		return b.answerTo(s, q)
	})
	s := b.dial(t, b.template(t, ""))
	b.cancelled(t, s)
	b.said()
	require.ErrorIs(t, s.Close(t.Context()), errProxied)
	require.Empty(t, b.said())
	idle := b.dial(t, b.template(t, ""))
	require.NoError(t, idle.Close(t.Context()))
}

func TestAConnectionThatTheServerEndedIsNotKilled(t *testing.T) {
	b := newBusyServer(t)
	s := b.dial(t, b.template(t, ""))
	require.NoError(t, b.session(0).nc.Close())
	awaitNews(t, s)
	b.said()
	require.NoError(t, s.Close(t.Context()))
	require.Empty(t, b.said())
}

func TestRowsLeftOpenNeedNoKillWhereTheServerIsDone(t *testing.T) {
	p := newPeer(t)
	s := p.dial(t, p.template(t, ""))
	p.answers(func(*peerSession, string) reply { return reply{rows: [][]any{{"1"}, {"2"}}} })
	_, err := s.conn.(interface {
		Query(string, []driver.Value) (driver.Rows, error)
	}).Query("SELECT 1", nil)
	require.NoError(t, err)
	p.said()
	require.NoError(t, s.Close(t.Context()))
	require.Empty(t, p.said(), "neither COM_QUIT nor a login to kill")
}
