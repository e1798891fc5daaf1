package migrating

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// page: queue
// work runs the jobs of a table until ctx ends.
func work(ctx context.Context, connector *pooldriver.Connector, db *sql.DB, run func(ctx context.Context, tx *sql.Tx, id int64) error) error {
	wake := make(chan struct{}, 1)
	listening := make(chan error, 1)
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		listening <- connector.Listen(pooldriver.Label(ctx, "worker"), "jobs", func(context.Context, pooldriver.Notification) {
			select { // a notification or a gap: look at the table
			case wake <- struct{}{}:
			default:
			}
		})
	}()
	poll := time.NewTicker(time.Minute)
	defer poll.Stop()
	for {
		select {
		case <-wake:
		case <-poll.C:
		case err := <-listening: // nil when ctx has ended
			return err
		}
		for more := true; more && ctx.Err() == nil; {
			var err error
			if more, err = runOne(ctx, db, run); err != nil {
				return err
			}
		}
	}
}

// runOne runs a job that nobody else has, and deletes it in the same transaction.
func runOne(ctx context.Context, db *sql.DB, run func(ctx context.Context, tx *sql.Tx, id int64) error) (found bool, err error) {
	err = pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		var id int64
		err := tx.QueryRowContext(ctx, `DELETE FROM jobs WHERE id = (
			SELECT id FROM jobs WHERE due <= now() ORDER BY id FOR UPDATE SKIP LOCKED LIMIT 1) RETURNING id`).Scan(&id)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		found = true
		return run(ctx, tx, id)
	})
	return found, err
}

// end

func TestWorkersOfAQueueAreWoken(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	connector := pooldriver.New(account.URL(), quiet)
	db := sql.OpenDB(connector)
	defer db.Close()
	mustExec(t, db, "CREATE TABLE jobs (id INT PRIMARY KEY, due TIMESTAMPTZ NOT NULL)")
	mustExec(t, db, "INSERT INTO jobs VALUES (1, now())")
	ctx, stop := context.WithCancel(t.Context())
	ran, done := make(chan int64, 10), make(chan error, 2)
	for range 2 {
		go func() {
			done <- work(ctx, connector, db, func(_ context.Context, _ *sql.Tx, id int64) error { ran <- id; return nil })
		}()
	}
	require.EqualValues(t, 1, <-ran, "it was there before")
	for id := int64(2); id < 5; id++ {
		// page: enqueue
		err := pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
			if _, err := tx.ExecContext(ctx, "INSERT INTO jobs (id, due) VALUES ($1, now())", id); err != nil {
				return err
			}
			_, err := tx.ExecContext(ctx, "SELECT pg_notify('jobs', '')") // is sent if the transaction commits
			return err
		})
		// end
		require.NoError(t, err)
		require.Equal(t, id, <-ran)
		for _, h := range connector.Holders() {
			if h.Pin == pooldriver.PinListen {
				mustExec(t, account.Witness(t), "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1 AND pid = $2", account.User, int64(h.ProcessID))
			}
		}
	}
	stop()
	for range 2 {
		if err := <-done; err != nil { // it was looking at the table
			require.ErrorIs(t, err, context.Canceled)
		}
	}
	require.Empty(t, ran)
}

// prices is a cache that the database tells what has changed.
type prices struct {
	db *sql.DB

	mu      sync.Mutex // protects following fields
	known   map[string]int
	changes int // how often something was forgotten
}

// follow forgets what changes, until ctx ends.
func (p *prices) follow(ctx context.Context, connector *pooldriver.Connector) error {
	return connector.Listen(ctx, "prices", func(_ context.Context, n pooldriver.Notification) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.changes++
		if n.Gap {
			p.known = map[string]int{} // nobody knows what has changed
			return
		}
		delete(p.known, n.Payload)
	})
}

// get returns a price. It keeps what it reads only if nothing has changed meanwhile, and if follow has begun. What it keeps is of the
// primary: a replica may not have what has changed.
func (p *prices) get(ctx context.Context, name string) (price int, err error) {
	p.mu.Lock()
	price, ok := p.known[name]
	before := p.changes
	p.mu.Unlock()
	if ok {
		return price, nil
	}
	if err := p.db.QueryRowContext(pooldriver.Primary(ctx), "SELECT price FROM prices WHERE name = $1", name).Scan(&price); err != nil {
		return 0, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.changes == before && p.known != nil {
		p.known[name] = price
	}
	return price, nil
}

func TestACacheFollowsTheDatabase(t *testing.T) {
	t.Parallel()
	t.Run("alone", func(t *testing.T) {
		followPrices(t, testbed.Shared(t, testbed.Postgres).NewAccount(t), func() {})
	})
	t.Run("replicas that are behind", func(t *testing.T) {
		servers := testbed.StartReplicaSet(t, testbed.Postgres)
		followPrices(t, servers.NewAccount(t), func() {
			servers.CatchUp(t)
			require.NoError(t, servers.Replicas[0].Hold(t.Context()))
		}, "pool_replicas="+servers.Replicas[0].Addr, "pool_replica_reads=auto")
	})
}

// followPrices changes a price, and finds the change in the cache. begun is called when the first price is there.
func followPrices(t *testing.T, account testbed.Account, begun func(), parameters ...string) {
	connector := pooldriver.New(account.URL(parameters...), quiet)
	db := sql.OpenDB(connector)
	defer db.Close()
	mustExec(t, db, "CREATE TABLE prices (name TEXT PRIMARY KEY, price INT NOT NULL)")
	mustExec(t, db, "INSERT INTO prices VALUES ('tea', 3)")
	mustExec(t, db, `CREATE FUNCTION tell() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_notify('prices', NEW.name);
	RETURN NULL;
END $$`)
	mustExec(t, db, "CREATE TRIGGER tell AFTER INSERT OR UPDATE ON prices FOR EACH ROW EXECUTE FUNCTION tell()")
	begun()
	p := &prices{db: db}
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { done <- p.follow(ctx, connector) }()
	cached := func(want int) func() bool {
		return func() bool {
			got, err := p.get(t.Context(), "tea")
			require.NoError(t, err)
			p.mu.Lock()
			defer p.mu.Unlock()
			kept, ok := p.known["tea"]
			return got == want && ok && kept == want
		}
	}
	require.Eventually(t, cached(3), 10*time.Second, time.Millisecond)
	mustExec(t, db, "UPDATE prices SET price = 4")
	require.Eventually(t, cached(4), 10*time.Second, time.Millisecond)
	listener := connector.Holders()[0].ProcessID
	mustExec(t, account.Witness(t), "SELECT pg_terminate_backend($1)", int64(listener))
	mustExec(t, db, "UPDATE prices SET price = 5")
	require.Eventually(t, cached(5), 10*time.Second, time.Millisecond)
	stop()
	require.NoError(t, <-done)
}

// events is a handler that passes notifications on to browsers (EventSource).
func events(connector *pooldriver.Connector) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		out := http.NewResponseController(w)
		ctx, stop := context.WithCancel(r.Context())
		defer stop()
		err := connector.Listen(ctx, "orders", func(_ context.Context, n pooldriver.Notification) {
			event := "order"
			if n.Gap {
				event = "reload" // the browser asks for everything
			}
			data, err := json.Marshal(n.Payload)
			if err == nil {
				_, err = fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, data)
			}
			if err == nil {
				err = out.Flush()
			}
			if err != nil {
				stop() // the browser has gone
			}
		})
		if err != nil {
			fmt.Fprint(w, "event: end\ndata:\n\n")
		}
	}
}

func TestBrowsersGetNotifications(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	connector := pooldriver.New(account.URL(), quiet)
	db := sql.OpenDB(connector)
	defer db.Close()
	server := httptest.NewServer(events(connector))
	defer server.Close()
	ctx, stop := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, server.URL, nil)
	require.NoError(t, err)
	response, err := server.Client().Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	event := func() string {
		var all []string
		for lines.Scan() && lines.Text() != "" {
			all = append(all, lines.Text())
		}
		return strings.Join(all, " ")
	}
	require.Equal(t, `event: reload data: ""`, event())
	mustExec(t, db, "SELECT pg_notify('orders', $1)", "two\nlines")
	require.Equal(t, `event: order data: "two\nlines"`, event())
	stop()
	require.Eventually(t, func() bool { return connector.Stats().Listen.Listeners == 0 }, 10*time.Second, time.Millisecond)
}
