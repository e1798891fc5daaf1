package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/httptask"
)

// inARequest runs a handler behind the middleware, in an implicit task, on each server.
func inARequest(t *testing.T, handler func(t *testing.T, ctx context.Context, s stage, p stagePool)) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s stage) {
		p := s.open(t, 8)
		httptask.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			handler(t, r.Context(), s, p)
		})).ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil))
		p.requireNothingLeft(t)
	})
}

func take(t *testing.T, ctx context.Context, db *sql.DB) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(ctx)
	require.NoError(t, err)
	return conn
}

func execOn(t *testing.T, ctx context.Context, conn *sql.Conn, statement string) {
	t.Helper()
	_, err := conn.ExecContext(ctx, statement)
	require.NoError(t, err, statement)
}

// TestTwoGoroutinesOfARequestHaveTheirOwnSettings: each *sql.Conn keeps what it has set.
func TestTwoGoroutinesOfARequestHaveTheirOwnSettings(t *testing.T) {
	inARequest(t, func(t *testing.T, ctx context.Context, s stage, p stagePool) {
		var both sync.WaitGroup
		for who := range 2 {
			both.Go(func() {
				conn, err := p.DB.Conn(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				name := fmt.Sprintf("program %d", who)
				if _, err := conn.ExecContext(ctx, s.say("SET application_name = '"+name+"'", "SET @name = '"+name+"'", "")); err != nil {
					t.Error(err)
					return
				}
				for range 100 {
					var seen string
					if err := conn.QueryRowContext(ctx, s.say("SELECT current_setting('application_name')", "SELECT @name", "")).Scan(&seen); err != nil || seen != name {
						t.Errorf("%s has the setting %q, error: %v", name, seen, err)
						return
					}
				}
			})
		}
		both.Wait()
	})
}

// TestASettingOfARequestsConnSurvivesTheTransactionOfAnother.
func TestASettingOfARequestsConnSurvivesTheTransactionOfAnother(t *testing.T) {
	inARequest(t, func(t *testing.T, ctx context.Context, s stage, p stagePool) {
		one, two := take(t, ctx, p.DB), take(t, ctx, p.DB)
		execOn(t, ctx, one, s.say("SET application_name = 'one'", "SET @name = 'one'", ""))
		execOn(t, ctx, two, "BEGIN")
		var seen string
		require.NoError(t, one.QueryRowContext(ctx, s.say("SELECT current_setting('application_name')", "SELECT @name", "")).Scan(&seen))
		require.Equal(t, "one", seen)
		execOn(t, ctx, one, insertInto(1))
		execOn(t, ctx, two, "ROLLBACK")
		require.Equal(t, []int{1}, s.stored(t), "it was in no transaction")
	})
}

// TestALockOfTheServerExcludesTheConnsOfARequest.
func TestALockOfTheServerExcludesTheConnsOfARequest(t *testing.T) {
	inARequest(t, func(t *testing.T, ctx context.Context, s stage, p stagePool) {
		lock, unlock := "SELECT pg_advisory_lock(4711)", "SELECT pg_advisory_unlock(4711)"
		if s.name == "mysql" {
			lock, unlock = "SELECT GET_LOCK('"+s.account.Database+"', 10)", "SELECT RELEASE_LOCK('"+s.account.Database+"')"
		}
		var inside atomic.Int32
		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				conn, err := p.DB.Conn(ctx)
				if err != nil {
					t.Error(err)
					return
				}
				defer conn.Close()
				for range 5 {
					if _, err := conn.ExecContext(ctx, lock); err != nil {
						t.Error(err)
						return
					}
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d are inside at the same time", n)
					}
					time.Sleep(time.Millisecond)
					inside.Add(-1)
					if _, err := conn.ExecContext(ctx, unlock); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	})
}

// TestABeginByHandOfARequestsConnSurvivesInTx, in which the *sql.Conn is used.
func TestABeginByHandOfARequestsConnSurvivesInTx(t *testing.T) {
	inARequest(t, func(t *testing.T, ctx context.Context, s stage, p stagePool) {
		conn := take(t, ctx, p.DB)
		execOn(t, ctx, conn, "BEGIN")
		require.NoError(t, pooldriver.InTx(ctx, p.DB, nil, func(inside context.Context, tx *sql.Tx) error {
			_, err := conn.ExecContext(inside, insertInto(1))
			require.NoError(t, err)
			_, err = tx.ExecContext(inside, insertInto(2))
			return err
		}))
		execOn(t, ctx, conn, insertInto(3))
		require.Equal(t, []int{2}, s.stored(t))
		execOn(t, ctx, conn, "COMMIT")
		require.ElementsMatch(t, []int{1, 2, 3}, s.stored(t))
	})
}

// TestAQueryRunsBesideAConnThatRawHas, and an export goes on over many rows after a SET.
func TestAQueryRunsBesideWhatARequestHolds(t *testing.T) {
	inARequest(t, func(t *testing.T, ctx context.Context, s stage, p stagePool) {
		require.NoError(t, pooldriver.Raw(ctx, take(t, ctx, p.DB), func(driver.Conn) error {
			p.mustExec(ctx, t, insertInto(1))
			return nil
		}))
		export := take(t, ctx, p.DB)
		execOn(t, ctx, export, s.say("SET application_name = 'export'", "SET @name = 'export'", ""))
		many := s.say("SELECT repeat('x', 1000) FROM generate_series(1, 20000)",
			"SELECT repeat('x', 1000) FROM information_schema.collations AS a, information_schema.collations AS b LIMIT 20000", "")
		rows, err := export.QueryContext(ctx, many)
		require.NoError(t, err)
		n := 0
		for ; rows.Next(); n++ {
			if n%5000 == 0 {
				p.mustExec(ctx, t, insertInto(n+2))
			}
		}
		require.NoError(t, rows.Err())
		require.Equal(t, 20000, n)
	})
}
