package behaviour

import (
	"context"
	"database/sql"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/httptask"
)

// TestForgottenConnsOfATaskAreInTheLog: between statements they hold no connection, so no other warning names them.
func TestForgottenConnsOfATaskAreInTheLog(t *testing.T) {
	t.Parallel()
	for _, forgets := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			log := &lockedBuffer{}
			_, db, c := openTasks(t, 2, logTo(log))
			var all []*sql.Conn
			h := httptask.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				for range 200 {
					conn, err := db.Conn(r.Context())
					require.NoError(t, err)
					_, err = conn.ExecContext(r.Context(), "INSERT INTO t VALUES (1)")
					require.NoError(t, err)
					all = append(all, conn)
				}
				_, err := db.QueryContext(r.Context(), "SELECT n FROM numbers LIMIT 3") // database/sql closes them
				require.NoError(t, err)
				for _, conn := range all {
					if !forgets {
						require.NoError(t, conn.Close())
					}
				}
			}), httptask.Join)
			h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil))
			require.Zero(t, lent(c))
			time.Sleep(2 * time.Second)
			if forgets {
				require.Equal(t, 1, log.lines("open=200"))
				require.Equal(t, 1, log.lines("a *sql.Conn, rows or a transaction of it are still open"))
			} else {
				require.Zero(t, log.lines("still open"))
			}
			for _, conn := range all {
				_ = conn.Close()
			}
		})
	}
}

// TestALeakOfAConnWithoutATaskIsToBeClosed: it has no task to end.
func TestALeakOfAConnWithoutATaskIsToBeClosed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		log := &lockedBuffer{}
		_, db, _ := openTasks(t, 1, logTo(log), func(c *pooldriver.Config) { c.LeakAfter = time.Second })
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		_, err = conn.ExecContext(t.Context(), "SET x = 1")
		require.NoError(t, err)
		time.Sleep(3 * time.Second)
		require.Equal(t, 1, log.lines(`pin="session state"`))
		require.Equal(t, 1, log.lines("close its *sql.Conn"))
		require.NoError(t, conn.Close())
	})
}

// TestAnInTxInALoopOverRowsNamesSetMaxOpenConns: both have the request's context, whose end closes the rows, too.
func TestAnInTxInALoopOverRowsNamesSetMaxOpenConns(t *testing.T) { //nolint:paralleltest // it replaces slog.Default
	log := &lockedBuffer{}
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(log, nil)))
	defer slog.SetDefault(before)
	_, db, _ := openTasks(t, 4)
	db.SetMaxOpenConns(1)
	named := 0
	for begun, round := time.Now(), 0; round < 20 || named == 0 && time.Since(begun) < patience; round++ {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
		rows, err := db.QueryContext(ctx, "SELECT n FROM numbers LIMIT 3")
		if err == nil {
			err = pooldriver.InTx(ctx, db, nil, func(context.Context, *sql.Tx) error { return nil })
			switch {
			case err == nil: // the end of ctx reached the rows, and InTx only when it had their connection
			case strings.Contains(err.Error(), "SetMaxOpenConns(1)"):
				require.ErrorIs(t, err, context.DeadlineExceeded)
				named++
			default:
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, "has ended", "the machine was late, and InTx did not wait")
			}
			_ = rows.Close()
		}
		cancel()
	}
	require.Positive(t, named)
	require.Equal(t, 1, log.lines("because of SetMaxOpenConns"))
}
