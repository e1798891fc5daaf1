package integration

import (
	"context"
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/byteproxy"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestACommitThatIsCutIsNotRepeated cuts the connection at every byte of COMMIT's way to
// the server and of its answer's way back. The server says what was committed.
func TestACommitThatIsCutIsNotRepeated(t *testing.T) {
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		proxy, err := byteproxy.Listen(account.Addr)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, proxy.Close()) })
		s := serverStage(t, account)
		s.account = account.Via(proxy.Addr())
		c := &committer{stagePool: s.open(t, 1), proxy: proxy}
		toServer, toClient := c.measure(t)
		t.Logf("COMMIT has %d bytes, its answer %d", toServer, toClient)
		committed := 0
		for direction, length := range map[byteproxy.Direction]int64{byteproxy.ToServer: toServer, byteproxy.ToClient: toClient} {
			require.Positive(t, length)
			for at := range length + 1 {
				for _, cut := range []byteproxy.Cut{byteproxy.Reset, byteproxy.Finish} {
					if c.commitCut(t, byteproxy.Fault{Direction: direction, At: at, Cut: cut}) {
						committed++
					}
				}
			}
		}
		t.Logf("%d transactions, of which the server has committed %d", c.id, committed)
		require.Zero(t, c.connector.Stats().TxRetries)
		require.Positive(t, committed)
		require.Less(t, committed, c.id)
	})
}

// committer runs one transaction after the other, each with a number of its own.
type committer struct {
	stagePool
	proxy *byteproxy.Proxy
	id    int
}

// insert runs a transaction, and calls before right before COMMIT.
func (c *committer) insert(before func()) (attempts int, err error) {
	c.id++
	err = pooldriver.InTx(context.Background(), c.DB, nil, func(ctx context.Context, tx *sql.Tx) error {
		attempts++
		_, err := tx.ExecContext(ctx, insertInto(c.id))
		before()
		return err
	}, pooldriver.Retry{})
	return attempts, err
}

// measure counts the bytes of a COMMIT and of its answer.
func (c *committer) measure(t *testing.T) (toServer, toClient int64) {
	t.Helper()
	_, err := c.insert(c.proxy.Count)
	require.NoError(t, err)
	return c.proxy.Counted()
}

// commitCut runs a transaction whose COMMIT is cut, and reports whether the server has
// committed it.
func (c *committer) commitCut(t *testing.T, f byteproxy.Fault) (committed bool) {
	t.Helper()
	require.NoError(t, c.Ping(), "a connection that works")
	var fired <-chan struct{}
	attempts, err := c.insert(func() { fired = c.proxy.Arm(f) })
	require.Equal(t, 1, attempts, "%v: %v", f, err)
	<-fired
	require.Eventually(t, func() bool { // what reached the server is over
		left, err := c.left(context.Background())
		return err == nil && left == ""
	}, 10*time.Second, time.Millisecond)
	count := 0
	for _, id := range c.stored(t) {
		if id == c.id {
			count++
		}
	}
	require.LessOrEqual(t, count, 1, "%v", f)
	if err == nil {
		require.Equal(t, 1, count, "%v: an acknowledged commit is lost", f)
	}
	return count == 1
}
