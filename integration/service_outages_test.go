package integration

import (
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// What happens to a server in one round of TestAServiceThroughOutages, in parts of the round.
const (
	outageBegins, outageEnds = 0.33, 0.5  // the server accepts no login
	blipAt                   = 0.66       // all connections are cut
	fullBegins, fullEnds     = 0.75, 0.95 // all are cut, and two are let in
	letIn                    = 2
	// shopAfter is how long after an outage, or a cut, an error may still come of it: a pause of
	// the dials (0.3 s), a dial, and the slowness of a machine.
	shopAfter = 600 * time.Millisecond
	shopConns = 4
	// shopCrowd requests come at each pace.
	shopPace  = 100 * time.Millisecond
	shopCrowd = 6
)

// shopReport is what a service has seen.
type shopReport struct {
	Requests   int
	Outage     int           // errors of requests that met an outage
	Cut        int           // errors of those that met a cut
	Full       int           // errors while the server was full
	Unexcused  int           // errors while all was well
	First      string        // of Full or Unexcused
	Back       time.Duration // from the end of an outage to the first that was served, at most
	Slowest    time.Duration // of those that were served
	Goroutines int
	Lines      int // of the log

	back map[time.Duration]time.Duration // of each round
}

// TestAServiceThroughOutages has a small service, in a process of its own, through outages, cuts and
// a server that is full. Over pooldriver errors come only while nothing can be served. The long form
// has the same service over plain database/sql and pgxpool, too. POOLDRIVER_OUTAGES is how long it
// takes.
func TestAServiceThroughOutages(t *testing.T) {
	t.Parallel()
	round, lasts := 12*time.Second, 12*time.Second
	if randomtest.Long() {
		round, lasts = time.Minute, 5*time.Minute
	}
	if text := os.Getenv("POOLDRIVER_OUTAGES"); text != "" {
		var err error
		lasts, err = time.ParseDuration(text)
		require.NoError(t, err)
	}
	for _, engine := range testbed.Engines() {
		kinds := []string{"pooldriver"}
		if lasts > round || randomtest.Long() { // the others are there to be compared with
			kinds = append(kinds, "plain")
			if engine == testbed.Postgres {
				kinds = append(kinds, "pgxpool")
			}
		}
		for _, kind := range kinds {
			t.Run(engine.String()+"/"+kind, func(t *testing.T) {
				t.Parallel()
				report := runShop(t, kind, testbed.Shared(t, engine).NewAccount(t), round, lasts)
				t.Logf("%+v", report)
				require.Greater(t, report.Requests, shopCrowd*int(lasts/shopPace)/2)
				if kind == "pooldriver" {
					require.Zero(t, report.Unexcused, report.First)
					require.Zero(t, report.Full, report.First)
					require.Positive(t, report.Outage)
					require.Less(t, report.Goroutines, 600)
					// A line when an outage begins and when it ends, at most one in ten seconds for
					// what repeats itself.
					require.Less(t, report.Lines, 10+int(lasts/time.Second))
				}
			})
		}
	}
}

// runShop runs one service, and does to its server what a round has.
func runShop(t *testing.T, kind string, account testbed.Account, round, lasts time.Duration) (r shopReport) {
	t.Helper()
	d := newDoor(t, account.Addr)
	account.LimitConnections(t, 2*shopConns)
	begin := time.Now().Add(2 * time.Second)
	file := filepath.Join(t.TempDir(), "report.json")
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestShopOfAnotherProcess$")
	child.Env = append(os.Environ(), "POOLDRIVER_SHOP="+strings.Join([]string{kind, account.Via(d.addr()).URL(), file, begin.Format(time.RFC3339Nano), round.String(), lasts.String()}, "\n"))
	out := &strings.Builder{}
	child.Stdout, child.Stderr = out, out
	require.NoError(t, child.Start())
	for at := begin; at.Before(begin.Add(lasts)); at = at.Add(round) {
		step := func(part float64, do func()) {
			time.Sleep(time.Until(at.Add(time.Duration(part * float64(round)))))
			do()
		}
		step(outageBegins, func() { d.close(true) })
		step(outageEnds, func() { d.close(false) })
		step(blipAt, func() { d.close(true); d.close(false) })
		step(fullBegins, func() { account.LimitConnections(t, letIn); d.close(true); d.close(false) })
		step(fullEnds, func() { account.LimitConnections(t, 2*shopConns) })
	}
	require.NoError(t, child.Wait(), out.String())
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &r))
	return r
}

// TestShopOfAnotherProcess is the service of a child of TestAServiceThroughOutages.
func TestShopOfAnotherProcess(t *testing.T) {
	order := strings.Split(os.Getenv("POOLDRIVER_SHOP"), "\n")
	if len(order) != 6 {
		return // this is no child process
	}
	begin, err := time.Parse(time.RFC3339Nano, order[3])
	require.NoError(t, err)
	round, err := time.ParseDuration(order[4])
	require.NoError(t, err)
	lasts, err := time.ParseDuration(order[5])
	require.NoError(t, err)
	var lines lineCounter
	take, count, end := openShop(t, order[0], order[1], &lines)
	time.Sleep(time.Until(begin))
	report := serveShop(take, count, begin, round, lasts)
	end()
	report.Lines = int(lines.Load())
	text, err := json.Marshal(report)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(order[2], text, 0o600))
}

// lineCounter is a log that counts its lines.
type lineCounter struct{ atomic.Int64 }

func (c *lineCounter) Write(p []byte) (int, error) {
	c.Add(1)
	return len(p), nil
}

// shopRequest serves one request.
type shopRequest func(context.Context) error

const (
	createOrders = "CREATE TABLE shop_orders (id BIGINT)"
	insertOrder  = "INSERT INTO shop_orders VALUES (1)"
	someOrders   = "SELECT count(*) FROM (SELECT id FROM shop_orders LIMIT 10) AS t"
)

// openShop is as examples/service: an order is a transaction with other work in it.
func openShop(t *testing.T, kind, dsn string, log io.Writer) (take, count shopRequest, end func()) {
	t.Helper()
	if kind == "pgxpool" {
		return openPgxShop(t, dsn)
	}
	var db *sql.DB
	switch at, err := url.Parse(dsn); {
	case kind == "pooldriver":
		db = sql.OpenDB(pooldriver.New(dsn, func(c *pooldriver.Config) {
			c.MaxConns, c.Logger = shopConns, slog.New(slog.NewTextHandler(log, nil))
		}))
	case at.Scheme == "postgres":
		config, err := pgxpool.ParseConfig(dsn)
		require.NoError(t, err)
		db = stdlib.OpenDB(*config.ConnConfig)
	default:
		require.NoError(t, err)
		config := mysql.NewConfig()
		config.Net, config.Addr, config.DBName, config.User = "tcp", at.Host, strings.TrimPrefix(at.Path, "/"), at.User.Username()
		config.Passwd, _ = at.User.Password()
		connector, err := mysql.NewConnector(config)
		require.NoError(t, err)
		db = sql.OpenDB(connector)
	}
	if kind == "plain" {
		db.SetMaxOpenConns(shopConns)
		db.SetMaxIdleConns(shopConns)
	}
	_, err := db.ExecContext(t.Context(), createOrders)
	require.NoError(t, err)
	work := func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, insertOrder)
		time.Sleep(5 * time.Millisecond)
		return err
	}
	take = func(ctx context.Context) error { return pooldriver.InTx(ctx, db, nil, work, pooldriver.Retry{}) }
	if kind == "plain" {
		take = func(ctx context.Context) error {
			return begun(ctx, db, func(tx *sql.Tx) error { return work(ctx, tx) })
		}
	}
	count = func(ctx context.Context) error {
		var n int
		return db.QueryRowContext(ctx, someOrders).Scan(&n)
	}
	return take, count, func() { _ = db.Close() }
}

func openPgxShop(t *testing.T, dsn string) (take, count shopRequest, end func()) {
	t.Helper()
	config, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	config.MaxConns = shopConns
	p, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	_, err = p.Exec(t.Context(), createOrders)
	require.NoError(t, err)
	take = func(ctx context.Context) error {
		tx, err := p.Begin(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback(ctx) }()
		if _, err := tx.Exec(ctx, insertOrder); err != nil {
			return err
		}
		time.Sleep(5 * time.Millisecond)
		return tx.Commit(ctx)
	}
	count = func(ctx context.Context) error {
		var n int
		return p.QueryRow(ctx, someOrders).Scan(&n)
	}
	return take, count, p.Close
}

// serveShop has a request come at each pace, and judges each by when it was under way.
func serveShop(take, count shopRequest, begin time.Time, round, lasts time.Duration) (r shopReport) {
	var mu sync.Mutex
	var all sync.WaitGroup
	r.back = map[time.Duration]time.Duration{}
	pace := time.NewTicker(shopPace)
	defer pace.Stop()
	for i := 0; time.Since(begin) < lasts; i++ {
		if i%shopCrowd == 0 {
			<-pace.C
		}
		request := take
		if i%2 == 0 {
			request = count
		}
		all.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			from := time.Now()
			err := request(ctx)
			to := time.Now()
			mu.Lock()
			defer mu.Unlock()
			r.judge(from.Sub(begin), to.Sub(begin), round, err)
			r.Goroutines = max(r.Goroutines, runtime.NumGoroutine())
		})
	}
	all.Wait()
	for _, first := range r.back {
		r.Back = max(r.Back, first)
	}
	return r
}

// judge counts a request that was under way from one time to another.
func (r *shopReport) judge(from, to, round time.Duration, err error) {
	at := func(part float64) time.Duration { return from/round*round + time.Duration(part*float64(round)) }
	met := func(begins, ends time.Duration) bool { return from < ends+shopAfter && to > begins }
	r.Requests++
	switch {
	case err == nil:
		r.Slowest = max(r.Slowest, to-from)
		ends := at(outageEnds)
		if first, seen := r.back[ends]; to > ends && (!seen || to-ends < first) {
			r.back[ends] = to - ends
		}
	case met(at(outageBegins), at(outageEnds)):
		r.Outage++
	case met(at(blipAt), at(blipAt)), met(at(fullBegins), at(fullBegins)):
		r.Cut++
	case met(at(fullBegins), at(fullEnds)):
		r.Full++
		r.First = fmt.Sprint(to, ": ", err)
	default:
		r.Unexcused++
		r.First = fmt.Sprint(to, ": ", err)
	}
}
