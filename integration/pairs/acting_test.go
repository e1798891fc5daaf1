package pairs

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"runtime/debug"
	"strings"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pooldriver/pooldriver"
)

// line is a part of what an act has been told.
type line struct {
	text  string
	own   bool // it tells of the act's own writes, which a configuration may promise or not
	plain bool // it comes from a context without a task
}

// fate is what must have become of a row.
type fate uint8

const (
	unsure fate = iota
	stored
	absent
)

// ending is why an act has ended.
type ending uint8

const (
	finished ending = iota
	failed          // by an error that it tells
	refused         // by overload
	lost            // by the event of the configuration
)

// acting is one act at work: over a face of ours, or over the bare driver.
type acting struct {
	*run // nil: the bare driver
	act  *act
	seed uint64
	r    *rand.Rand
	h    handle
	base int64 // the ids of its rows come after it

	plain  context.Context // of the run, without task and settings
	ctx    context.Context
	tenant string
	low    bool // of low priority

	mariaDB   bool
	ids       int64
	fates     map[int64]fate
	elsewhere map[int64]bool  // rows in the second database
	rows      int             // that are open
	held      map[runner]bool // open transactions and connections that have executed a statement
	acquires  atomic.Int64    // connections that it got, by the Observer
	lines     []line
	end       ending
}

// tally counts what an act's own contexts and labels tell of the features, in all of its performances of a run.
type tally struct {
	performed, tasks, tenants, late, pipelined, served, positions, refused, refusedLow, closed, second atomic.Int64
}

const variants = 8 // of each act

func newActing(a *act, seed uint64) *acting {
	h := fnv.New64a()
	_, _ = h.Write([]byte(a.name))
	return &acting{act: a, seed: seed, r: rand.New(rand.NewPCG(seed, h.Sum64())), fates: map[int64]fate{}, elsewhere: map[int64]bool{}, held: map[runner]bool{}}
}

type stop struct{}

// perform runs the act until its end, or until an error.
func (x *acting) perform() {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(stop); !ok {
				if !x.ours() {
					panic(r)
				}
				x.end = failed
				x.fault(x, "panic", "%v: %s", r, debug.Stack())
			}
		}
	}()
	x.act.run(x)
}

func (x *acting) ours() bool { return x.run != nil }

// say returns a text of PostgreSQL or of MariaDB.
func (x *acting) say(postgres, mariaDB string) string {
	if x.mariaDB {
		return mariaDB
	}
	return postgres
}

func (x *acting) chance() bool { return x.r.IntN(2) == 0 }

// in reports whether the act runs in a configuration of a pattern. The bare driver has no configuration.
func (x *acting) in(pattern string) bool { return x.ours() && x.cfg.has(pattern) }

func (x *acting) tell(format string, arguments ...any) {
	x.lines = append(x.lines, line{text: fmt.Sprintf(format, arguments...)})
}

func (x *acting) tellOwn(format string, arguments ...any) {
	x.lines = append(x.lines, line{text: fmt.Sprintf(format, arguments...), own: true})
}

// code is the part of an error that must be equal over both drivers.
func code(err error) string {
	var server *pgconn.PgError
	var maria *mysql.MySQLError
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return "context"
	case errors.As(err, &server):
		return server.Code
	case errors.As(err, &maria):
		return fmt.Sprint("E", maria.Number)
	case errors.Is(err, sql.ErrNoRows):
		return "no rows"
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return clip(text, 260)
}

func clip(text string, n int) string { return text[:min(len(text), n)] }

// excused reports whether the event of the configuration is the reason of an error. After a kill each error is but
// those that the server has for a statement.
func (x *acting) excused(err error) bool {
	switch {
	case !x.ours():
		return false
	case x.event == "drain":
		return errors.Is(err, pooldriver.ErrClosed)
	}
	c := code(err)
	return x.event == "kill" && c != "context" && (len(c) != 5 || c == "57P01" || c == "25P02")
}

// must ends the act with an error.
func (x *acting) must(err error) {
	if err == nil {
		return
	}
	defer panic(stop{})
	switch {
	case x.ours() && errors.Is(err, pooldriver.ErrOverloaded):
		x.end = refused
		x.refusals.Add(1)
		if !x.in("overload=on") {
			x.fault(x, "refused without overload", "%v", err)
		}
		if x.event != "kill" { // whose session was killed holds nothing
			x.mayHold(x.rows+len(x.held), err)
		}
	case x.excused(err):
		x.end = lost
		if x.event == "drain" {
			x.tally().closed.Add(1)
			x.mayHold(len(x.held), err) // rows may be in memory: a task that holds no connection is refused
		}
	default:
		x.end = failed
		x.tell("error %s", code(err))
	}
}

// mayHold: a task that holds a connection gets what it needs to give the connection back.
func (x *acting) mayHold(n int, err error) {
	if n > 0 && !x.in("task=none") {
		x.fault(x, "a holder was refused", "%d rows, %d others open: %v", x.rows, len(x.held), err)
	}
}

// expected is must for an error that is part of the act: the act goes on.
func (x *acting) expected(err error) {
	if err == nil || x.ours() && errors.Is(err, pooldriver.ErrOverloaded) || x.excused(err) {
		x.must(err)
		x.tell("no error")
		return
	}
	x.tell("expected %s", code(err))
}

func (x *acting) exec(on runner, text string, args ...any) int64 {
	return x.execIn(x.ctx, on, text, args...)
}

func (x *acting) execIn(ctx context.Context, on runner, text string, args ...any) int64 {
	n, err := on.exec(ctx, text, args...)
	x.must(err)
	x.hold(on)
	return n
}

// hold: a transaction or a connection has a connection of the pool from its first statement on.
func (x *acting) hold(on runner) {
	if _, pool := on.(handle); !pool {
		x.held[on] = true
	}
}

func (x *acting) ask(on runner, to []any, text string, args ...any) {
	x.must(one(x.ctx, on, text, args, to...))
	x.hold(on)
}

func (x *acting) id() int64 {
	x.ids++
	id := x.base + x.ids
	x.fates[id] = unsure
	return id
}

// insert writes a row, which is stored when the server has said so, except in a transaction.
func (x *acting) insert(on runner) int64 { return x.insertIn(x.ctx, on) }

func (x *acting) insertIn(ctx context.Context, on runner) int64 {
	id := x.id()
	x.tell("insert %d", x.execIn(ctx, on, "INSERT INTO writes (id) VALUES ($1)", id))
	if _, tx := on.(transaction); !tx {
		x.fates[id] = stored
	}
	return id
}

func (x *acting) decide(f fate, ids ...int64) {
	for _, id := range ids {
		x.fates[id] = f
	}
}

// mine counts all rows of the act, and tells with which tenants they were written.
func (x *acting) mine(on runner) (n int, tenants string) { return x.mineIn(x.ctx, on) }

func (x *acting) mineIn(ctx context.Context, on runner) (n int, tenants string) {
	aggregate := x.say("string_agg(DISTINCT tenant, ',')", "group_concat(DISTINCT tenant)")
	x.must(one(ctx, on, "SELECT count(*), coalesce("+aggregate+", '') FROM writes WHERE id BETWEEN $1 AND $2", []any{x.base, x.base + idsOfAnAct - 1}, &n, &tenants))
	return n, x.relative(tenants)
}

// relative hides which tenant it is.
func (x *acting) relative(tenants string) string {
	if x.tenant != "" && tenants == x.tenant {
		return "mine"
	}
	return tenants
}

// see tells of the act's own writes, by the handle.
func (x *acting) see() {
	n, tenants := x.mine(x.h)
	x.tellOwn("sees %d of %q", n, tenants)
}

func (x *acting) begin(on beginner) transaction { return x.beginWith(on, sql.TxOptions{}) }

func (x *acting) beginWith(on beginner, o sql.TxOptions) transaction { return x.beginIn(x.ctx, on, o) }

func (x *acting) beginIn(ctx context.Context, on beginner, o sql.TxOptions) transaction {
	before := x.acquires.Load()
	tx, err := on.begin(ctx, o)
	x.must(err)
	// Of a task BeginTx takes the session, and defers BEGIN alone, which nobody is told.
	if _, pool := on.(handle); pool && x.in("lazy=true") && (x.in("task=implicit|explicit") || x.acquires.Load() == before && len(x.held)+x.rows == 0) {
		x.tally().late.Add(1)
	}
	return tx
}

// finish ends a transaction, and so decides about the rows with the ids.
func (x *acting) finish(tx transaction, commits bool, ids ...int64) {
	x.finishIn(x.ctx, tx, commits, ids...)
}

func (x *acting) finishIn(ctx context.Context, tx transaction, commits bool, ids ...int64) {
	err := tx.end(ctx, commits)
	delete(x.held, tx)
	x.must(err)
	x.decide(map[bool]fate{true: stored, false: absent}[commits], ids...)
}

// leave rolls back what an error has left open.
func leave(x *acting, tx transaction) { _ = tx.end(context.WithoutCancel(x.ctx), false) }

func (x *acting) loop(on runner, each func(rows), text string, args ...any) (n int) {
	found, err := on.query(x.ctx, text, args...)
	x.must(err)
	x.rows++
	defer found.Close()
	for found.Next() {
		n++
		each(found)
	}
	x.must(found.Err())
	x.rows--
	return n
}

func (x *acting) conn() lent {
	c, err := x.h.conn(x.ctx)
	x.must(err)
	return c
}

func (x *acting) release(c lent) {
	delete(x.held, c)
	x.must(c.close())
}

func (x *acting) text() string {
	var all []string
	for _, l := range x.lines {
		all = append(all, l.text)
	}
	return strings.Join(all, "; ")
}

// compare returns the first line that is not as the bare driver's. Lines of own writes are compared where the
// configuration promises them.
func (x *acting) compare(bare *acting) string {
	plainly := !x.in("replicas=auto") || x.in("reads=on")
	promised := x.in("replicas=none") || x.in("reads=on") || !x.in("task=none")
	for i, l := range x.lines {
		switch {
		case i >= len(bare.lines):
			return fmt.Sprintf("%q, the bare driver has ended", l.text)
		case l.text == bare.lines[i].text, l.own && bare.lines[i].own && !(l.plain && plainly || !l.plain && promised):
		default:
			return fmt.Sprintf("%q, bare %q", l.text, bare.lines[i].text)
		}
	}
	if x.end == finished && len(x.lines) < len(bare.lines) {
		return fmt.Sprintf("has ended, bare goes on with %q", bare.lines[len(x.lines)].text)
	}
	return ""
}
