// Command bouncerclient is one of several programs that share a PgBouncer. It
// works on a ledger by pooldriver, and tells by JSON on its standard output what
// it has committed, which errors it got, and what it saw that was not its own.
//
// The DSN comes from the environment, where no list of processes shows it.
package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/integration/failover/bouncerclient/report"
)

func main() {
	c := client{}
	flag.StringVar(&c.name, "name", "", "what no other client is called")
	flag.StringVar(&c.zone, "zone", "", "the time zone that the DSN sets")
	flag.IntVar(&c.transactions, "transactions", 100, "how many to commit")
	flag.IntVar(&c.tasks, "tasks", 25, "how many to run at a time")
	flag.BoolVar(&c.prepares, "prepares", false, "use prepared statements of database/sql")
	flag.Uint64Var(&c.seed, "seed", 1, "of everything random")
	flag.Parse()

	connector := pooldriver.New(os.Getenv("POOLDRIVER_DSN"))
	c.db = sql.OpenDB(connector)
	told := c.run(context.Background())
	told.Opened = connector.Stats().Pool.Creates
	if err := c.db.Close(); err != nil {
		told.Errors.Append("close: " + err.Error())
	}
	if err := json.NewEncoder(os.Stdout).Encode(told); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type client struct {
	name, zone          string
	transactions, tasks int
	prepares            bool
	seed                uint64

	db  *sql.DB
	own *sql.Stmt // SELECT own name, if it prepares
}

func (c *client) run(ctx context.Context) report.Report {
	var told report.Report
	if c.prepares {
		// A statement of its own, beside those whose texts, and so names, all share.
		var err error
		if c.own, err = c.db.PrepareContext(ctx, "SELECT '"+c.name+"' || $1::text"); err != nil {
			told.Errors.Append("prepare: " + err.Error())
			return told
		}
		defer c.own.Close()
	}
	numbers := make(chan int)
	go func() {
		defer close(numbers)
		for i := range c.transactions {
			numbers <- i
		}
	}()
	var mu sync.Mutex
	var all sync.WaitGroup
	for range c.tasks {
		all.Go(func() {
			for i := range numbers {
				w := work{client: c, random: rand.New(rand.NewPCG(c.seed, uint64(i))), id: fmt.Sprintf("%s/%d", c.name, i)}
				w.run(ctx)
				mu.Lock()
				told.Add(w.report)
				mu.Unlock()
			}
		})
	}
	all.Wait()
	return told
}
