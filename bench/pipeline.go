package main

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// The contests of pipelines: PostgreSQL, one client with pool_pipeline and one without,
// beside plain database/sql and pgxpool.

const (
	pipeline = "pool_pipeline=16"
	// pipelineRounds are enough for large differences; those where nothing is to change
	// take closeRounds times as many.
	pipelineRounds = 10
	closeRounds    = 3
	// eachStatements is how many statements a goroutine has in a turn, at least.
	eachStatements = 12
	slowFor        = 200 * time.Millisecond
	// heroChart is the chart of the README.
	heroChart = "Queries per second, PostgreSQL"
	heroUnit  = "lookups by key, median (longer is better); thin line: quartiles"
	// slowAt is which statement of its goroutine the slow one is: when all are under way.
	slowAt = 25
)

var (
	reads      = metric{unit: throughput.unit, title: "reads", spread: true, format: perSecond, compare: more}
	updatesP99 = metric{unit: asideP99.unit, title: "updates' p99", spread: true, format: nanos, compare: less}
	slowest    = metric{unit: longest.unit, title: "slowest lookup", spread: true, format: nanos, compare: less}
	slowOne    = metric{unit: asideP99.unit, title: "the slow one", format: nanos}
)

// pipelineTexts are those of this section. balance takes long; query does where its
// argument is negative, in the texts that mayBeSlow.
var (
	pipelineTexts = texts{
		query:   "select balance from accounts where id = $1",
		exec:    "update accounts set balance = balance + 1 where id = $1",
		list:    listText,
		balance: fmt.Sprintf("select balance from accounts, pg_sleep(%v) where id = $1", slowFor.Seconds()),
	}
	mayBeSlow = texts{
		query: fmt.Sprintf("select balance from accounts, pg_sleep(case when $1::bigint < 0 then %v else 0 end) where id = abs($1)", slowFor.Seconds()),
	}
)

func pipelineContests(s *server, turn time.Duration) []contest {
	near := pipelineVenue(s, nil, pipelineTexts)
	far := pipelineVenue(s, &distance{back: 1}, pipelineTexts)
	var all []contest
	for _, c := range []struct {
		venue             venue
		where             string
		goroutines, conns int
		least             float64 // throughput to plain's; 0: nothing is promised
	}{
		{near, "", 64, 4, 1.8}, {near, "", 64, 10, 1.35}, {near, "", 512, 4, 0}, {near, "", 512, 10, 1.5},
		{far, ", proxy + 1 ms", 64, 4, 8}, {far, ", proxy + 1 ms", 64, 10, 2.5}, {far, ", proxy + 1 ms", 512, 10, 3.5},
	} {
		// Those of a turn have to be many times as many as one goroutine waits for.
		contest := c.venue.crowd(rushName(c.goroutines, c.conns)+c.where,
			load{c.goroutines, c.conns, c.goroutines * eachStatements, turn, lookups}, query)
		group := rushName(c.goroutines, c.conns)
		if c.venue.far {
			group += ", 1 ms away"
		}
		contest.on = []place{
			{chart: "Pipelines, throughput", group: group, metric: throughput, relative: true, unit: "queries per second, by those of database/sql (longer is better)"},
			{chart: "Pipelines, p99", group: group, metric: p99, relative: true, unit: "99th percentile of the wait: how many times shorter than that of database/sql (longer is better)"},
		}
		if c.goroutines == 64 && c.conns == 4 {
			contest.on = append(contest.on, place{chart: heroChart, group: group, metric: throughput, unit: heroUnit})
		}
		if c.least > 0 {
			contest.promises = []promise{better(throughput, c.least).by(pipelinedName), better(p99, 0.6).by(pipelinedName)}
		}
		all = append(all, contest)
	}
	all = append(all, near.mixes(turn)...)
	all = append(all, near.undisturbed(turn)...)
	all = append(all, near.arrivals(turn)...)
	all = append(all, near.slowOnes(pipelineVenue(s, nil, mayBeSlow), turn)...)
	for i := range all {
		all[i].most = pipelineRounds
	}
	return all
}

// pipelineVenue is the server at a distance; nil is without a proxy.
func pipelineVenue(s *server, d *distance, t texts) venue {
	account := s.reach(d)
	return venue{name: sectionPipelines, far: d != nil, server: s, entrants: []entrant{
		{plainName, everywhere, openPlain(s, account, t)},
		{pgxpoolName, everywhere, openPgxpool(account, t)},
		{ours, everywhere, openPooled(account, t)},
		{pipelinedName, everywhere, openPooled(account, t, pipeline)},
	}}
}

// accountOf spreads the statements of all goroutines over the accounts.
func accountOf(g, n int) int64 { return int64(g+n*rushGoroutines) % accounts }

func lookups(ctx context.Context, c client, g, n int) (aside bool, err error) {
	return false, c.query(ctx, accountOf(g, n))
}

// mixes are the contests of updates among lookups: one statement of so many.
func (v venue) mixes(turn time.Duration) []contest {
	mix := func(conns, every int, promises ...promise) contest {
		run := func(ctx context.Context, c client, g, n int) (aside bool, err error) {
			if (g+n)%every != 0 {
				return lookups(ctx, c, g, n)
			}
			return true, c.exec(ctx, accountOf(g, n))
		}
		c := v.crowd(fmt.Sprintf("%s, %d %% updates", rushName(rushGoroutines, conns), 100/every),
			load{rushGoroutines, conns, rushStatements, turn, run}, readAndUpdate)
		c.own, c.promises = []metric{reads, p99, updatesP99}, promises
		return c
	}
	return []contest{
		mix(10, 5, better(reads, 1.1).to(ours).by(pipelinedName), better(updatesP99, 1.2).to(ours).by(pipelinedName)),
		mix(4, 10, better(updatesP99, 1.1).to(ours).by(pipelinedName)),
	}
}

func readAndUpdate(ctx context.Context, c client, n int64) error {
	return errors.Join(c.query(ctx, n), c.exec(ctx, n))
}

// undisturbed are the contests where nobody waits, so that nothing is to change.
func (v venue) undisturbed(turn time.Duration) []contest {
	one := v.contest("one goroutine", everywhere, caseConns, warm(query), repeat(query))
	one.fresh, one.apart, one.more = true, v.server, closeRounds
	one.promises = []promise{faster(ours, 0.98).by(pipelinedName)}
	one.on = []place{{chart: heroChart, group: "1 goroutine, connections free", metric: timing[0], rate: true, unit: heroUnit}}
	few := v.crowd(rushName(4, 10), load{4, 10, 4 * eachStatements, turn, lookups}, query)
	few.own, few.more = []metric{throughput, p99}, closeRounds
	few.promises = []promise{better(throughput, 0.98).to(ours).by(pipelinedName)}
	return []contest{one, few}
}

// slowOnes are the contests of slow statements among lookups. varying is the same venue
// with a text that is slow once in a turn.
func (v venue) slowOnes(varying venue, turn time.Duration) []contest {
	crowd := func(v venue, name string, run func(context.Context, client, int, int) (bool, error), promises ...promise) contest {
		l := load{rushGoroutines, 4, rushGoroutines * 2 * slowAt, max(turn, 2*slowFor), run}
		c := v.crowd(rushName(rushGoroutines, l.conns)+", "+name, l, query)
		c.own = []metric{p99, p999, slowest, slowOne}
		c.promises = promises
		return c
	}
	return []contest{
		crowd(v, fmt.Sprintf("one of them runs a text that takes %v", slowFor), func(ctx context.Context, c client, g, n int) (aside bool, err error) {
			if g == 0 {
				return true, c.balance(ctx, 1)
			}
			return lookups(ctx, c, g, n)
		}, better(slowest, 1).by(pipelinedName)),
		crowd(varying, fmt.Sprintf("one lookup takes %v", slowFor), func(ctx context.Context, c client, g, n int) (aside bool, err error) {
			if g == 0 && n == slowAt {
				return true, c.query(ctx, -1)
			}
			return lookups(ctx, c, g, n)
		}, within(slowest, float64(110*time.Millisecond)).by(pipelinedName), better(p999, 1).by(pipelinedName)),
	}
}
