// Command quickstart shows on any database what the pool does.
//
// First a small shop runs over a few real connections: many customers at once
// look at products, put orders in, and sometimes change their minds. At the end
// it is counted whether the stock adds up (shop.go). Then a single connection
// serves what needs several with plain database/sql: statements inside loops
// over open rows, a forgotten transaction, and one transaction across libraries
// that know nothing of each other (tasks.go, libraries.go).
//
//	go run ./examples/quickstart                                  embedded SQLite, no set-up
//	go run ./examples/quickstart 'postgres://app:pw@host/db'      the same on PostgreSQL
//	go run ./examples/quickstart 'mysql://app:pw@host/db'         the same on MySQL or MariaDB
//
// In the database it makes four tables, all called quickstart_…, and drops them
// again.
package main

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/mysql"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
)

func main() {
	customers := flag.Int("customers", 200, "customers at the same time")
	visits := flag.Int("visits", 5, "visits of each customer")
	connections := flag.Int("connections", 4, "real connections at most")
	flag.Parse()
	if err := run(os.Stdout, flag.Arg(0), *customers, *visits, *connections); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

func run(out io.Writer, dsn string, customers, visits, connections int) error {
	if dsn == "" {
		dir, err := os.MkdirTemp("", "quickstart")
		if err != nil {
			return err
		}
		defer os.RemoveAll(dir)
		dsn = "sqlite:" + filepath.Join(dir, "shop.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)&_txlock=immediate"
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	if err := busyShop(ctx, out, dsn, customers, visits, connections); err != nil {
		return err
	}
	return oneConnection(ctx, out, dsn)
}

func busyShop(ctx context.Context, out io.Writer, dsn string, customers, visits, connections int) error {
	// The one line that differs from plain database/sql.
	connector := pooldriver.New(dsn, func(c *pooldriver.Config) { c.MaxConns = connections })
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(customers) // virtual connections; they cost an object each
	defer db.Close()

	fmt.Fprintf(out, "A small shop: %d customers at the same time, %d real connections at most.\n", customers, connections)
	shop, err := openShop(ctx, db)
	if err != nil {
		return err
	}

	most := watch(ctx, connector)
	began := time.Now()
	if err := shop.visitors(ctx, customers, visits); err != nil {
		return err
	}
	took := time.Since(began)
	if err := shop.check(ctx); err != nil {
		return err
	}
	if err := shop.leftovers(ctx); err != nil {
		return err
	}
	if err := errors.Join(shop.insertOrder.Close(), dropTables(ctx, db)); err != nil {
		return err
	}
	if err := db.Close(); err != nil { // waits for what goes on behind the last borrower
		return err
	}

	s := connector.Stats()
	fmt.Fprintf(out, "\n%d customers, %d visits each, in %v\n", customers, visits, took.Round(time.Millisecond))
	fmt.Fprintf(out, "  orders placed        %d\n", shop.placed.Load())
	fmt.Fprintf(out, "  minds changed        %d (rolled back)\n", shop.cancelled.Load())
	fmt.Fprintf(out, "  found it sold out    %d\n", shop.soldOut.Load())
	fmt.Fprintf(out, "  stock and orders     add up\n")
	fmt.Fprintf(out, "\nThe pool\n")
	fmt.Fprintf(out, "  real connections     %d at most, %d opened in all\n", most(), s.Pool.Creates)
	fmt.Fprintf(out, "  connections lent     %d times, %d of them after waiting\n", s.Pool.Acquires, s.Pool.Waits)
	fmt.Fprintf(out, "  forgotten BEGINs     %d rolled back\n", s.Rollbacks)
	fmt.Fprintf(out, "  sessions cleaned     %d, replaced %d\n", s.Cleanings, s.Discards)
	fmt.Fprintf(out, "  statements prepared  %d, found ready %d times\n", s.StmtMisses, s.StmtHits)
	return nil
}

// watch samples how many real connections there are.
func watch(ctx context.Context, c *pooldriver.Connector) (most func() int) {
	ctx, cancel := context.WithCancel(ctx)
	var seen atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(time.Millisecond)
		defer tick.Stop()
		for {
			p := c.Stats().Pool
			seen.Store(max(seen.Load(), int64(p.Idle+p.Active)))
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() int {
		cancel()
		<-done
		return int(seen.Load())
	}
}

// visitors lets all customers in at once.
func (s *shop) visitors(ctx context.Context, customers, visits int) error {
	var wg sync.WaitGroup
	errs := make(chan error, customers)
	for customer := range customers {
		wg.Go(func() {
			for visit := range visits {
				err := s.visit(ctx, customer, visit)
				if err != nil && !errors.Is(err, errSoldOut) && !errors.Is(err, errChangedMind) {
					errs <- fmt.Errorf("customer %d: %w", customer, err)
					return
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	return <-errs
}
