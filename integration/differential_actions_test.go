package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver"
)

// do executes an action in the task that the program asks for.
func (x *execution) do(a action) {
	ctx := x.Context()
	if x.ours {
		ctx = pooldriver.WithReads(ctx)
		switch x.tasks {
		case "implicit":
			ctx = pooldriver.WithReads(x.request)
		case "explicit":
			task, end := pooldriver.WithTask(ctx)
			defer end()
			ctx = task
		}
	}
	x.alone(ctx, a)
	var both sync.WaitGroup
	if a.together {
		both.Go(func() { x.doIn(ctx, a) })
	}
	x.doIn(ctx, a)
	both.Wait()
}

func (x *execution) doIn(ctx context.Context, a action) {
	switch a.kind {
	case "write":
		x.write(ctx, a, x.db, x.own)
	case "prepared":
		x.prepared(ctx, a)
	case "conn", "first rows", "temporary", "last id", "lock", "by hand":
		x.onConn(ctx, a)
	case "returning":
		x.returning(ctx, a, x.db)
	case "crowd":
		x.crowd(a)
	case "own reads":
		x.ownReads(ctx, a)
	case "tx":
		x.inTx(ctx, a)
	case "hot row":
		x.onHotRow(ctx, a)
	case "nested", "slow rows":
		x.reading(ctx, a, x.db)
	case "begin on db":
		x.beginOnDB(ctx, a)
	case "flush":
		if x.ours {
			x.connector.Flush()
		}
	case "cancel":
		x.cancelled(ctx, a)
	case "kill":
		x.killOne(ctx)
	}
}

// killOne ends any session of the program's, as an administrator does.
func (x *execution) killOne(ctx context.Context) {
	if ids, err := x.backends(ctx); err == nil && len(ids) > 0 {
		_ = x.terminate(ids[0])
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
func (x *execution) write(ctx context.Context, a action, to querier, schema string) (id int64, ok bool) {
	id = x.ids.Add(1)
	x.record(a, id, schema, unsure)
	if !x.changesOne(ctx, a, to, fmt.Sprintf("INSERT INTO writes VALUES (%d)", id)) {
		return id, false
	}
	x.record(a, id, schema, stored)
	return id, true
}

// changesOne executes a text that changes one row, and asks for the answer.
func (x *execution) changesOne(ctx context.Context, a action, to querier, text string) bool {
	res, err := to.ExecContext(ctx, text)
	return x.expect(a, err) && x.isOne(a, res)
}

// isOne asks a result, as a program does.
func (x *execution) isOne(a action, res sql.Result) bool {
	n, err := res.RowsAffected()
	if x.say("postgres", "") == "" {
		_, more := res.LastInsertId()
		err = errors.Join(err, more)
	}
	if x.expect(a, err) && n != 1 {
		x.fail(a, "%d rows were affected", n)
	}
	return err == nil
}

// prepared writes by a statement that is prepared once.
func (x *execution) prepared(ctx context.Context, a action) {
	stmt, err := x.db.PrepareContext(ctx, x.say("INSERT INTO writes VALUES ($1)", "INSERT INTO writes VALUES (?)"))
	if !x.expect(a, err) {
		return
	}
	defer stmt.Close()
	for range a.writes {
		id := x.ids.Add(1)
		x.record(a, id, x.own, unsure)
		if res, err := stmt.ExecContext(ctx, id); x.expect(a, err) && x.isOne(a, res) {
			x.record(a, id, x.own, stored)
		}
	}
}

// temporary makes a temporary table, which fails where there is one of a stranger.
func (x *execution) temporary(ctx context.Context, a action, conn *sql.Conn) {
	if !x.allExec(ctx, a, conn, "CREATE TEMPORARY TABLE scratch (id BIGINT)", "INSERT INTO scratch VALUES (1)") {
		return
	}
	var n int
	if x.expect(a, conn.QueryRowContext(ctx, "SELECT count(*) FROM scratch").Scan(&n)) && n != 1 {
		x.fail(a, "%d rows in its temporary table", n)
	}
	if !x.ours || !a.untidy {
		x.allExec(ctx, a, conn, "DROP TABLE scratch")
	}
}

// lastID inserts a row whose number the server gives, and asks for the number after it.
func (x *execution) lastID(ctx context.Context, a action, conn *sql.Conn) {
	id := x.ids.Add(1)
	insert := fmt.Sprintf("INSERT INTO numbered (id) VALUES (%d)", id)
	if x.returns {
		rows, err := conn.QueryContext(ctx, insert+" RETURNING n")
		if !x.expect(a, err) || !x.drain(a, rows, nil) {
			return
		}
	} else if !x.allExec(ctx, a, conn, insert) {
		return
	}
	var last, mine int64
	if !x.expect(a, conn.QueryRowContext(ctx, x.say("SELECT lastval()", "SELECT LAST_INSERT_ID()")).Scan(&last)) ||
		!x.expect(a, conn.QueryRowContext(ctx, fmt.Sprintf("SELECT n FROM numbered WHERE id = %d", id)).Scan(&mine)) {
		return
	}
	if last != mine {
		x.fail(a, "the last number is said to be %d and is %d", last, mine)
	}
}

// crowd are readers without a task: they travel together. They see their own schema, nothing that others have set,
// and what was stored before.
func (x *execution) crowd(a action) {
	text := x.say("SELECT coalesce(current_setting('app.who', true), ''), current_schema(), count(*) FROM writes WHERE id = $1", "SELECT coalesce(@who, ''), DATABASE(), count(*) FROM writes WHERE id = ?")
	around := x.Context()
	if x.ours {
		around = pooldriver.WithReads(around)
	}
	id, ok := x.write(around, a, x.db, x.own)
	var all sync.WaitGroup
	for range 16 {
		all.Go(func() {
			for range 3 {
				ctx, cancel := around, func() {}
				if x.rough && a.slow {
					ctx, cancel = context.WithTimeout(ctx, time.Duration(rand.N(5000))*time.Microsecond)
				}
				var who, schema string
				var n int
				err := x.db.QueryRowContext(ctx, text, id).Scan(&who, &schema, &n)
				cancel()
				if x.expect(a, err) && (who != "" || schema != x.own || ok && n != 1) {
					x.fail(a, "sees %d writes in %s, and %q of a stranger", n, schema, who)
				}
			}
		})
	}
	all.Wait()
}

// returning inserts rows that are returned and read slowly.
func (x *execution) returning(ctx context.Context, a action, from querier) {
	if !x.returns {
		return
	}
	last := x.ids.Add(2)
	ids := []int64{last - 1, last}
	x.recordAll(a, ids, unsure)
	rows, err := from.QueryContext(ctx, fmt.Sprintf("INSERT INTO writes VALUES (%d), (%d) RETURNING id", last-1, last))
	if !x.expect(a, err) || !x.drain(a, rows, nil) {
		return
	}
	x.recordAll(a, ids, stored)
}

// drain reads rows to their end, slowly where a says so, and calls each for every row.
func (x *execution) drain(a action, rows *sql.Rows, each func()) bool {
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
func (x *execution) reading(ctx context.Context, a action, from querier) {
	rows, err := from.QueryContext(ctx, "SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3")
	if !x.expect(a, err) {
		return
	}
	var each func()
	if a.kind == "nested" {
		each = func() { x.write(ctx, a, x.db, x.own) }
	}
	x.drain(a, rows, each)
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
	case "temporary":
		x.temporary(ctx, a, conn)
	case "last id":
		x.lastID(ctx, a, conn)
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
func (x *execution) allExec(ctx context.Context, a action, on querier, texts ...string) bool {
	for _, text := range texts {
		if _, err := on.ExecContext(ctx, text); !x.expect(a, err) {
			return false
		}
	}
	return true
}

// locked is in a section that a lock of the session guards.
func (x *execution) locked(ctx context.Context, a action, conn *sql.Conn) {
	var got int
	if !x.expect(a, conn.QueryRowContext(ctx, x.say("SELECT 1 FROM pg_advisory_lock(4711)", "SELECT GET_LOCK('"+x.own+"', 30)")).Scan(&got)) {
		return
	}
	if got != 1 {
		x.fail(a, "the lock was not had")
		return
	}
	if n := x.inside.Add(1); n != 1 && !(x.rough && x.kills) {
		x.fail(a, "%d are in the section that a lock guards", n)
	}
	x.write(ctx, a, conn, x.own)
	time.Sleep(time.Millisecond)
	x.inside.Add(-1)
	if !x.ours || !a.untidy {
		x.allExec(ctx, a, conn, x.say("SELECT pg_advisory_unlock(4711)", "DO RELEASE_LOCK('"+x.own+"')"))
	}
}

// writeInTx makes a's writes, whose fate the end of the transaction decides.
func (x *execution) writeInTx(ctx context.Context, a action, to querier) (ids []int64, ok bool) {
	for range a.writes {
		id, ok := x.write(ctx, a, to, x.own)
		x.record(a, id, x.own, unsure)
		ids = append(ids, id)
		if !ok {
			return ids, false
		}
	}
	return ids, true
}

func (x *execution) recordAll(a action, ids []int64, f fate) {
	for _, id := range ids {
		x.record(a, id, x.own, f)
	}
}

// beginOnDB begins a transaction on the *sql.DB, which only an explicit task has a session
// for.
func (x *execution) beginOnDB(ctx context.Context, a action) {
	switch {
	case !x.ours: // the next statement of anybody may run in it
	case x.ambient == pooldriver.AmbientStrict: // keeps its own statements out of it
	case x.tasks == "explicit":
		a.untidy = false
		x.byHand(ctx, a, x.db)
	default:
		x.allExec(ctx, a, x.db, "BEGIN") // ends with its statement
	}
}

// byHand begins a transaction by a text.
func (x *execution) byHand(ctx context.Context, a action, on querier) {
	if !x.allExec(ctx, a, on, "BEGIN") {
		return
	}
	ids, ok := x.writeInTx(ctx, a, on)
	if !ok {
		return
	}
	last, f := "ROLLBACK", absent
	if a.commits {
		last, f = "COMMIT", stored
	}
	left := !a.commits && a.untidy && x.ours && x.tasks != "explicit" // Close rolls back
	if !left && !x.allExec(ctx, a, on, last) {
		return
	}
	x.recordAll(a, ids, f)
}

// inTx writes in a transaction, and reads rows slowly in it.
func (x *execution) inTx(ctx context.Context, a action) {
	tx, err := x.db.BeginTx(ctx, nil)
	if !x.expect(a, err) {
		return
	}
	defer func() { _ = tx.Rollback() }()
	ids, ok := x.writeInTx(ctx, a, tx)
	if !ok {
		return
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
	x.recordAll(a, ids, f)
}

// onHotRow changes a row that others change, too. While it has the row, it calls what takes the lock of a
// virtual connection in database/sql: it asks results, closes a statement, and has another goroutine
// close its rows. In an explicit task of ours the statements are those of the *sql.DB.
func (x *execution) onHotRow(ctx context.Context, a action) {
	tx, err := x.db.BeginTx(ctx, nil)
	if !x.expect(a, err) {
		return
	}
	defer func() { _ = tx.Rollback() }()
	var via interface {
		querier
		PrepareContext(context.Context, string) (*sql.Stmt, error)
	} = tx
	if x.ours && x.tasks == "explicit" && x.ambient != pooldriver.AmbientStrict {
		via = x.db
	}
	const change = "UPDATE hot SET n = n + 1"
	stmt, err := via.PrepareContext(ctx, change)
	if !x.expect(a, err) {
		return
	}
	byStmt, err := stmt.ExecContext(ctx)
	if !x.expect(a, err) {
		return
	}
	rows, err := via.QueryContext(ctx, "SELECT 1 UNION ALL SELECT 2 UNION ALL SELECT 3")
	if !x.expect(a, err) {
		return
	}
	closed := make(chan error, 1)
	go func() { closed <- rows.Close() }()
	for rows.Next() { // until it is closed
	}
	if !x.expect(a, rows.Err()) || !x.expect(a, <-closed) {
		return
	}
	byText, err := via.ExecContext(ctx, change)
	if !x.expect(a, err) {
		return
	}
	time.Sleep(5 * time.Millisecond) // others come and want the row
	if !x.isOne(a, byText) || !x.isOne(a, byStmt) || !x.expect(a, stmt.Close()) {
		return
	}
	end := tx.Rollback
	if a.commits {
		end = tx.Commit
	}
	if x.expect(a, end()) && a.commits {
		x.hot.Add(2)
	}
}

// cancelled writes in a statement whose context may end before it.
func (x *execution) cancelled(ctx context.Context, a action) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(a.writes)*2*time.Millisecond)
	defer cancel()
	x.write(ctx, a, x.db, x.own)
	_, _ = x.db.ExecContext(ctx, x.say("SELECT pg_sleep(0.05)", "DO SLEEP(0.05)"))
}

// ownReads writes, and reads that on a replica, where there is one: in the same context, or in one that has its token.
func (x *execution) ownReads(ctx context.Context, a action) {
	for range a.writes {
		id, ok := x.write(ctx, a, x.db, x.own)
		if !ok {
			return
		}
		reader := ctx
		if x.ours && a.elsewhere {
			reader = pooldriver.WithToken(x.Context(), pooldriver.Token(ctx))
		}
		if x.ours {
			reader = pooldriver.Replica(reader)
		}
		if n, err := x.count(reader, a, id); x.expect(a, err) && n != 1 {
			x.fail(a, "%d rows of its own write %d", n, id)
		}
	}
}

// count reads a write, in a transaction if a commits.
func (x *execution) count(ctx context.Context, a action, id int64) (n int, err error) {
	text := fmt.Sprintf("SELECT count(*) FROM writes WHERE id = %d", id)
	if !a.commits {
		return n, x.db.QueryRowContext(ctx, text).Scan(&n)
	}
	tx, err := x.db.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return 0, err
	}
	err = tx.QueryRowContext(ctx, text).Scan(&n)
	return n, errors.Join(err, tx.Commit())
}
