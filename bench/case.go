package main

import (
	"context"
	"fmt"
	"testing"
	"time"
)

// The cases that one goroutine runs, in all venues. Each client has had its first
// connection and has prepared what it prepares before it is measured.

const (
	queryName = "parameterised query"
	// As db.Query and db.QueryRow run it.
	endlessName = "parameterised query, its context without an end"
	execName    = "exec"
	loopName    = "N+1 loop: a list of 10 rows, then a query for each"
)

func transactionName(statements int) string {
	if statements == 1 {
		return "transaction of 1 statement"
	}
	return fmt.Sprintf("transaction of %d statements", statements)
}

var listText = fmt.Sprintf("select id from accounts where id < %d order by id", listed)

type operation func(ctx context.Context, c client, n int64) error

// turnLimit bounds a turn: a contender that hangs has failed.
const turnLimit = time.Minute

const (
	caseConns = 4
	warmUp    = 3 // times, so that what a cache admits at its second use is in
)

// caseContests are the contests of one goroutine in a venue.
func caseContests(v venue) []contest {
	var contests []contest
	for _, c := range []struct {
		name, short string
		part        part
		run         operation
	}{
		{queryName, "query with an argument", singly, query},
		{endlessName, "the same, with a context that never ends", singly, func(_ context.Context, c client, n int64) error { return query(context.Background(), c, n) }},
		{execName, "exec", singly, func(ctx context.Context, c client, n int64) error { return c.exec(ctx, n) }},
		{transactionName(1), "transaction of 1 statement", beginning, func(ctx context.Context, c client, n int64) error { return c.transaction(ctx, n, 1) }},
		{transactionName(5), "transaction of 5 statements", beginning, func(ctx context.Context, c client, n int64) error { return c.transaction(ctx, n, 5) }},
		{loopName, "list of 10 rows, then a query for each", singly, runLoop},
	} {
		if v.far && c.name == endlessName {
			continue // the difference is the processor's
		}
		contest := v.contest(c.name, c.part, caseConns, warm(c.run), repeat(c.run)).shown(place{
			chart: v.name + ", one goroutine", group: c.short, metric: timing[0], relative: true,
			unit: "how many times as fast as " + shownName(v.entrants[0].name) + " (longer is better)",
		})
		contest.fresh = !v.far // beside a millisecond of the network it does not matter
		contest.apart = v.server
		if !v.far && len(contest.promises) > 0 {
			contest.more = promisedRounds
		}
		contests = append(contests, contest)
	}
	return contests
}

func query(ctx context.Context, c client, n int64) error { return c.query(ctx, n) }

func runLoop(ctx context.Context, c client, _ int64) error {
	ids, err := c.list(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if err := c.balance(ctx, id); err != nil {
			return err
		}
	}
	if len(ids) != listed {
		return fmt.Errorf("%d rows in the list, wanted %d", len(ids), listed)
	}
	return nil
}

// warm runs an operation on the connection that will be measured.
func warm(run operation) func(context.Context, client) error {
	return func(ctx context.Context, c client) error {
		for range warmUp {
			if err := run(ctx, c, 0); err != nil {
				return err
			}
		}
		return nil
	}
}

func repeat(run operation) func(*testing.B, client) {
	return func(b *testing.B, c client) {
		ctx, cancel := turnContext()
		defer cancel()
		b.ReportAllocs()
		n := int64(0)
		for b.Loop() {
			n++
			if err := run(ctx, c, n%accounts); err != nil {
				fail(b, err)
			}
		}
	}
}

// turnContext can be cancelled, as requests' contexts can: with one that cannot,
// database/sql and some drivers have less to do.
func turnContext() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), turnLimit)
}

// contest is one over this venue's entrants that take part. Their clients are
// opened at their first turn, and closed after the contest or, where it is fresh,
// after each round.
func (v venue) contest(name string, in part, conns int, prepare func(context.Context, client) error, run func(*testing.B, client)) contest {
	opened := make(map[string]client)
	c := contest{
		section: v.name, name: name, far: v.far, most: v.rounds, promises: v.promises[name],
		prepare: func() (func(), error) {
			return func() {
				for _, c := range opened {
					c.close()
				}
				clear(opened)
			}, nil
		},
	}
	for _, e := range v.entrants {
		if e.part != everywhere && (in == everywhere || e.part == beginning && in != beginning) {
			continue
		}
		open := func() (client, error) {
			if client := opened[e.name]; client != nil {
				return client, nil
			}
			client, err := e.open(conns)
			if err != nil {
				return nil, err
			}
			opened[e.name] = client
			ctx, cancel := turnContext()
			defer cancel()
			return client, prepare(ctx, client)
		}
		c.contenders = append(c.contenders, contender{e.name, func(b *testing.B) {
			client, err := open()
			if err != nil {
				fail(b, err)
			}
			run(b, client)
		}})
	}
	return c
}

func (c contest) shown(on ...place) contest {
	c.on = on
	return c
}
