// Command observed is a small service whose pool can be seen into, in every way that
// docs/observability.md describes:
//
//	go run .                                       embedded SQLite, no set-up
//	go run . 'postgres://app:pw@host/db'           PostgreSQL; or mysql://…
//
//	http://127.0.0.1:8080/                         the service: routes /stock, /order, /report
//	http://127.0.0.1:8080/metrics                  for Prometheus
//	http://127.0.0.1:8080/debug/pool               who holds the connections, since when, and why
//	http://127.0.0.1:8080/debug/pprof/             Go's profiles
//	http://127.0.0.1:8080/debug/pprof/pooldriver   time waited and held by call site, for go tool pprof
//
// With -traces FILE the traces of the statements are written there, one JSON a span; - is the
// standard output. With -load some customers use the service, and each second a line says how the
// pool is: the report holds its connection while it does something else, and is what the inspector
// shows first.
//
// In the database it makes a table, observed_stock, and drops it again.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	_ "github.com/pooldriver/pooldriver/dialects/mysql"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
	"github.com/pooldriver/pooldriver/inspect"
)

func main() {
	address := flag.String("listen", "127.0.0.1:8080", "address of the service")
	load := flag.Int("load", 0, "customers that use the service all the time")
	traces := flag.String("traces", "", "file for the traces; - is the standard output")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	spans, err := spansTo(*traces)
	if err == nil {
		err = run(ctx, spans, os.Stderr, flag.Arg(0), *address, *load)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "observed:", err)
		os.Exit(1)
	}
}

// spansTo is where traces go.
func spansTo(file string) (io.Writer, error) {
	switch file {
	case "":
		return io.Discard, nil
	case "-":
		return os.Stdout, nil
	}
	return os.Create(file)
}

// run serves until ctx ends. It writes traces to spans, and to log its addresses and how the pool
// is.
func run(ctx context.Context, spans, log io.Writer, dsn, address string, load int) error {
	if dsn == "" {
		dir, err := os.MkdirTemp("", "observed")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		dsn = "sqlite:" + filepath.Join(dir, "shop.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_txlock=immediate&pool_max_conns=4&pool_sample_stacks=1"
	}
	pool, err := open(dsn, spans)
	if err != nil {
		return err
	}
	defer func() { _ = pool.close() }()
	shop, err := newShop(ctx, pool.db)
	if err != nil {
		return err
	}
	defer shop.drop()

	listener, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	server := &http.Server{Handler: routes(shop, pool.connector), ReadHeaderTimeout: 5 * time.Second}
	base := "http://" + listener.Addr().String()
	fmt.Fprintf(log, "the service    %s/\nits pool       %[1]s/debug/pool\nits metrics    %[1]s/metrics\n", base)
	var customers sync.WaitGroup
	if load > 0 {
		customers.Go(func() { tell(ctx, log, inspect.Handler(pool.connector)) })
	}
	for range load {
		customers.Go(func() { visit(ctx, base) })
	}
	context.AfterFunc(ctx, func() {
		soon, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		_ = server.Shutdown(soon)
	})
	err = server.Serve(listener)
	customers.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// tell writes each second how the pool is.
func tell(ctx context.Context, log io.Writer, i *inspect.Inspector) {
	second := time.NewTicker(time.Second)
	defer second.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-second.C:
			v := i.Snapshot().Pools[0].Verdict
			fmt.Fprintf(log, "%-4s  %s\n", v.Level, v.Sentence)
		}
	}
}
