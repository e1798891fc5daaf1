package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/randomtest"
)

// TestACrowdOfReadsInPipelinesGetsItsOwnAnswers: with cancelled contexts, writes and transactions beside, ALTER
// TABLE and connections that are killed. A lost connection fails no read.
func TestACrowdOfReadsInPipelinesGetsItsOwnAnswers(t *testing.T) {
	a := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	plain := sql.OpenDB(pooldriver.New(a.URL()))
	defer plain.Close()
	_, err := plain.Exec("CREATE TABLE items (id int PRIMARY KEY, name text, n int)")
	require.NoError(t, err)
	_, err = plain.Exec("INSERT INTO items SELECT i, 'item ' || i, 0 FROM generate_series(1, 1000) i")
	require.NoError(t, err)

	c := pooldriver.New(a.URL("pool_max_conns=3", "pool_pipeline=16"))
	db := sql.OpenDB(c)
	defer db.Close()
	var reads, cancelled, killed, kills, wrong atomic.Int64
	end := time.Now().Add(time.Duration(randomtest.Rounds(10, 600)) * time.Second)
	var all sync.WaitGroup
	fail := func(format string, args ...any) {
		if wrong.Add(1) < 10 {
			t.Errorf(format, args...)
		}
	}
	for range 48 {
		all.Go(func() {
			for time.Now().Before(end) {
				id := 1 + rand.N(1000)
				ctx, cancel := t.Context(), func() {}
				if rand.N(10) == 0 {
					ctx, cancel = context.WithTimeout(t.Context(), time.Duration(rand.N(3000))*time.Microsecond)
				}
				var name string
				var err error
				switch rand.N(20) {
				case 0:
					err = db.QueryRowContext(ctx, "SELECT 1/($1::int - $1::int)", id).Scan(&name)
					if err != nil && ctx.Err() == nil && !isDivision(err) && !isKilled(err) {
						fail("division: %v", err)
					}
					err = nil
				default:
					err = db.QueryRowContext(ctx, "SELECT name FROM items WHERE id = $1", id).Scan(&name)
					if err == nil && name != fmt.Sprint("item ", id) {
						fail("asked for %d, got %q", id, name)
					}
				}
				reads.Add(1)
				switch {
				case err == nil:
				case ctx.Err() != nil && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)):
					cancelled.Add(1)
				case ctx.Err() != nil:
					cancelled.Add(1)
				case isKilled(err): // it was executed alone
					killed.Add(1)
				default:
					fail("a read: %v", err)
				}
				cancel()
			}
		})
	}
	for range 4 {
		all.Go(func() {
			for time.Now().Before(end) {
				tx, err := db.BeginTx(t.Context(), nil)
				if err != nil {
					continue
				}
				_, _ = tx.Exec("UPDATE items SET n = n + 1 WHERE id = $1", 1+rand.N(1000))
				_ = tx.Commit()
				time.Sleep(time.Millisecond)
			}
		})
	}
	all.Go(func() {
		for i := 0; time.Now().Before(end); i++ {
			time.Sleep(150 * time.Millisecond)
			if i%2 == 0 {
				_, _ = plain.Exec(fmt.Sprintf("ALTER TABLE items ADD COLUMN c%d int", i))
			} else {
				kills.Add(1)
				_, _ = plain.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = current_user AND pid <> pg_backend_pid() ORDER BY random() LIMIT 1")
			}
		}
	})
	all.Wait()
	s := c.Stats()
	require.LessOrEqual(t, killed.Load(), kills.Load(), "a lost connection costs one read at most")
	t.Logf("%d reads, %d cancelled; %d in %d pipelines", reads.Load(), cancelled.Load(), s.Pool.Pipelined, s.Pool.Pipelines)
	require.Zero(t, wrong.Load())
	require.NotZero(t, s.Pool.Pipelined)
}

func isDivision(err error) bool { return hasState(err, "22012") }

// isKilled: the server does not always get to say so.
func isKilled(err error) bool {
	return hasState(err, "57P01") || err != nil && strings.Contains(err.Error(), "the connection was lost after the statement had been sent")
}

func hasState(err error, state string) bool {
	var s interface{ SQLState() string }
	return errors.As(err, &s) && s.SQLState() == state
}
