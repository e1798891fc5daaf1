package doctor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/inspect"
)

// Choose returns the pool of the program that target names. Without a target, or if the program has one
// pool only, it is the first.
func Choose(pools []inspect.Pool, target string) (inspect.Pool, error) {
	if len(pools) == 0 {
		return inspect.Pool{}, fmt.Errorf("the program shows no pool: inspect.Handler was given no Connector")
	}
	i := slices.IndexFunc(pools, func(p inspect.Pool) bool { return p.Name == target })
	if i < 0 && target != "" && len(pools) > 1 {
		var names []string
		for _, p := range pools {
			names = append(names, p.Name)
		}
		return inspect.Pool{}, fmt.Errorf("the program has no pool %q; it has %s", target, strings.Join(names, ", "))
	}
	return pools[max(i, 0)], nil
}

// Program adds what a program's inspector shows of its pool, and corrects the plan by it. Fields that the
// program does not have, because it has another version of the library, are zero and say nothing.
func Program(r *Report, p inspect.Pool, plan *Plan) {
	if r.Target != "" && p.Name != r.Target {
		r.Add(Finding{
			Level: Warn, Check: "target", Found: "the program's pool leads to " + p.Name + ", the DSN to " + r.Target,
			Follows: "the figures of the program may be of another server",
		})
	}
	if p.Stats.Pool.Max > 0 {
		if plan.MaxConns > 0 && plan.MaxConns != p.Stats.Pool.Max {
			r.Add(Finding{
				Level: Note, Check: "pool_max_conns", Found: fmt.Sprintf("the program runs with pool_max_conns=%d, the DSN has %d", p.Stats.Pool.Max, plan.MaxConns),
				Follows: "what follows is about the program's",
			})
		}
		plan.take(p.Settings)
		plan.MaxConns = p.Stats.Pool.Max
	}
	r.Settings(p.Settings)
	x := program{r, p}
	x.verdict()
	x.waits()
	x.enough()
	x.full()
	x.failures()
	x.lost()
	x.state()
	for _, db := range p.DBs {
		if db.MaxOpen > 0 && db.MaxOpen <= p.Stats.Pool.Max {
			r.Add(Finding{
				Level: Warn, Check: "max_open_conns", Found: fmt.Sprintf("SetMaxOpenConns is %d; callers have waited for it %d times, %s in all", db.MaxOpen, db.WaitCount, inspect.Brief(db.WaitDuration)),
				Follows: "queries inside of rows loops wait in database/sql, where the pool does not see them",
				Type:    "remove SetMaxOpenConns from the program",
			})
		}
	}
}

// program is the examination of one program's pool.
type program struct {
	*Report
	p inspect.Pool
}

func (x *program) verdict() {
	level, known := map[string]Level{"calm": OK, "busy": Warn, "bad": Bad}[x.p.Verdict.Level]
	if known {
		x.Add(Finding{Level: level, Check: "verdict", Found: "the program's inspector says: " + x.p.Verdict.Sentence})
	}
}

// longWait is a wait for a connection that people notice.
const longWait = 10 * time.Millisecond

// waits judges whether the pool is too small, and why.
func (x *program) waits() {
	s := x.p.Stats
	if s.Pool.Max == 0 {
		return
	}
	f := Finding{Level: OK, Check: "size", Found: fmt.Sprintf("%d of %d connections are in use", s.Pool.Lent, s.Pool.Max)}
	if x.p.Recent.Acquired > 0 {
		over := ""
		if x.p.Recent.Over {
			over = "more than "
		}
		f.Found += fmt.Sprintf("; of %d statements of the last minute, 99 %% waited no longer than %s%s", x.p.Recent.Acquired, over, inspect.Brief(x.p.Recent.WaitP99))
	}
	idle := 0.0
	if s.Hold.Sum > 0 {
		idle = float64(s.IdlePinned.Sum) / float64(s.Hold.Sum)
		f.Found += fmt.Sprintf("; for %s of the time for which connections are held, they run no statement", percent(idle))
	}
	if s.AcquireFailures[pooldriver.AcquireTimeout] == 0 && x.p.Recent.WaitP99 <= longWait {
		x.Add(f)
		return
	}
	f.Level = Warn
	unused := 0 // now
	for _, h := range x.p.Holders {
		if !h.Running {
			unused++
		}
	}
	if idle > 0.5 || unused > len(x.p.Holders)/2 {
		f.Follows = "statements wait although connections mostly run nothing: a larger pool hides it. The holders and call sites of the inspector show where connections are held for nothing"
		f.Type = "pooldriver top URL"
	} else {
		f.Follows = "statements wait because all connections run statements: make the statements faster, or see by a measurement whether more connections help this server"
		f.Type = "pooldriver doctor --load --statements FILE DSN"
	}
	x.Add(f)
}

// enough says how many connections the program's own traffic needs: see Connector.WhatIf.
func (x *program) enough() {
	w, most := x.p.Stats.Enough, x.p.Stats.Pool.Max
	f := Finding{Level: Note, Check: "enough"}
	switch {
	case most == 0 || w.Conns == 0: // another version
		return
	case w.Unknown != "":
		f.Found = "how many connections would be enough is not known: " + w.Unknown
		x.Add(f)
		return
	case w.Conns >= w.Needed:
		f.Found = fmt.Sprintf("in the last %s at most %d of %d connections were needed; with %d nobody would have waited", inspect.Brief(w.For), w.Needed, most, w.Conns)
	default:
		f.Found = fmt.Sprintf("in the last %s at most %d of %d connections were needed; with %d the p99 of the wait would have been %s",
			inspect.Brief(w.For), w.Needed, most, w.Conns, inspect.Brief(w.WaitP99))
	}
	if w.Conns < most {
		f.Follows = "a smaller pool serves this traffic, and leaves the server's connections to others. Look at the peak, too, and leave room"
		f.Type = fmt.Sprintf("pool_max_conns=%d, if it is so at the peak", w.Conns)
	}
	x.Add(f)
}

func (x *program) full() {
	if s := x.p.Stats.Pool; s.Allowed > 0 && s.Allowed < s.Max {
		x.Add(Finding{
			Level: Bad, Check: "server_full", Found: fmt.Sprintf("the server allows the program %d of its %d connections", s.Allowed, s.Max),
			Follows: "all processes together want more than the limits allow",
			Type:    fmt.Sprintf("pool_max_conns=%d; pooldriver doctor DSN --replicas N says which limit it is", s.Allowed),
		})
	}
}

// failures lists the statements that got no connection.
func (x *program) failures() {
	var parts []string
	for _, why := range inspect.Refusals() {
		if n := x.p.Stats.AcquireFailures[why]; n > 0 {
			parts = append(parts, fmt.Sprintf("%s %d", why, n))
		}
	}
	if n := x.p.Stats.DialErrors; n > 0 {
		parts = append(parts, counted(int(n), "failed dial"))
	}
	if len(parts) == 0 {
		return
	}
	f := Finding{
		Level: Warn, Check: "failures", Found: "since the program started, statements got no connection: " + strings.Join(parts, ", "),
		Follows: "each was an error of the program", Type: "pooldriver top URL, while it happens",
	}
	if d := x.p.Stats.DialsFailing; d.Failed > 0 {
		f.Level = Bad
		f.Follows = fmt.Sprintf("dials fail now, the last %d for %s: %s", d.Failed, inspect.Brief(d.For), d.Error)
	}
	x.Add(f)
}

// lost judges connections that ended behind the pool's back.
func (x *program) lost() {
	s := x.p.Stats
	if s.FoundDead > 0 {
		x.Add(Finding{
			Level: Warn, Check: "found_dead", Found: counted(int(s.FoundDead), "idle connection") + " found closed by somebody else when taken",
			Follows: "a server, a pooler or the network closes idle connections before the pool does: the next statement waits for a new one. A restart of the server does it once",
			Type:    "pool_max_conn_idle_time=5m, or shorter",
		})
	}
	if s.Orphans > 0 {
		x.Add(Finding{
			Level: Warn, Check: "orphans", Found: counted(int(s.Orphans), "connection") + " did not end within 5 s when the pool closed them",
			Follows: "the server may have had more connections than pool_max_conns",
		})
	}
}

// state judges how sessions are left.
func (x *program) state() {
	if n := x.p.Stats.StateDropped; n > 0 {
		x.Add(Finding{
			Level: Warn, Check: "state_dropped", Found: counted(int(n), "statement") + " set session state on the *sql.DB, and the state ended with the statement",
			Follows: "the statements that rely on it do not see it", Type: "set it in a task or on a *sql.Conn: docs/tasks.md",
		})
	}
	if n := x.p.Stats.Rollbacks; n > 0 {
		x.Add(Finding{
			Level: Warn, Check: "rollbacks", Found: counted(int(n), "transaction") + " left open by the program, and rolled back by the pool",
			Follows: "changes in them are lost", Type: "grep -rn 'Exec(.*BEGIN' .",
		})
	}
}
