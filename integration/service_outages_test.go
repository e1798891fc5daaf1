package integration

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
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
	// the dials (0.3 s), a dial, and the usual slowness of a machine.
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
	Lines      int           // of the log
	Late       time.Duration // the machine, at the most
	Calls      []shopCall    // all requests, to be judged by what has happened
}

// shopCall is a request.
type shopCall struct {
	From, To time.Time
	Err      string
}

// span is when something happened.
type span struct{ begins, ends time.Time }

// met reports whether a request may have been hurt.
func (s span) met(c shopCall, after time.Duration) bool {
	return c.From.Before(s.ends.Add(after)) && c.To.After(s.begins)
}

// troublesOfShop are what has happened to a server, when it did: on a busy machine that is later than planned.
type troublesOfShop struct{ outages, cuts, fulls []span }

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
				require.Greater(t, report.Requests, shopCrowd*int(lasts/shopPace)/10)
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
	pulse := feelPulse(t, account.Witness(t))
	file := filepath.Join(t.TempDir(), "report.json")
	child := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestShopOfAnotherProcess$")
	child.Env = append(os.Environ(), "POOLDRIVER_SHOP="+strings.Join([]string{kind, account.Via(d.addr()).URL(), file, lasts.String()}, "\n"))
	out := &strings.Builder{}
	child.Stderr = out
	lines, err := child.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, child.Start())
	begin := shopBegins(t, io.TeeReader(lines, out))
	var happened troublesOfShop
	for at := begin; at.Before(begin.Add(lasts)); at = at.Add(round) {
		step := func(part float64, do func()) (s span) {
			time.Sleep(time.Until(at.Add(time.Duration(part * float64(round)))))
			s.begins = time.Now()
			do()
			s.ends = time.Now()
			return s
		}
		closed := step(outageBegins, func() { d.close(true) })
		opened := step(outageEnds, func() { d.close(false) })
		blip := step(blipAt, func() { d.close(true); d.close(false) })
		filled := step(fullBegins, func() { account.LimitConnections(t, letIn); d.close(true); d.close(false) })
		emptied := step(fullEnds, func() { account.LimitConnections(t, 2*shopConns) })
		happened.outages = append(happened.outages, span{closed.begins, opened.ends})
		happened.cuts = append(happened.cuts, blip, filled)
		happened.fulls = append(happened.fulls, span{filled.begins, emptied.ends})
	}
	rest, _ := io.ReadAll(lines)
	require.NoError(t, child.Wait(), "%s%s", out, rest)
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &r))
	r.Late = max(r.Late, pulse.late())
	r.judge(happened)
	return r
}

const shopBegin = "the shop opens at "

// shopBegins reads when the child begins.
func shopBegins(t *testing.T, out io.Reader) time.Time {
	t.Helper()
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if _, at, found := strings.Cut(lines.Text(), shopBegin); found {
			begin, err := time.Parse(time.RFC3339Nano, at)
			require.NoError(t, err)
			return begin
		}
	}
	require.FailNow(t, "the shop does not open")
	return time.Time{}
}

// TestShopOfAnotherProcess is the service of a child of TestAServiceThroughOutages.
func TestShopOfAnotherProcess(t *testing.T) {
	order := strings.Split(os.Getenv("POOLDRIVER_SHOP"), "\n")
	if len(order) != 4 {
		return // this is no child process
	}
	lasts, err := time.ParseDuration(order[3])
	require.NoError(t, err)
	var lines lineCounter
	take, count, end := openShop(t, order[0], order[1], &lines)
	begin := time.Now().Add(500 * time.Millisecond)
	_, _ = fmt.Fprintln(os.Stdout, shopBegin+begin.Format(time.RFC3339Nano))
	pulse := feelPulse(t, nil)
	time.Sleep(time.Until(begin))
	report := serveShop(take, count, begin, lasts)
	report.Late = pulse.late()
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

// serveShop has a request come at each pace, and notes when each was under way.
func serveShop(take, count shopRequest, begin time.Time, lasts time.Duration) (r shopReport) {
	var mu sync.Mutex
	var all sync.WaitGroup
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
			c := shopCall{From: time.Now()}
			if err := request(ctx); err != nil {
				c.Err = err.Error()
			}
			c.To = time.Now()
			mu.Lock()
			defer mu.Unlock()
			r.Calls = append(r.Calls, c)
			r.Goroutines = max(r.Goroutines, runtime.NumGoroutine())
		})
	}
	all.Wait()
	return r
}

// judge counts the requests, by what was happening while they were under way.
func (r *shopReport) judge(happened troublesOfShop) {
	after := shopAfter + 3*r.Late
	for _, c := range r.Calls {
		met := func(s span) bool { return s.met(c, after) }
		r.Requests++
		switch {
		case c.Err == "":
			r.Slowest = max(r.Slowest, c.To.Sub(c.From))
		case slices.ContainsFunc(happened.outages, met):
			r.Outage++
		case slices.ContainsFunc(happened.cuts, met):
			r.Cut++
		case slices.ContainsFunc(happened.fulls, met):
			r.Full++
			r.First = fmt.Sprint(c.To, ": ", c.Err)
		default:
			r.Unexcused++
			r.First = fmt.Sprint(c.To, ": ", c.Err)
		}
	}
	for _, outage := range happened.outages {
		first := time.Duration(math.MaxInt64)
		for _, c := range r.Calls {
			if c.Err == "" && c.To.After(outage.ends) {
				first = min(first, c.To.Sub(outage.ends))
			}
		}
		r.Back = max(r.Back, first)
	}
	r.Calls = nil
}
