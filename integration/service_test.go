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

	"github.com/pooldriver/pooldriver"
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
		// Nobody is served any more, or it goes on after a third of the time.
		run := func(name string, db *sql.DB, middleware func(http.Handler) http.Handler) (goesOn bool) {
			ctx, stop := context.WithCancel(t.Context())
			defer stop()
			var served atomic.Int64
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
				case err == nil:
					served.Add(1)
				case ctx.Err() == nil && !errors.Is(err, pooldriver.ErrDeadlock): // which ends the hang of a slow machine
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
			began := time.Now()
			time.Sleep(lasts / 3)
			first, last := served.Load(), int64(-1)
			for (name == "join" || last != served.Load()) && served.Load() <= first+20 && time.Since(began) < slowMachine {
				last = served.Load()
				time.Sleep(2 * lasts / 3)
			}
			goesOn = served.Load() > first+20
			stop()
			all.Wait()
			t.Logf("%s: %d requests in %v", name, served.Load(), time.Since(began))
			return goesOn
		}
		require.False(t, run("plain", d.openBare(t, connections), func(h http.Handler) http.Handler { return h }))
		for name, mode := range map[string][]httptask.Mode{"no mode": nil, "separate": {httptask.Separate}, "join": {httptask.Join}} {
			db, connector := d.open(t, connections)
			goesOn := run(name, db, func(h http.Handler) http.Handler { return httptask.Middleware(h, mode...) })
			require.Equal(t, name == "join", goesOn, name)
			d.requireRest(t, connector)
		}
	})
}
