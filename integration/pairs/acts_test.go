package pairs

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pooldriver/pooldriver"
)

// act is one thing that a program does, on rows of its own. What it is told must be what the bare driver tells it.
type act struct {
	name    string
	mariaDB bool     // MariaDB has it, too
	often   int      // how many times more than others it is performed
	where   []string // patterns of the configurations that it is for; nil: each
	but     []string // patterns of the configurations for which documentation says something else
	run     func(x *acting)
}

// isFor reports whether an act is part of a configuration.
func (a *act) isFor(c configuration) bool {
	return (a.where == nil || slices.ContainsFunc(a.where, c.has)) && !slices.ContainsFunc(a.but, c.has)
}

// errLost is for a nil connection of Conn.
var errLost = errors.New("the connection is lost")

var acts = []*act{
	{name: "write", mariaDB: true, run: func(x *acting) {
		for range 1 + x.r.IntN(3) {
			x.insert(x.h)
			x.see()
		}
		now := x.ctx
		if x.ours() {
			now = pooldriver.Primary(now)
		}
		n, tenants := x.mineIn(now, x.h)
		x.tellOwn("the primary shows %d of %q", n, tenants)
	}},
	{name: "token", mariaDB: true, run: func(x *acting) {
		// The next request of the same user, perhaps in another process.
		x.insert(x.h)
		next := x.plain
		if x.ours() {
			next = pooldriver.WithToken(next, pooldriver.Token(x.ctx))
			if x.in("replicas=explicit") {
				next = pooldriver.Replica(next)
			}
		}
		n, tenants := x.mineIn(next, x.h)
		x.tellOwn("the next request sees %d of %q", n, tenants)
		// reads.go: with TaskKey only WithReads knows the writes.
	}, but: []string{"reads=off task=none|implicit replicas=explicit|tx|auto"}},
	{name: "transaction", mariaDB: true, run: func(x *acting) {
		tx := x.begin(x.h)
		defer leave(x, tx)
		a := x.insert(tx)
		n, tenants := x.mine(tx)
		x.tell("inside %d of %q", n, tenants)
		b := x.insert(tx)
		x.finish(tx, x.chance(), a, b)
		x.see()
	}},
	{name: "empty transaction", mariaDB: true, run: func(x *acting) {
		tx := x.begin(x.h)
		defer leave(x, tx)
		x.finish(tx, x.chance())
		x.insert(x.h)
		x.see()
	}},
	{name: "read-only transaction", mariaDB: true, often: 1, run: func(x *acting) {
		x.insert(x.h)
		tx := x.beginWith(x.h, sql.TxOptions{ReadOnly: true, Isolation: []sql.IsolationLevel{sql.LevelDefault, sql.LevelRepeatableRead}[x.r.IntN(2)]})
		defer leave(x, tx)
		n, tenants := x.mine(tx)
		x.tellOwn("read only: %d of %q", n, tenants)
		if x.chance() {
			_, err := tx.exec(x.ctx, "INSERT INTO writes (id) VALUES ($1)", x.base)
			x.expected(err)
			x.finish(tx, false)
		} else {
			x.finish(tx, true)
		}
		x.see()
	}},
	{name: "nested rows", mariaDB: true, run: func(x *acting) {
		inner := x.r.IntN(2)
		n := x.loop(x.h, func(found rows) {
			var i int
			x.must(found.Scan(&i))
			if i%5 == 1 {
				if inner == 0 {
					x.insert(x.h)
				} else {
					x.see()
				}
			}
			time.Sleep(time.Millisecond)
		}, x.say("SELECT g FROM generate_series(1, 12) g", "SELECT seq FROM seq_1_to_12"))
		x.tell("%d rows", n)
		x.see()
	}},
	{name: "update returning", often: 2, run: func(x *acting) {
		when, in := x.r.IntN(3), x.r.IntN(4) == 0
		if x.ours() && when > 0 && !in { // adr/0007: its rows keep their connection, so that two such acts would have both
			x.asking.Lock()
			defer x.asking.Unlock()
		}
		a, b := x.insert(x.h), x.insert(x.h)
		if x.in("replicas=explicit|auto") {
			time.Sleep(2 * delay) // until the replicas have the rows as they are before the update
		}
		var on runner = x.h
		var tx transaction
		if in {
			tx = x.begin(x.h)
			defer leave(x, tx)
			on = tx
		}
		sum := func() (n int) {
			x.ask(on, []any{&n}, "SELECT coalesce(sum(n), 0) FROM writes WHERE id BETWEEN $1 AND $2", a, b)
			return n
		}
		n := x.loop(on, func(found rows) {
			var i int
			x.must(found.Scan(&i))
			x.tell("returned %d", i)
			switch {
			case in:
			case when == 0:
				_ = found.Close() // the server has done it all
			default:
				time.Sleep(5 * time.Millisecond) // and has committed it
				x.tellOwn("sum %d in the loop", sum())
			}
		}, "UPDATE writes SET n = n + 1 WHERE id BETWEEN $1 AND $2 RETURNING n", a, b)
		x.tell("%d returned", n)
		x.tellOwn("sum %d", sum())
		if in {
			x.finish(tx, true)
			on = x.h
			x.tellOwn("sum %d", sum())
		}
	}},
	{name: "connection", mariaDB: true, run: func(x *acting) {
		c := x.conn()
		defer c.close()
		if x.chance() {
			x.exec(c, x.say("SET app.who = 'me'", "SET @who = 'me'"))
		} else {
			x.exec(c, x.say("SET search_path = public, pg_catalog", "SET @who = NULL"))
		}
		x.insert(c)
		var ids []int64
		tx := x.begin(c)
		defer leave(x, tx)
		for range 3 { // on a connection its statements are part of its transaction
			if x.chance() {
				ids = append(ids, x.insert(tx))
			} else {
				id := x.insert(c)
				x.fates[id] = unsure
				ids = append(ids, id)
			}
		}
		x.finish(tx, x.chance(), ids...)
		var who string
		x.ask(c, []any{&who}, x.say("SELECT coalesce(current_setting('app.who', true), '')", "SELECT coalesce(@who, '')"))
		x.tell("who %q", who)
		n, tenants := x.mine(c)
		x.tell("on the connection %d of %q", n, tenants)
		if !x.ours() || x.in("reset=off") { // else it is put back for us
			x.exec(c, x.say("SET app.who = ''", "SET @who = NULL"))
			x.exec(c, x.say("RESET search_path", "SET @who = NULL"))
		}
		x.release(c)
		x.see()
	}},
	{name: "state is one's own", run: func(x *acting) {
		var who, path string
		x.ask(x.h, []any{&who, &path}, "SELECT coalesce(current_setting('app.who', true), ''), current_setting('search_path')")
		x.tell("who %q path %s", who, path)
		var tenant string
		x.ask(x.h, []any{&tenant}, "SELECT coalesce(current_setting('app.tenant', true), '')")
		x.tell("tenant %q", x.relative(tenant))
	}},
	{name: "temporary table", run: func(x *acting) {
		c := x.conn()
		defer c.close()
		x.exec(c, "CREATE TEMPORARY TABLE scratch (id bigint)")
		x.exec(c, "INSERT INTO scratch VALUES (1), (2)")
		var n int
		x.ask(c, []any{&n}, "SELECT count(*) FROM scratch")
		x.tell("%d in scratch", n)
		if !x.ours() || x.in("reset=off") || x.in("task=explicit") && x.chance() {
			x.exec(c, "DROP TABLE scratch")
		}
		x.release(c)
	}},
	{name: "savepoints", run: func(x *acting) {
		tx := x.begin(x.h)
		defer leave(x, tx)
		a := x.insert(tx)
		nested := x.in("task=explicit")
		var inner transaction
		if nested {
			inner = x.begin(x.h)
		} else {
			x.exec(tx, "SAVEPOINT s")
			inner = tx
		}
		b := x.insert(inner)
		if x.chance() {
			_, err := inner.exec(x.ctx, "INSERT INTO nowhere VALUES (1)")
			x.expected(err)
		}
		if nested {
			x.finish(inner, false)
		} else {
			x.exec(tx, "ROLLBACK TO s")
		}
		c := x.insert(tx)
		x.finish(tx, true, a, c)
		x.decide(absent, b)
		x.see()
	}},
	{name: "errors", run: func(x *acting) {
		for _, text := range []string{"SELECT 1 / 0", "SELECT * FROM nowhere", "INSERT INTO writes (id) VALUES (NULL)"} {
			_, err := x.h.exec(x.ctx, text)
			x.expected(err)
		}
		tx := x.begin(x.h)
		defer leave(x, tx)
		a := x.insert(tx)
		_, err := tx.exec(x.ctx, "SELECT 1 / 0")
		x.expected(err)
		_, err = tx.exec(x.ctx, "SELECT 1")
		x.expected(err)
		x.finish(tx, false, a)
		x.insert(x.h)
		x.see()
	}},
	{name: "retry", run: func(x *acting) {
		body := func(ctx context.Context, tx runner) error {
			var n int
			if err := one(ctx, tx, "SELECT n FROM hot", nil, &n); err != nil {
				return err
			}
			time.Sleep(2 * time.Millisecond)
			_, err := tx.exec(ctx, "UPDATE hot SET n = n + 1")
			return err
		}
		o := sql.TxOptions{Isolation: sql.LevelRepeatableRead}
		if x.ours() {
			x.must(pooldriver.InTx(x.ctx, x.db, &o, func(ctx context.Context, tx *sql.Tx) error {
				if _, pgx := x.h.(pgxHandle); pgx {
					return body(ctx, x.h) // is part of the transaction, by its context
				}
				return body(ctx, sqlRunner{tx, false})
			}, pooldriver.Retry{MaxAttempts: 1000}))
			x.hot.Add(1)
			return
		}
		for {
			tx := x.beginWith(x.h, o)
			err := body(x.ctx, tx)
			if err == nil {
				err = tx.end(x.ctx, true)
			}
			leave(x, tx)
			var server *pgconn.PgError
			if !errors.As(err, &server) || server.Code != "40001" {
				x.must(err)
				return
			}
		}
	}},
	{name: "prepared", mariaDB: true, run: func(x *acting) {
		h, ok := x.h.(sqlHandle)
		if !ok { // pgx prepares by a name, which ends with the transaction
			tx := x.begin(x.h)
			defer leave(x, tx)
			_, err := tx.(pgxTx).tx.Prepare(x.ctx, "prepared", "INSERT INTO writes (id) VALUES ($1)")
			x.must(err)
			id := x.id()
			x.tell("insert %d", x.exec(tx, "prepared", id))
			x.finish(tx, true, id)
			x.see()
			return
		}
		insert, err := h.db.PrepareContext(x.ctx, h.text("INSERT INTO writes (id) VALUES ($1)"))
		x.must(err)
		defer insert.Close()
		count, err := h.db.PrepareContext(x.ctx, h.text("SELECT count(*) FROM writes WHERE id = $1"))
		x.must(err)
		defer count.Close()
		for range 1 + x.r.IntN(3) {
			id := x.id()
			_, err := insert.ExecContext(x.ctx, id)
			x.must(err)
			x.fates[id] = stored
			var n int
			x.must(count.QueryRowContext(x.ctx, id).Scan(&n))
			x.tellOwn("prepared sees %d", n)
		}
		x.see()
	}},
	{name: "batch", run: func(x *acting) {
		h, ok := x.h.(pgxHandle)
		if !ok {
			return
		}
		a, b := x.id(), x.id()
		var batch pgx.Batch
		batch.Queue("INSERT INTO writes (id) VALUES ($1)", a)
		batch.Queue("SELECT count(*) FROM writes WHERE id = $1", a)
		batch.Queue("INSERT INTO writes (id) VALUES ($1)", b)
		fails := x.r.IntN(3) == 0
		if fails {
			batch.Queue("SELECT 1 / 0")
		}
		results := h.p.SendBatch(x.ctx, &batch)
		_, err := results.Exec()
		if err == nil {
			var n int
			if err = results.QueryRow().Scan(&n); err == nil {
				x.tell("batch sees %d", n)
			}
		}
		if closed := results.Close(); err == nil {
			err = closed
		}
		if fails {
			x.expected(err)
			x.decide(absent, a, b)
		} else {
			x.must(err)
			x.decide(stored, a, b)
		}
		x.see()
	}},
	{name: "pgx's connection", run: func(x *acting) {
		if _, ok := x.h.(pgxHandle); !ok {
			return
		}
		c := x.conn()
		defer c.close()
		own := c.(*pgxConn).own
		var mine *pgx.Conn
		when := x.r.IntN(3)
		if when == 0 {
			mine = own()
		}
		tx := x.begin(c)
		defer leave(x, tx)
		switch when {
		case 1:
			mine = own()
		case 2:
			mine = tx.(pgxTx).tx.Conn()
		}
		if mine == nil {
			x.must(errLost)
		}
		id := x.id()
		tag, err := mine.Exec(x.ctx, "INSERT INTO writes (id) VALUES ($1)", id)
		x.must(err)
		x.tell("insert %d", tag.RowsAffected())
		x.finish(tx, x.chance(), id)
		x.release(c)
		x.see()
	}},
	{name: "copy", run: func(x *acting) {
		h, ok := x.h.(pgxHandle)
		if !ok {
			return
		}
		a, b := x.id(), x.id()
		n, err := h.p.CopyFrom(x.ctx, pgx.Identifier{"writes"}, []string{"id"}, pgx.CopyFromRows([][]any{{a}, {b}}))
		x.must(err)
		x.tell("copied %d", n)
		x.decide(stored, a, b)
		x.see()
	}},
	{name: "forgotten rows", run: func(x *acting) {
		x.insert(x.h)
		found, err := x.h.query(x.ctx, "SELECT g FROM generate_series(1, 2000) g")
		x.must(err)
		x.rows++
		if !x.ours() || x.in("task=none") { // else the task ends them
			defer found.Close()
		}
		x.tell("next %v", found.Next())
		if x.chance() {
			x.insert(x.h)
		}
	}},
	{name: "forgotten transaction", run: func(x *acting) {
		tx := x.begin(x.h)
		if !x.ours() || x.in("task=none") { // else the task ends it
			defer leave(x, tx)
		}
		a := x.insert(tx)
		x.decide(absent, a)
	}},
	{name: "valuer", run: func(x *acting) {
		for range 4 {
			v := newNumber(&asked{x: x, ctx: x.ctx, asks: x.chance() && !x.in("place=handle")}) // testing.md: there is one session
			var n int
			x.must(v.call(func() error { return one(x.ctx, x.h, "SELECT $1::int + 1", []any{v}, &n) }))
			x.tell("valued %d", n)
		}
	}},
	{name: "own function", run: func(x *acting) {
		// Functions of the program, which write. One has a name that PostgreSQL has, too.
		for range 3 {
			id := x.id()
			text := "SELECT touch($1::bigint)"
			if x.chance() {
				text = "SELECT upper($1::bigint)"
			}
			var got int64
			x.ask(x.h, []any{&got}, text, id)
			x.tell("touched %v", got == id)
			x.fates[id] = stored
		}
		x.see()
	}},
	{name: "another context", mariaDB: true, run: func(x *acting) {
		other, mine := context.WithoutCancel(x.plain), x.ctx
		if !x.tenantsIn() && x.chance() { // settings-by-context.md: other settings than BeginTx's are an error
			other, mine = mine, other
		}
		tx := x.beginIn(mine, x.h, sql.TxOptions{})
		defer leave(x, tx)
		a := x.insertIn(other, tx)
		x.finishIn([]context.Context{x.ctx, other}[x.r.IntN(2)], tx, x.r.IntN(3) > 0, a)
		x.see()
		// replicas.md: a TaskKey is not asked in a transaction of another context.
	}, but: []string{"reads=off task=implicit replicas=explicit|tx|auto"}},
	{name: "outside", mariaDB: true, run: func(x *acting) {
		// A statement that is no part of the transaction of its task.
		if x.ours() {
			x.asking.Lock() // it needs a second connection
			defer x.asking.Unlock()
		}
		tx := x.begin(x.h)
		defer leave(x, tx)
		a := x.insert(tx)
		x.insertIn(pooldriver.Outside(x.ctx), x.h)
		x.finish(tx, false, a)
		x.see()
	}, but: []string{"place=handle"}}, // testing.md: there is one session
	{name: "one session", mariaDB: true, run: func(x *acting) {
		// In an explicit task all statements are of one session, whoever issues them: a connection of the bare driver.
		c := x.conn()
		defer c.close()
		var h beginner = x.h
		if !x.ours() {
			h = c
		}
		either := func() beginner {
			if x.chance() {
				return h
			}
			return c
		}
		if x.chance() {
			x.exec(either(), x.say("SET app.who = 'me'", "SET @who = 'me'"))
		}
		tx := x.begin(either())
		defer leave(x, tx)
		var ids []int64
		for range 3 {
			id := x.id()
			var on runner = tx
			if o := either(); x.chance() {
				on = o
			}
			x.tell("insert %d", x.exec(on, "INSERT INTO writes (id) VALUES ($1)", id))
			ids = append(ids, id)
		}
		x.finish(tx, x.chance(), ids...)
		var who string
		x.ask(either(), []any{&who}, x.say("SELECT coalesce(current_setting('app.who', true), '')", "SELECT coalesce(@who, '')"))
		n, tenants := x.mine(either())
		x.tellOwn("who %q has %d of %q", who, n, tenants)
		if !x.ours() || x.in("reset=off") {
			x.exec(c, x.say("SET app.who = ''", "SET @who = NULL"))
		}
		x.release(c)
	}, where: []string{"task=explicit"}},
	{name: "asks back", mariaDB: true, run: func(x *acting) {
		c := x.conn()
		defer c.close()
		for range 2 {
			id := x.id()
			x.exec(c, "INSERT INTO numbered (id) VALUES ($1)", id)
			delete(x.fates, id)
			var last, mine int64
			x.ask(c, []any{&last}, x.say("SELECT lastval()", "SELECT LAST_INSERT_ID()"))
			x.ask(c, []any{&mine}, "SELECT n FROM numbered WHERE id = $1", id)
			x.tell("last %v", last == mine)
		}
		if x.mariaDB {
			for range 2 {
				x.insert(c)
			}
			n := x.loop(c, func(rows) {}, "SELECT SQL_CALC_FOUND_ROWS id FROM numbered WHERE id BETWEEN $1 AND $2 LIMIT 1", x.base, x.base+idsOfAnAct)
			var found int
			x.ask(c, []any{&found}, "SELECT FOUND_ROWS()")
			x.tellOwn("%d of %d rows", n, found)
		}
		x.release(c)
	}},
	{name: "crowd of functions", often: 1, run: func(x *acting) {
		// Readers without task and settings, as far as the text tells: the function writes.
		var ids [12]int64
		for i := range ids {
			ids[i] = x.id()
		}
		x.crowd(4, func(g int) error {
			for _, id := range ids[3*g : 3*g+3] {
				var got int64
				if err := one(x.plain, x.h, "SELECT upper($1::bigint)", []any{id}, &got); err != nil {
					return err
				}
			}
			return nil
		})
		x.tell("all touched")
		x.decide(stored, ids[:]...)
	}, but: []string{"place=wrap pipeline=16"}}, // transparency.md: nobody can ask the server there
	{name: "crowd of valuers", often: 1, run: func(x *acting) {
		asks := x.chance() && !x.in("place=handle")
		x.crowd(5, func(g int) error {
			for range 4 {
				v := newNumber(&asked{x: x, ctx: x.plain, asks: asks && g == 0})
				n := 42
				if err := v.call(func() error { return one(x.plain, x.h, "SELECT $1::int + 1", []any{v}, &n) }); err != nil {
					return err
				}
				if n != 42 {
					return fmt.Errorf("valued %d", n)
				}
			}
			return nil
		})
		x.tell("all valued")
	}},
	{name: "argument that panics", run: func(x *acting) {
		v := newNumber(&asked{x: x, ctx: x.ctx, panics: true})
		x.must(v.call(func() error { return one(x.ctx, x.h, "SELECT $1::int + 1", []any{v}, new(int)) }))
		x.insert(x.h)
		x.see()
	}},
	{name: "job", often: 3, run: func(x *acting) {
		id := x.id()
		if x.ours() {
			x.must(x.river.insert(x.ctx, id))
			x.jobs.Add(1)
		}
		x.fates[id] = stored // by the worker, in time
		x.tell("inserted")
		if !x.ours() {
			x.exec(x.h, "INSERT INTO writes (id) VALUES ($1)", id)
		}
	}, where: []string{"river=on"}},
	{name: "crowd", run: func(x *acting) {
		// Readers without task and settings, who may share pipelines.
		around := x.plain
		if x.in("reads=on") {
			around = pooldriver.WithReads(around)
		}
		id := x.insertIn(around, x.h)
		var seen [6]string
		x.crowd(len(seen), func(g int) error {
			for range 4 {
				var tenant, who string
				var n int
				err := one(around, x.h, "SELECT coalesce(current_setting('app.tenant', true), ''), coalesce(current_setting('app.who', true), ''), count(*) FROM writes WHERE id = $1", []any{id}, &tenant, &who, &n)
				if err != nil {
					return err
				}
				if x.ours() && tenant+who != "" {
					return fmt.Errorf("a stranger's state: tenant %q who %q", tenant, who)
				}
				seen[g] = fmt.Sprintf("crowd sees %v", n)
			}
			return nil
		})
		for _, text := range seen {
			x.lines = append(x.lines, line{text, true, true})
		}
	}},
	{name: "crowd of unequals", run: func(x *acting) {
		// One of the readers is slow. Who is behind it in a pipeline does not wait for it.
		x.crowd(5, func(g int) error {
			for i := range 4 {
				n := 10
				if g == 0 && i == 3 {
					n = 300_000
				}
				var got int
				if err := one(x.plain, x.h, "SELECT count(*) FROM generate_series(1, $1::int)", []any{n}, &got); err != nil {
					return err
				}
				if got != n {
					return fmt.Errorf("%d of %d", got, n)
				}
			}
			return nil
		})
		x.tell("all counted")
	}},
	{name: "cancelled", run: func(x *acting) {
		ctx, cancel := context.WithTimeout(x.ctx, time.Duration(2+x.r.IntN(6))*time.Millisecond)
		defer cancel()
		_, err := x.h.exec(ctx, "SELECT pg_sleep(0.5)")
		x.expected(err)
		x.insert(x.h)
		x.see()
	}},
	{name: "slow", run: func(x *acting) {
		x.exec(x.h, "SELECT pg_sleep(0.004)")
	}},
	{name: "raw", run: func(x *acting) {
		h, ok := x.h.(sqlHandle)
		if !ok {
			return
		}
		c, err := h.db.Conn(x.ctx)
		x.must(err)
		defer c.Close()
		id := x.id()
		insert := func(dc driver.Conn) error {
			_, err := dc.(driver.ExecerContext).ExecContext(x.ctx, "INSERT INTO writes (id) VALUES ($1)", []driver.NamedValue{{Ordinal: 1, Value: id}})
			return err
		}
		if x.ours() {
			err = pooldriver.Raw(x.ctx, c, insert)
		} else {
			err = c.Raw(func(dc any) error { return insert(dc.(driver.Conn)) })
		}
		x.must(err)
		x.fates[id] = stored
		x.must(c.Close())
		x.see()
	}},
	{name: "notify", run: func(x *acting) {
		if x.ours() && !x.listens {
			return
		}
		id := x.id()
		heard := make(chan string, 1)
		if x.ours() {
			x.hears.Store(id, heard)
			defer x.hears.Delete(id)
		} else {
			heard <- "1" // a notification comes after its commit
		}
		tx := x.begin(x.h)
		defer leave(x, tx)
		x.exec(tx, "INSERT INTO writes (id) VALUES ($1)", id)
		x.exec(tx, "SELECT pg_notify('news', $1)", fmt.Sprint(id))
		x.finish(tx, true, id)
		waits := 200 * time.Millisecond
		if x.ours() && !x.rough() {
			waits = x.patience(10 * time.Second)
		}
		select {
		case n := <-heard:
			if x.rough() && n != "1" {
				x.end = lost
				return
			}
			x.tell("the listener sees %s", n)
		case <-time.After(waits):
			if x.end = lost; !x.rough() {
				x.tell("nothing was heard")
			}
		}
	}, where: []string{"place=plain|database"}},
	{name: "two connectors", mariaDB: true, often: 3, run: func(x *acting) {
		// One context, which reads by each Connector what it has written by the other.
		first, second := x.h, x.h
		if x.ours() {
			second = x.second
		}
		if x.chance() {
			first, second = second, first
		}
		x.insert(first)
		n, tenants := x.mine(second)
		x.tellOwn("the second sees %d of %q", n, tenants)
		x.count2()
	}, where: []string{"second=same"},
		// replicas.md: each Connector has an implicit task of its own.
		but: []string{"reads=off task=implicit replicas=explicit|tx|auto"}},
	{name: "two databases", mariaDB: true, often: 3, run: func(x *acting) {
		there := x.h
		if x.ours() {
			there = x.second
		}
		x.insert(x.h)
		b := x.id()
		delete(x.fates, b)
		b = -b // the bare driver has only one database
		x.exec(there, "INSERT INTO writes (id) VALUES ($1)", b)
		x.fates[b], x.elsewhere[b] = stored, true
		x.see()
		var n int
		x.ask(there, []any{&n}, "SELECT count(*) FROM writes WHERE id = $1", b)
		x.tellOwn("sees %d there", n)
		x.count2()
	}, where: []string{"second=other"}},
	{name: "mix", mariaDB: true, often: 1, run: func(x *acting) {
		// What hardly another act has together: a second Connector, both kinds of transactions, and readers beside each other.
		if x.ours() && !x.in("second=none") {
			x.ask(x.second, []any{new(int)}, "SELECT count(*) FROM writes")
			x.count2()
		}
		reading := x.beginWith(x.h, sql.TxOptions{ReadOnly: true}) // before the context has written
		defer leave(x, reading)
		n, _ := x.mine(reading)
		x.tellOwn("read only: %d", n)
		if x.in("replicas=tx") {
			time.Sleep(12 * time.Millisecond) // look sees it
		}
		x.finish(reading, true)
		tx := x.begin(x.h)
		defer leave(x, tx)
		x.finish(tx, true, x.insert(tx))
		x.crowd(5, func(int) error {
			for range 3 {
				if err := one(x.plain, x.h, "SELECT 1", nil, new(int)); err != nil {
					return err
				}
			}
			return nil
		})
		x.see()
	}},
	{name: "late transaction", run: func(x *acting) {
		// A transaction of a lent connection ends with the loan, however it was made.
		if _, ok := x.h.(pgxHandle); !ok {
			return
		}
		c := x.conn()
		defer c.close()
		if x.r.IntN(4) > 0 {
			own := c.(*pgxConn).own()
			if own == nil {
				x.must(errLost)
			}
			_ = own.TypeMap()
		}
		tx := x.begin(c)
		id := x.id()
		x.exec(tx, "INSERT INTO writes (id) VALUES ($1)", id)
		x.decide(absent, id)
		x.release(c)
		delete(x.held, tx)
		x.insert(x.h) // another borrower
		commits, err := x.r.IntN(4) > 0, errLost
		if x.ours() { // a bare connection is being closed meanwhile, and may not be used
			err = tx.end(x.ctx, commits)
		}
		x.tell("ended late without an error: %v", err == nil)
		x.see()
	}, but: []string{"place=handle task=explicit"}},
	{name: "watched", mariaDB: true, run: func(x *acting) {
		// Holders tells who has what.
		tx := x.begin(x.h)
		defer leave(x, tx)
		n := 1 + x.r.IntN(3)
		var ids []int64
		for range n {
			ids = append(ids, x.insert(tx))
		}
		if x.ours() && x.cfg.has("place=plain|database|wrap") {
			mine := 0
			for _, h := range x.connector.Holders() {
				if h.Label == x.label() && h.Pin == pooldriver.PinTransaction && !h.Replica && h.Statements >= uint64(n) && strings.HasPrefix(h.Statement, "INSERT INTO writes") {
					mine++
				}
			}
			if mine != 1 && !x.rough() {
				x.fault(x, "figures", "Holders shows the transaction %d times: %s", mine, holders(x.connector))
			}
		}
		x.finish(tx, true, ids...)
	}},
}

// count2 counts an act over two Connectors.
func (x *acting) count2() {
	if x.ours() {
		x.tally().second.Add(1)
	}
}

func (x *acting) tenantsIn() bool { return x.tenant != "" }

// crowd calls fn in n goroutines. The act ends with one of their errors; refusals are the least of them. Before, there is a
// statement with the act's own context: who waits has a task and settings, those in a pipeline have none.
func (x *acting) crowd(n int, fn func(g int) error) {
	x.insert(x.h)
	results := make(chan error)
	for g := range n {
		go func() { results <- fn(g) }()
	}
	var refusal, other error
	for range n {
		err := <-results
		switch {
		case !x.ours() || !errors.Is(err, pooldriver.ErrOverloaded):
			other = cmp.Or(other, err)
		default:
			if x.refusals.Add(1); x.low {
				x.tally().refusedLow.Add(1)
			}
			refusal = err
		}
	}
	if other == nil && refusal != nil {
		x.refusals.Add(-1) // must counts it
	}
	x.must(cmp.Or(other, refusal))
}

// asked is what the argument with a number does when its Value is asked.
type asked struct {
	x            *acting
	ctx          context.Context
	asks, panics bool
	goroutine    string // that executes the statement
	done         atomic.Bool
	err          error
}

var (
	numbers atomic.Int64
	askedBy sync.Map // of numbers to *asked
)

// number is an argument that runs code, which may ask the database, or panic. It has no memory of the program's: a pipeline
// may take it along.
type number int64

func newNumber(v *asked) number {
	n := number(numbers.Add(1))
	v.goroutine = goroutine()
	askedBy.Store(n, v)
	return n
}

// call executes a statement with the number as its argument, and returns what fn returns.
func (n number) call(fn func() error) (err error) {
	of, _ := askedBy.Load(n)
	v := of.(*asked)
	defer func() {
		v.done.Store(true)
		if r := recover(); r != nil && r != n {
			err = fmt.Errorf("the panic of another: %v", r)
		}
		err = errors.Join(err, v.err)
	}()
	return fn()
}

func (n number) Value() (driver.Value, error) {
	of, _ := askedBy.Load(n)
	v := of.(*asked)
	if g := goroutine(); v.x.ours() && g != v.goroutine {
		v.x.fault(v.x, "code of the program in another goroutine", "%s", debug.Stack())
	}
	if v.x.ours() && v.done.Load() {
		v.x.fault(v.x, "code of the program after its call", "%s", debug.Stack())
	}
	if v.panics {
		panic(n)
	}
	answer := int64(41)
	if v.asks && (!v.x.ours() || v.x.asking.TryLock()) {
		if v.x.ours() {
			defer v.x.asking.Unlock()
		}
		v.err = one(v.ctx, v.x.h, "SELECT 41", nil, &answer)
		if v.x.ours() && errors.Is(v.err, pooldriver.ErrOverloaded) {
			v.x.refusals.Add(1)
			v.err = nil
		}
		if v.x.rough() {
			v.err = nil
		}
	}
	return answer, nil
}

func goroutine() string {
	var buffer [40]byte
	text, _, _ := strings.Cut(string(buffer[:runtime.Stack(buffer[:], false)]), " [")
	return text
}
