package pairs

import (
	"context"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// axis is a feature with its levels. The first level is the plain one, without the feature.
type axis struct {
	name   string
	levels []string
	shown  bool // a configuration's name has the plain level, too
	apply  func(s *setup, level string)
	// acted reports whether the feature has acted on an act, of which it gets the counts. Nil: the feature always acts.
	acted func(e evidence, level string) bool
}

// setup is what axes change before a run.
type setup struct {
	world      *world
	parameters []string
	options    []pooldriver.Option
	wrap       bool
	event      string
	tenants    bool
	// contexts change the context of each act. The function that they return ends it.
	contexts []func(ctx context.Context, x *acting) (context.Context, func())
}

func (s *setup) option(o pooldriver.Option) { s.options = append(s.options, o) }

func (s *setup) each(change func(ctx context.Context, x *acting) (context.Context, func())) {
	s.contexts = append(s.contexts, change)
}

// always changes the context of each act in a way that needs no end.
func (s *setup) always(change func(context.Context) context.Context) {
	s.each(func(ctx context.Context, _ *acting) (context.Context, func()) { return change(ctx), func() {} })
}

// evidence has the counts of a run and of one of its acts.
type evidence struct {
	before, after pooldriver.Stats
	run           *events
	act           *tally
}

// is reports whether a level is the plain one, or n is positive.
func is(level, plain string, n int64) bool { return level == plain || n > 0 }

type keyOfAct struct{}

var axes = []axis{
	{name: "face", levels: []string{"sql", "pgx"}, shown: true},
	// The places are the database, sandbox.Connector (and sandbox.DB, its handle), sandbox.Database and Wrap.
	{name: "place", levels: []string{"plain", "handle", "database", "wrap"}, apply: func(s *setup, level string) {
		s.wrap = level == "wrap"
	}},
	{
		name: "task", levels: []string{"none", "implicit", "explicit"}, shown: true, apply: func(s *setup, level string) {
			switch level {
			case "implicit":
				s.option(func(c *pooldriver.Config) {
					c.TaskKey = func(ctx context.Context) (any, context.Context) {
						if lifetime, ok := ctx.Value(keyOfAct{}).(context.Context); ok {
							return lifetime, lifetime
						}
						return nil, nil
					}
				})
				s.each(func(ctx context.Context, _ *acting) (context.Context, func()) {
					lifetime, end := context.WithCancel(ctx)
					return context.WithValue(lifetime, keyOfAct{}, lifetime), end
				})
			case "explicit":
				s.each(func(ctx context.Context, x *acting) (context.Context, func()) {
					if x.seed%2 == 0 {
						return pooldriver.NewTask(ctx)
					}
					return pooldriver.WithTask(ctx)
				})
			}
		},
		acted: func(e evidence, level string) bool { return is(level, "none", e.act.tasks.Load()) },
	},
	{
		name: "settings", levels: []string{"none", "tenant"}, apply: func(s *setup, level string) {
			if s.tenants = level == "tenant"; s.tenants {
				s.each(func(ctx context.Context, x *acting) (context.Context, func()) {
					return pooldriver.WithSettings(ctx, pooldriver.Settings{"app.tenant": x.tenant}), func() {}
				})
			}
		},
		acted: func(e evidence, level string) bool { return is(level, "none", e.act.tenants.Load()) },
	},
	{
		name: "lazy", levels: []string{"false", "true"},
		apply: func(s *setup, level string) { s.option(func(c *pooldriver.Config) { c.LazyBegin = level == "true" }) },
		acted: func(e evidence, level string) bool { return is(level, "false", e.act.late.Load()) },
	},
	{
		name: "pipeline", levels: []string{"0", "16"},
		apply: func(s *setup, level string) {
			s.option(func(c *pooldriver.Config) { c.Pipeline = map[string]int{"16": 16}[level] })
		},
		acted: func(e evidence, level string) bool { return is(level, "0", e.act.pipelined.Load()) },
	},
	{
		name: "replicas", levels: []string{"none", "explicit", "tx", "auto"}, apply: func(s *setup, level string) {
			if level == "none" {
				return
			}
			s.option(func(c *pooldriver.Config) {
				c.Replicas, c.ReplicaMaxConns = s.world.replicas(), most
				c.ReplicaReads = map[string]pooldriver.ReadsMode{"explicit": pooldriver.ReadsExplicit, "tx": pooldriver.ReadsTx, "auto": pooldriver.ReadsAuto}[level]
			})
			if level == "explicit" {
				s.always(pooldriver.Replica)
			}
		},
		acted: func(e evidence, level string) bool { return is(level, "none", e.act.served.Load()) },
	},
	{
		name: "reads", levels: []string{"off", "on"}, apply: func(s *setup, level string) {
			if level == "on" {
				s.always(pooldriver.WithReads)
			}
		},
		acted: func(e evidence, level string) bool { return is(level, "off", e.act.positions.Load()) },
	},
	{
		name: "overload", levels: []string{"off", "on"}, apply: func(s *setup, level string) {
			if level == "on" {
				s.option(func(c *pooldriver.Config) { c.QueueTarget, c.QueueInterval = 2*time.Millisecond, 50*time.Millisecond })
			}
		},
		acted: func(e evidence, level string) bool { return is(level, "off", e.act.refused.Load()) },
	},
	{
		name: "priority", levels: []string{"normal", "low"}, apply: func(s *setup, level string) {
			if level == "low" {
				s.each(func(ctx context.Context, x *acting) (context.Context, func()) {
					if x.low = x.seed%2 == 0; x.low {
						ctx = pooldriver.WithPriority(ctx, pooldriver.PriorityLow)
					}
					return ctx, func() {}
				})
			}
		},
		acted: func(e evidence, level string) bool {
			return level == "normal" || e.act.refusedLow.Load() > 0 && e.after.Pool.ShedLow > e.before.Pool.ShedLow
		},
	},
	{
		name: "reset", levels: []string{"auto", "always", "off"},
		apply: func(s *setup, level string) {
			s.option(func(c *pooldriver.Config) {
				c.Reset = map[string]pooldriver.ResetMode{"auto": pooldriver.ResetAuto, "always": pooldriver.ResetAlways, "off": pooldriver.ResetOff}[level]
			})
		},
		acted: func(e evidence, level string) bool {
			return (e.after.Cleanings > e.before.Cleanings) == (level != "off")
		},
	},
	{
		name: "cache", levels: []string{"128", "1", "0"},
		apply: func(s *setup, level string) {
			s.option(func(c *pooldriver.Config) { c.StmtCache = map[string]int{"128": 128, "1": 1, "0": 0}[level] })
			if s.world.account.Server.Engine != testbed.Postgres {
				return
			}
			s.parameters = append(s.parameters, "statement_cache_capacity="+level) // pgx keeps statements, too
			if level == "0" {
				s.parameters = append(s.parameters, "default_query_exec_mode=describe_exec")
			}
		},
		acted: func(e evidence, level string) bool {
			hits, misses := e.after.StmtHits-e.before.StmtHits, e.after.StmtMisses-e.before.StmtMisses
			// With 0, pgx still executes what the program has prepared by a name.
			return e.run.sandboxed || map[string]bool{"128": hits > 0, "1": 4*misses > hits, "0": hits <= misses}[level]
		},
	},
	{
		name: "credentials", levels: []string{"fixed", "rotating"}, apply: func(s *setup, level string) {
			if level == "rotating" {
				s.option(func(c *pooldriver.Config) { c.Credentials = s.world.rotating() })
			}
		},
		acted: func(e evidence, level string) bool {
			return level == "fixed" || e.run.rotations.Load() > 0 && e.after.Closed[pooldriver.CloseFlushed] > 0
		},
	},
	{name: "hosts", levels: []string{"one", "several"}},
	{name: "commit", levels: []string{"on", "off"}, apply: func(s *setup, level string) {
		if level == "off" {
			s.parameters = append(s.parameters, "synchronous_commit=off")
		}
	}},
	{
		name: "event", levels: []string{"none", "flush", "hold", "kill", "silent", "drain"},
		apply: func(s *setup, level string) { s.event = level },
		acted: func(e evidence, level string) bool {
			switch level {
			case "flush":
				return e.after.Pool.Destroyed.Flushed > e.before.Pool.Destroyed.Flushed
			case "hold", "kill":
				return e.run.done.Load() > 0
			case "drain":
				return e.act.closed.Load() > 0
			}
			return true
		},
	},
	{name: "river", levels: []string{"off", "on"}, acted: func(e evidence, level string) bool { return is(level, "off", e.run.jobs.Load()) }},
	// A second Connector, to the same database or to another one on the same servers.
	{name: "second", levels: []string{"none", "same", "other"}, acted: func(e evidence, level string) bool { return is(level, "none", e.act.second.Load()) }},
}

const (
	most    = 2 // connections
	workers = 8 // goroutines
)
