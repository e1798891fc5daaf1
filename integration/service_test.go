package integration

import (
	"context"
	"database/sql"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/httptask"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// TestAServiceWithNestedTransactionsNeedsJoin has eight clients of a service with four
// connections. A request has a transaction open, waits for somebody else for a moment,
// and calls a library that only knows the handle and begins a transaction, too. Soon
// every connection is held by a request that needs one more, and where that does not
// join nobody is served any more. All requests change one row, and ask whether they did. docs/tasks.md
// has the figures.
func TestAServiceWithNestedTransactionsNeedsJoin(t *testing.T) {
	const connections, clients = 4, 8
	lasts := time.Duration(randomtest.Rounds(1, 3)) * time.Second
	onEachServer(t, func(t *testing.T, d database) {
		d.setUp(t)
		d.execute(t, "CREATE TABLE hot (n integer)", "INSERT INTO hot VALUES (0)")
		run := func(name string, db *sql.DB, middleware func(http.Handler) http.Handler) (late int64) {
			ctx, stop := context.WithTimeout(t.Context(), lasts)
			defer stop()
			began := time.Now()
			var served, afterwards atomic.Int64
			order := middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				err := begun(r.Context(), db, func(tx *sql.Tx) error {
					time.Sleep(10 * time.Millisecond) // the payment
					if err := insertInTx(r.Context(), db, "stock"); err != nil {
						return err
					}
					res, err := db.ExecContext(r.Context(), "UPDATE hot SET n = n + 1")
					if err != nil {
						return err
					}
					time.Sleep(time.Millisecond) // others want the row
					if n, err := res.RowsAffected(); err != nil || n != 1 {
						return errors.Join(err, errors.New("not one row"))
					}
					return nil
				})
				switch {
				case err == nil && time.Since(began) > lasts/3:
					afterwards.Add(1)
					fallthrough
				case err == nil:
					served.Add(1)
				case ctx.Err() == nil:
					t.Errorf("%s: %v", name, err)
				}
			}))
			var all sync.WaitGroup
			for range clients {
				all.Go(func() {
					for ctx.Err() == nil {
						order.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(ctx, http.MethodPost, "/", nil))
						time.Sleep(5 * time.Millisecond)
					}
				})
			}
			all.Wait()
			t.Logf("%s: %d requests in %v, %d of them in the last two thirds", name, served.Load(), lasts, afterwards.Load())
			return afterwards.Load()
		}
		require.Zero(t, run("plain", d.openBare(t, connections), func(h http.Handler) http.Handler { return h }))
		for name, mode := range map[string][]httptask.Mode{"no mode": nil, "separate": {httptask.Separate}, "join": {httptask.Join}} {
			db, connector := d.open(t, connections)
			late := run(name, db, func(h http.Handler) http.Handler { return httptask.Middleware(h, mode...) })
			if name == "join" {
				require.Greater(t, late, int64(20))
			} else {
				require.Zero(t, late)
			}
			d.requireRest(t, connector)
		}
	})
}
