// Command bench measures pooldriver against its peers, side by side in one
// process, in alternating rounds, and writes what it saw as Markdown, with charts.
// A contest that was lost stays in, and so does a contender that failed.
//
//	go -C bench run . -results results    # what "make bench" does
//	go -C bench run . -quick -only SQLite # a look at one database
//	go -C bench run . -overload 60s       # more statements than the database serves, 21 minutes
//	go -C bench run . -redraw -results results # the charts of the tables there, without measuring
//	go -C bench run . -change -base HEAD~ # what "make bench-quick BASE=HEAD~" does
//
// PostgreSQL and MariaDB run in containers, from the images that "make images"
// provides, and end with the program.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func main() {
	if processor := os.Getenv(sitter); processor != "" {
		fatal(sit(processor))
	}
	if file := os.Getenv(echoer); file != "" {
		fatal(answer(file))
		return
	}
	testing.Init()
	rounds := flag.Int("rounds", 20, "rounds per contest")
	round := flag.Duration("round", 200*time.Millisecond, "length of each contender's turn in a round")
	quick := flag.Bool("quick", false, "3 rounds of 20ms: shows that it works, and measures nothing")
	only := flag.String("only", "", "run the contests whose section and name contain this")
	results := flag.String("results", "", "write tables.md and charts/*.svg into this directory, instead of tables to the standard output")
	redraw := flag.Bool("redraw", false, "measure nothing, and draw the charts of -results again, from its tables")
	list := flag.Bool("list", false, "list the contests")
	heap := flag.Int("heap", 64, "MB of memory that the process keeps, as a service would")
	change := flag.Bool("change", false, "measure what this tree costs, in three minutes, and write the table of a pull request")
	base := flag.String("base", "", "with -change: a commit that is measured beside it")
	overload := flag.Duration("overload", 0, "send more statements than PostgreSQL serves, for so long in each of 20 measurements: of each of -loads, each contender whose name contains -only")
	loads := flag.String("loads", defaultLoads, "with -overload: what comes, in parts of what PostgreSQL serves; at 1.6 half of it has a low priority")
	awake := flag.Bool("awake", true, "keep the processors from being halted between a query and its answer, where one goroutine is at work")
	flag.Parse()
	if *quick {
		*rounds, *round = 3, 20*time.Millisecond
	}
	kept := make([]byte, *heap<<20) // untouched, so it costs the collector nothing but its pace
	var err error
	switch r := (report{rounds: *rounds, turn: *round, heap: *heap, awake: *awake}); {
	case os.Getenv(workerJob) != "":
		err = work(context.Background(), os.Getenv(workerJob), os.Stdin, os.Stdout)
	case *redraw:
		err = redrawCharts(*results, *round)
	case *overload > 0:
		err = runOverload(*overload, *loads, *only, *results, r.awake)
	case *change:
		err = runChange(r, *base, *only)
	default:
		err = run(r, *only, *results, *list)
	}
	runtime.KeepAlive(kept)
	fatal(err)
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func runOverload(lasts time.Duration, loads, only, results string, awake bool) (err error) {
	parts, err := loadsOf(loads)
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	postgres := postgresServer(awake)
	defer func() { err = errors.Join(err, stopAll(postgres)) }()
	return measureOverload(ctx, os.Stdout, results, lasts, parts, only, postgres)
}

func runChange(r report, base, only string) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	postgres, maria := postgresServer(r.awake), mariaServer(r.awake)
	defer func() { err = errors.Join(err, stopAll(postgres, maria)) }()
	return measureChange(ctx, os.Stdout, base, only, r.rounds, postgres, maria)
}

// redrawCharts draws what the tables in a directory say. It starts no server.
func redrawCharts(dir string, turn time.Duration) error {
	all := contests("", turn, postgresServer(false), mariaServer(false), mysqlServer(false))
	if err := drawCharts(dir, all); err != nil {
		return err
	}
	return drawOverload(dir)
}

func run(r report, only, results string, list bool) (err error) {
	// An interrupted run still ends its servers.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	dir, err := os.MkdirTemp("", "pooldriver-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	postgres, maria, mysql := postgresServer(r.awake), mariaServer(r.awake), mysqlServer(r.awake)
	servers := slices.DeleteFunc([]*server{postgres, maria, mysql}, func(s *server) bool { return s == nil })
	defer func() {
		if stopped := stopAll(servers...); err == nil {
			err = stopped
		}
	}()
	for _, c := range contests(dir, r.turn, postgres, maria, mysql) {
		if !strings.Contains(c.title(), only) {
			continue
		}
		if list {
			fmt.Println(c.title())
			continue
		}
		from := time.Now()
		o := c.hold(ctx, r.rounds, r.turn)
		r.outcomes = append(r.outcomes, o)
		fmt.Fprintf(os.Stderr, "%s: %v%s\n", c.title(), time.Since(from).Round(10*time.Millisecond), o.complaint())
	}
	for _, s := range servers {
		if version := s.describe(); version != "" {
			r.servers = append(r.servers, version)
		}
	}
	if slices.ContainsFunc(r.outcomes, func(o outcome) bool { return o.far }) {
		r.proxies = describeProxies()
	}
	switch {
	case list:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("interrupted, nothing was written: %w", ctx.Err())
	case results == "":
		r.write(os.Stdout)
		return nil
	}
	return r.save(results)
}

// contests are all, in the order of the report. mysql may be nil.
func contests(dir string, turn time.Duration, postgres, maria, mysql *server) []contest {
	all := slices.Concat(poolContests(), nullContests())
	for _, v := range slices.Concat([]venue{nullVenue(), sqliteVenue(dir)}, postgresVenues(postgres), mariaVenues(maria), mysqlVenues(mysql)) {
		all = append(all, caseContests(v)...)
		all = append(all, rushContests(v, turn)...)
		if !v.far {
			all = append(all, burstContests(v)...)
			all = append(all, waitingContests(v)...)
		}
	}
	return slices.Concat(all, pipelineContests(postgres, turn), gormContests(postgres), pgxContests(postgres), boundContests(), taskContests(), queueContests(), readContests(dir, postgres, maria))
}
