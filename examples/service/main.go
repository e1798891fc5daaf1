// Command service is an HTTP service that ends without one failed request: on SIGTERM it
// finishes what has begun, and leaves no connection on the database server.
//
//	go run ./examples/service                              embedded SQLite, no set-up
//	go run ./examples/service 'postgres://app:pw@host/db'  the same on PostgreSQL, or mysql://…
//
//	curl -X POST localhost:8080/orders?payment=1s   takes an order, which takes a second
//	curl localhost:8080/orders                      counts them
//	curl localhost:8080/readyz                      200 if requests may be sent here, else 503
//
// In the database it makes a table service_orders, and leaves it there.
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
	"syscall"
	"time"

	_ "github.com/pooldriver/pooldriver/dialects/mysql"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
)

// settings are those of the command line.
type settings struct {
	dsn    string
	listen string
	notice time.Duration
	grace  time.Duration
}

func main() {
	var s settings
	flag.StringVar(&s.listen, "listen", "localhost:8080", "address of the service")
	flag.DurationVar(&s.notice, "notice", 5*time.Second, "how long load balancers may take to see that /readyz says 503")
	flag.DurationVar(&s.grace, "grace", 20*time.Second, "how long requests and transactions that have begun may take after that")
	flag.Parse()
	s.dsn = flag.Arg(0)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	defer stop()
	if err := run(ctx, os.Stdout, s); err != nil {
		fmt.Fprintln(os.Stderr, "service:", err)
		os.Exit(1)
	}
}

// run serves until ctx ends, and then until everything that has begun is over.
func run(ctx context.Context, out io.Writer, s settings) error {
	if s.dsn == "" {
		dir, err := os.MkdirTemp("", "service")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		s.dsn = "sqlite:" + filepath.Join(dir, "orders.db") + "?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_txlock=immediate"
	}
	shop, err := openShop(ctx, s.dsn)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", s.listen)
	if err != nil {
		return errors.Join(err, shop.db.Close())
	}
	server := &http.Server{Handler: shop.handler(), ReadHeaderTimeout: 5 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	go shop.archive()
	go shop.listen()
	fmt.Fprintln(out, "listening on", listener.Addr())
	select {
	case err := <-served:
		return errors.Join(err, shop.db.Close())
	case <-ctx.Done():
	}
	return shutdown(shop, server, s)
}

// shutdown ends the service. The order matters: each step ends what could begin something in
// the next one.
func shutdown(shop *shop, server *http.Server, s settings) error {
	// 1. Load balancers stop sending requests here. Until they have seen it, requests are
	// served as always.
	shop.leaving.Store(true)
	time.Sleep(s.notice)
	ctx, cancel := context.WithTimeout(context.Background(), s.grace)
	defer cancel()
	// 2. No request is accepted any more. Those that have begun are finished.
	if err := server.Shutdown(ctx); err != nil {
		_ = server.Close()
		return errors.Join(fmt.Errorf("requests are still running: %w", err), shop.db.Close())
	}
	// 3. A leader, or a LISTEN by Raw, would let go of its connection here: Drain would wait for it. A listener of
	// Connector.Listen ends with Drain.
	// 4. No transaction begins any more. Those that have begun are finished: here those of
	// the archive, which no request waits for.
	if err := shop.connector.Drain(ctx); err != nil {
		return errors.Join(err, shop.db.Close())
	}
	// 5. Who works behind the requests is told so at the next attempt, and ends. After
	// step 6 it would get an error of database/sql that nothing tells from others.
	<-shop.archived
	<-shop.listened
	// 6. The *sql.DB is closed. Its connections are closed already.
	return shop.db.Close()
}
