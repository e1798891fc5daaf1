package integration

import (
	"database/sql"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/inspect"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestTheInspectorSaysThatNobodyIsLetIn: while each login is refused, and while the server is out of
// reach, the pool holds nothing and nobody waits, and the page must not say that all is well.
func TestTheInspectorSaysThatNobodyIsLetIn(t *testing.T) {
	t.Parallel()
	testbed.Each(t, func(t *testing.T, account testbed.Account) {
		verdict := func(db *sql.DB, c *pooldriver.Connector) inspect.Verdict {
			for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
				_ = db.PingContext(t.Context())
			}
			return inspect.Judge(inspect.Handler(c).Snapshot().Pools[0])
		}
		t.Run("a login that is refused", func(t *testing.T) {
			wrong := account
			wrong.Password = "wrong"
			c := pooldriver.New(wrong.URL(), quiet)
			db := sql.OpenDB(c)
			defer db.Close()
			v := verdict(db, c)
			require.Equal(t, "bad", v.Level)
			require.Regexp(t, `^The database cannot be reached, or refuses us: the last \d+ dials have failed, for .*(password authentication failed|Access denied).* No connection is open\.$`, v.Sentence)
			require.NotContains(t, v.Sentence, "wrong")
		})
		t.Run("a server out of reach, and back", func(t *testing.T) {
			d := newDoor(t, account.Addr)
			c := pooldriver.New(account.Via(d.addr()).URL(), quiet)
			db := sql.OpenDB(c)
			defer db.Close()
			require.Equal(t, "calm", verdict(db, c).Level)
			d.close(true)
			v := verdict(db, c)
			require.Equal(t, "bad", v.Level)
			require.Contains(t, v.Sentence, "The database cannot be reached, or refuses us: the last ")
			d.close(false)
			require.Equal(t, "calm", verdict(db, c).Level)
			require.Zero(t, c.Stats().DialsFailing)
		})
	})
}
