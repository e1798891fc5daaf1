package integration

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/pooldriver/pooldriver"
)

// runner is a *sql.DB, a *sql.Conn or a *sql.Tx.
type runner interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// do executes an action in the task that the program asks for.
func (x *execution) do(a action) {
	ctx := x.Context()
	if x.ours {
		switch x.tasks {
		case "implicit":
			ctx = x.request
		case "explicit":
			task, end := pooldriver.WithTask(ctx)
			defer end()
			ctx = task
		}
	}
	x.alone(ctx, a)
	switch a.kind {
	case "write":
		x.write(ctx, a, x.db, x.own)
	case "conn", "lock", "by hand", "first rows":
		x.onConn(ctx, a)
	case "returning":
		x.returning(ctx, a, x.db)
	case "tx":
		x.inTx(ctx, a)
	case "nested", "slow rows":
		x.reading(ctx, a, x.db)
	case "begin on db":
		if !x.ours {
			return // the next statement of anybody may run in it
		}
		if _, err := x.db.ExecContext(ctx, "BEGIN"); x.tasks != "explicit" && err == nil {
			x.fail(a, "BEGIN on a *sql.DB is served")
		}
	case "flush":
		if x.ours {
			x.connector.Flush()
		}
	case "cancel":
		x.cancelled(ctx, a)
	case "kill":
		x.kill(ctx)
	}
}

// kill ends any session of the program's, as an administrator does.
func (x *execution) kill(ctx context.Context) {
	var id int64
	one := x.say("SELECT pid FROM pg_stat_activity", "SELECT id FROM information_schema.processlist")
	of := x.say("usename", "user")
	if x.witness.QueryRowContext(ctx, fmt.Sprintf("%s WHERE %s = '%s' LIMIT 1", one, of, x.account.User)).Scan(&id) == nil {
		_, _ = x.witness.ExecContext(ctx, fmt.Sprintf(x.say("SELECT pg_terminate_backend(%d)", "KILL %d"), id))
	}
}

// alone: a statement sees its own schema, and nothing that others have set.
func (x *execution) alone(ctx context.Context, a action) {
	var who, schema string
	err := x.db.QueryRowContext(ctx, x.say("SELECT coalesce(current_setting('app.who', true), ''), current_schema()", "SELECT coalesce(@who, ''), DATABASE()")).Scan(&who, &schema)
	if x.expect(a, err) && (who != "" || schema != x.own) {
		x.fail(a, "sees %q of a stranger, in %s", who, schema)
	}
}

// write inserts a row whose table is named without its schema, and reports the id.
func (x *execution) write(ctx context.Context, a action, to runner, schema string) (id int64, ok bool) {
	id = x.ids.Add(1)
	x.record(a, id, schema, unsure)
	if _, err := to.ExecContext(ctx, fmt.Sprintf("INSERT INTO writes VALUES (%d)", id)); !x.expect(a, err) {
		return id, false
	}
	x.record(a, id, schema, stored)
	return id, true
}

// returning inserts rows that are returned and read slowly.
func (x *execution) returning(ctx context.Context, a action, from runner) {
	if !x.pg && !x.mariadb {
		return // MySQL has no RETURNING
	}
	first := x.ids.Add(2)
	for id := first - 1; id <= first; id++ {
		x.record(a, id, x.own, unsure)
	}
	rows, err := from.QueryContext(ctx, fmt.Sprintf("INSERT INTO writes VALUES (%d), (%d) RETURNING id", first-1, first))
	if !x.expect(a, err) || !x.drain(ctx, a, rows, nil) {
		return
	}
	for id := first - 1; id <= first; id++ {
		x.record(a, id, x.own, stored)
	}
}

// drain reads rows to their end, slowly where a says so, and calls each for every row.
func (x *execution) drain(_ context.Context, a action, rows *sql.Rows, each func()) bool {
	defer rows.Close()
	for rows.Next() {
		if a.slow {
			time.Sleep(30 * time.Millisecond)
		}
		if each != nil {
			each()
		}
	}
	return x.expect(a, rows.Err())
}

// reading reads rows, and writes inside of the loop where that is the action: over the bare
// driver on another connection.
func (x *execution) reading(ctx context.Context, a action, from runner) {
	rows, err := from.QueryContext(ctx, "SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3")
	if !x.expect(a, err) {
		return
	}
	var each func()
	if a.kind == "nested" {
		each = func() { x.write(ctx, a, x.db, x.own) }
	}
	x.drain(ctx, a, rows, each)
}

// onConn does something on a *sql.Conn of its own.
func (x *execution) onConn(ctx context.Context, a action) {
	conn, err := x.db.Conn(ctx)
	if !x.expect(a, err) {
		return
	}
	defer conn.Close()
	switch a.kind {
	case "conn":
		x.withState(ctx, a, conn)
	case "lock":
		x.locked(ctx, a, conn)
	case "first rows":
		x.returning(ctx, a, conn)
		x.withState(ctx, a, conn)
	default:
		x.byHand(ctx, a, conn)
	}
}

// withState sets a schema and a variable on a connection, and counts on them.
func (x *execution) withState(ctx context.Context, a action, conn *sql.Conn) {
	if !x.allExec(ctx, a, conn, x.say("SET search_path = ", "USE ")+x.schema(a), x.say("SET app.who = 'me'", "SET @who = 'me'")) {
		return
	}
	for range a.writes {
		if _, ok := x.write(ctx, a, conn, x.schema(a)); !ok {
			return
		}
	}
	var who string
	err := conn.QueryRowContext(ctx, x.say("SELECT current_setting('app.who')", "SELECT @who")).Scan(&who)
	if x.expect(a, err) && who != "me" {
		x.fail(a, "its own variable is %q", who)
	}
	if !x.ours || x.tasks == "explicit" || !a.untidy {
		x.allExec(ctx, a, conn, x.say("RESET search_path", "USE "+x.own), x.say("SET app.who = ''", "SET @who = NULL"))
	}
}

// allExec executes texts one after the other.
func (x *execution) allExec(ctx context.Context, a action, on runner, texts ...string) bool {
	for _, text := range texts {
		if _, err := on.ExecContext(ctx, text); !x.expect(a, err) {
			return false
		}
	}
	return true
}

// locked is in a section that a lock of the session guards.
func (x *execution) locked(ctx context.Context, a action, conn *sql.Conn) {
	if !x.allExec(ctx, a, conn, x.say("SELECT pg_advisory_lock(4711)", "DO GET_LOCK('"+x.own+"', 30)")) {
		return
	}
	if n := x.inside.Add(1); n != 1 && !x.rough {
		x.fail(a, "%d are in the section that a lock guards", n)
	}
	x.write(ctx, a, conn, x.own)
	time.Sleep(time.Millisecond)
	x.inside.Add(-1)
	if !x.ours || !a.untidy {
		x.allExec(ctx, a, conn, x.say("SELECT pg_advisory_unlock(4711)", "DO RELEASE_LOCK('"+x.own+"')"))
	}
}

// byHand begins a transaction by a text.
func (x *execution) byHand(ctx context.Context, a action, conn *sql.Conn) {
	if !x.allExec(ctx, a, conn, "BEGIN") {
		return
	}
	var ids []int64
	for range a.writes {
		id, ok := x.write(ctx, a, conn, x.own)
		x.record(a, id, x.own, unsure)
		ids = append(ids, id)
		if !ok {
			return
		}
	}
	last, f := "ROLLBACK", absent
	if a.commits {
		last, f = "COMMIT", stored
	}
	if last == "ROLLBACK" && a.untidy && x.ours && x.tasks != "explicit" {
		// Close rolls back.
	} else if !x.allExec(ctx, a, conn, last) {
		return
	}
	for _, id := range ids {
		x.record(a, id, x.own, f)
	}
}

// inTx writes in a transaction, and reads rows slowly in it.
func (x *execution) inTx(ctx context.Context, a action) {
	tx, err := x.db.BeginTx(ctx, nil)
	if !x.expect(a, err) {
		return
	}
	defer func() { _ = tx.Rollback() }()
	var ids []int64
	for range a.writes {
		id, ok := x.write(ctx, a, tx, x.own)
		x.record(a, id, x.own, unsure)
		ids = append(ids, id)
		if !ok {
			return
		}
	}
	slowly := a
	slowly.kind = "slow rows"
	x.reading(ctx, slowly, tx)
	end, f := tx.Rollback, absent
	if a.commits {
		end, f = tx.Commit, stored
	}
	if !x.expect(a, end()) {
		return
	}
	for _, id := range ids {
		x.record(a, id, x.own, f)
	}
}

// cancelled writes in a statement whose context may end before it.
func (x *execution) cancelled(ctx context.Context, a action) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(a.writes)*2*time.Millisecond)
	defer cancel()
	x.write(ctx, a, x.db, x.own)
	_, _ = x.db.ExecContext(ctx, x.say("SELECT pg_sleep(0.05)", "DO SLEEP(0.05)"))
}
