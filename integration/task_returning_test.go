package integration

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// cutConn can have a context end in the moment that the server's answer is there
// and the driver has not read it. The driver then closes the connection, and
// tells of success.
type cutConn struct {
	net.Conn
	cutting *atomic.Pointer[context.CancelFunc] // ends the context at the next answer
	closed  context.Context
	close   context.CancelFunc
}

func (c cutConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if n > 0 {
		if cancel := c.cutting.Swap(nil); cancel != nil {
			(*cancel)()
			<-c.closed.Done()
		}
	}
	return n, err
}

func (c cutConn) Close() error {
	c.close()
	return c.Conn.Close()
}

// openCut opens a pool over a driver whose next answer can be cut.
func (s stage) openCut(t *testing.T) (p stagePool, cutting *atomic.Pointer[context.CancelFunc]) {
	t.Helper()
	cutting = new(atomic.Pointer[context.CancelFunc])
	config := mysql.NewConfig()
	config.User, config.Passwd, config.DBName = s.account.User, s.account.Password, s.account.Database
	config.Net, config.Addr, config.Logger = "cut", s.account.Addr, &mysql.NopLogger{}
	config.DialFunc = func(ctx context.Context, _, address string) (net.Conn, error) {
		conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
		if err != nil {
			return nil, err
		}
		closed, closing := context.WithCancel(context.Background())
		return cutConn{conn, cutting, closed, closing}, nil
	}
	connector, err := mysql.NewConnector(config)
	require.NoError(t, err)
	ours := pooldriver.Wrap(connector, quiet, limited(1))
	p = stagePool{DB: sql.OpenDB(ours), stage: s, connector: ours}
	t.Cleanup(func() { _ = p.Close() })
	return p, cutting
}

// TestAContextThatEndsAsItsStatementReturns may cost the connection although the
// statement has succeeded. What is lost with it is said; what is not lost is not.
func TestAContextThatEndsAsItsStatementReturns(t *testing.T) {
	t.Parallel()
	random := randomtest.Seeded(t)
	s := stage{name: "mysql", account: testbed.Shared(t, testbed.MySQL).NewAccount(t)}
	s.witness = s.account.Witness(t)
	mustExec(t, s.witness, "CREATE TABLE ledger (id integer)")
	mustExec(t, s.witness, "CREATE PROCEDURE nothing() SELECT 1")
	p, cutting := s.openCut(t)
	seen := map[bool]int{} // connections that were closed, by whether something was lost
	for _, tc := range []struct {
		name      string
		before    []string
		statement string
		keeps     bool // what the next statements count on
	}{
		{name: "the end of a transaction", before: []string{"BEGIN"}, statement: "COMMIT"},
		{name: "its rollback", before: []string{"BEGIN"}, statement: "ROLLBACK"},
		{name: "a procedure", statement: "CALL nothing()"},
		{name: "a procedure after a transaction", before: []string{"BEGIN", "COMMIT"}, statement: "CALL nothing()"},
		{name: "a procedure in a transaction", before: []string{"BEGIN"}, statement: "CALL nothing()", keeps: true},
		{name: "the beginning of a transaction", statement: "BEGIN", keeps: true},
		{name: "a variable", statement: "SET @tenant = 'alice'", keeps: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			mustExec(t, s.witness, "DELETE FROM ledger")
			closed, kept := 0, 0
			for round := range randomtest.Rounds(60, 600) {
				ctx, end := pooldriver.WithTask(t.Context())
				for _, statement := range tc.before {
					p.mustExec(ctx, t, statement)
				}
				before := p.backend(ctx, t)
				when := moments[round%len(moments)]
				if p.endingAsItReturns(ctx, random, when, cutting, tc.statement) != nil {
					require.NotEqual(t, afterTheReturn, when)
					end()
					continue
				}
				var after int64
				var tenant sql.NullString
				err := p.QueryRowContext(ctx, "SELECT CONNECTION_ID(), @tenant").Scan(&after, &tenant)
				switch {
				case !tc.keeps:
					require.NoError(t, err, "nothing was lost: %s", when)
				case err == nil:
					require.NotEqual(t, inTheAnswer, when)
					require.Equal(t, before, after, "it goes on without what it had")
					require.Equal(t, strings.HasPrefix(tc.statement, "SET"), tenant.Valid)
				default:
					require.NotEqual(t, afterTheReturn, when)
					require.ErrorIs(t, err, pooldriver.ErrTxLost)
					p.requireLost(ctx, t, means)
				}
				if err == nil {
					p.mustExec(ctx, t, insertInto(round))
				}
				switch {
				case when == inTheAnswer, err != nil:
					closed++
				case when == afterTheReturn, tc.keeps:
					kept++
				}
				end()
			}
			t.Logf("returned nil: connection closed %d times, kept %d times", closed, kept)
			seen[tc.keeps] += closed // a CALL has several answers, and may return an error each time
			require.Positive(t, kept)
			p.requireNothingLeft(t)
		})
	}
	require.Positive(t, seen[true])
	require.Positive(t, seen[false])
}

// moment is when the context of a statement ends.
type moment string

const (
	inTheAnswer    moment = "when the answer is there and not read"
	afterTheReturn moment = "after the return"
	atRandom       moment = "at random"
)

var moments = []moment{inTheAnswer, afterTheReturn, atRandom}

func (p stagePool) endingAsItReturns(ctx context.Context, random *rand.Rand, when moment, cutting *atomic.Pointer[context.CancelFunc], statement string) error {
	brief, cancel := context.WithCancel(ctx)
	defer cancel()
	switch when {
	case inTheAnswer:
		cutting.Store(&cancel)
	case atRandom:
		timer := time.AfterFunc(time.Duration(random.IntN(400))*time.Microsecond, cancel)
		defer timer.Stop()
	}
	_, err := p.ExecContext(brief, statement)
	return err
}
