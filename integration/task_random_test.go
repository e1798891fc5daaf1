package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// fate is what the program was told about a row.
type fate int

const (
	absent fate = iota // never committed
	stored             // committed, and success reported
	unsure             // an error where the outcome is open
)

// fates keeps account of all rows that were ever inserted.
type fates struct {
	mu     sync.Mutex // protects following fields
	rows   []fate
	by     []*diary // who has inserted each
	groups [][]int  // of transactions whose commit failed: all of it or nothing
}

func (f *fates) add(by *diary) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.rows, f.by = append(f.rows, absent), append(f.by, by)
	return len(f.rows) - 1
}

// diary is what a task has done. Seeds do not bring back what servers and
// schedulers do.
type diary struct {
	mu    sync.Mutex // protects lines
	lines []string
}

func (d *diary) note(what string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lines = append(d.lines, fmt.Sprintf("%s: %v", what, err))
}

func (d *diary) String() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return strings.Join(d.lines, "\n")
}

func (f *fates) settle(to fate, ids ...int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, id := range ids {
		f.rows[id] = to
	}
}

func (f *fates) allOrNothing(ids []int) {
	f.settle(unsure, ids...)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.groups = append(f.groups, ids)
}

// varied reports whether some rows were stored and some were not. Nothing is under way.
func (f *fates) varied() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Contains(f.rows, stored) && slices.Contains(f.rows, absent)
}

// check compares the account with what is stored.
func (f *fates) check(t *testing.T, ids []int) {
	t.Helper()
	f.mu.Lock()
	defer f.mu.Unlock()
	times := make(map[int]int)
	for _, id := range ids {
		times[id]++
	}
	told := map[fate]int{}
	for id, fate := range f.rows {
		told[fate]++
		switch fate {
		case stored:
			require.Equal(t, 1, times[id], "row %d was reported as committed:\n%s", id, f.by[id])
		case absent:
			require.Zero(t, times[id], "row %d was not committed:\n%s", id, f.by[id])
		case unsure:
			require.LessOrEqual(t, times[id], 1, "row %d is there twice:\n%s", id, f.by[id])
		}
	}
	for _, group := range f.groups {
		for _, id := range group {
			require.Equal(t, times[group[0]], times[id], "one transaction: %v", group)
		}
	}
	t.Logf("rows: %d stored, %d absent, %d unsure, %d open commits", told[stored], told[absent], told[unsure], len(f.groups))
	require.Positive(t, told[stored])
	require.Positive(t, told[absent])
}

// level is an open transaction or savepoint of an actor's.
type level struct {
	tx            *sql.Tx // nil: a BEGIN by statement
	ids, doubtful []int   // rows inserted; rows whose insertion failed
}

// actor is a task that does things at random and remembers what it was told.
type actor struct {
	*testing.T
	stagePool
	*fates
	diary  *diary
	shared *sql.Stmt // prepared without a task
	random *rand.Rand
	number int
	ctx    context.Context
	levels []level
	tenant bool // it has set the variable to its number
	adrift bool // its COMMIT or ROLLBACK by statement has failed: what follows may be in the transaction
	conns  []*sql.Conn
	drop   []func() error // what it still holds
}

// act does a few things. Errors are the world's: what matters is what is
// believed after them.
func (a *actor) act() {
	for range 3 + a.random.IntN(12) {
		switch choice := a.random.IntN(100); {
		case choice < 35:
			a.insert()
		case choice < 45:
			a.begin()
		case choice < 60:
			a.finish()
		case choice < 66:
			a.set()
		case choice < 72:
			a.look()
		case choice < 76:
			a.exec(a.say("CREATE TEMP TABLE IF NOT EXISTS left_behind (id integer)",
				"CREATE TEMPORARY TABLE IF NOT EXISTS left_behind (id integer)", "CREATE TEMP TABLE IF NOT EXISTS left_behind (id integer)"))
		case choice < 80:
			a.exec(a.say(fmt.Sprintf("SELECT pg_advisory_lock(%d)", a.number),
				fmt.Sprintf("DO GET_LOCK(CONCAT(DATABASE(), '.%d'), 0)", a.number), "SELECT 1"))
		case choice < 86:
			if rows, err := a.QueryContext(a.ctx, someRows); a.told("rows", err) {
				rows.Next()
				a.drop = append(a.drop, rows.Close)
			}
		case choice < 90:
			if conn, err := a.Conn(a.ctx); a.told("Conn", err) {
				a.told("Conn.Ping", conn.PingContext(a.ctx))
				a.conns = append(a.conns, conn)
			}
		case choice < 94:
			a.insertInParallel()
		case choice < 97 && a.name != "sqlite":
			impatient, cancel := context.WithTimeout(a.ctx, time.Duration(a.random.IntN(5))*time.Millisecond)
			_, err := a.ExecContext(impatient, sleepFor(a.account.Server.Engine, 4*time.Millisecond))
			a.told("impatience", err)
			cancel()
			a.doubt()
		case choice == 99 && a.name != "sqlite":
			if ids, err := a.backends(context.Background()); a.told("kill", err) && len(ids) > 0 {
				_ = a.terminate(ids[a.random.IntN(len(ids))]) // It may be gone.
			}
		}
	}
}

// told reports success. What must not happen to a task is a failure here.
func (a *actor) told(what string, err error) bool {
	a.diary.note(what, err)
	if errors.Is(err, pooldriver.ErrDeadlock) || errors.Is(err, pooldriver.ErrNestedBuffer) {
		a.T.Errorf("actor %d:\n%s", a.number, a.diary)
	}
	return err == nil
}

func (a *actor) exec(statement string) bool {
	_, err := a.ExecContext(a.ctx, statement)
	if !a.told(statement, err) {
		a.doubt()
	}
	return err == nil
}

// doubt is called after an error: PostgreSQL then answers COMMIT by a rollback,
// which only a Tx reports, not a COMMIT by statement.
func (a *actor) doubt() {
	if a.name != "postgres" || len(a.levels) == 0 || a.levels[0].tx != nil {
		return
	}
	for i := range a.levels {
		a.levels[i].doubtful = append(a.levels[i].doubtful, a.levels[i].ids...)
		a.levels[i].ids = nil
	}
}

// insertBy inserts a row through a handle chosen at random.
func (a *actor) insertBy(choice, id int) error {
	var err error
	switch {
	case choice == 0:
		_, err = a.ExecContext(a.ctx, insertWithArgumentOn(a.name), id)
	case choice == 1:
		_, err = a.shared.ExecContext(a.ctx, id)
	case choice == 2:
		var stmt *sql.Stmt
		if stmt, err = a.PrepareContext(a.ctx, insertWithArgumentOn(a.name)); err == nil {
			_, err = stmt.ExecContext(a.ctx, id)
			a.drop = append(a.drop, stmt.Close)
		}
	case choice == 3 && len(a.conns) > 0:
		_, err = a.conns[0].ExecContext(a.ctx, insertInto(id))
	case choice == 4 && len(a.levels) > 0 && a.levels[len(a.levels)-1].tx != nil:
		_, err = a.levels[len(a.levels)-1].tx.ExecContext(a.ctx, insertInto(id))
	default:
		_, err = a.ExecContext(a.ctx, insertInto(id))
	}
	return err
}

func insertWithArgumentOn(name string) string {
	if name == "postgres" {
		return insertWithArgument(testbed.Postgres)
	}
	return insertWithArgument(testbed.MySQL)
}

func (a *actor) insert() {
	id := a.add(a.diary)
	a.inserted(id, a.insertBy(a.random.IntN(6), id))
}

func (a *actor) inserted(id int, err error) {
	ok := a.told(insertInto(id), err)
	switch n := len(a.levels) - 1; {
	case n < 0 && ok && !a.adrift:
		a.settle(stored, id)
	case n < 0 && !errors.Is(err, pooldriver.ErrTaskEnded):
		a.settle(unsure, id)
	case n >= 0 && ok:
		a.levels[n].ids = append(a.levels[n].ids, id)
	case n >= 0:
		a.levels[n].doubtful = append(a.levels[n].doubtful, id)
		a.doubt()
	}
}

func (a *actor) insertInParallel() {
	ids, errs := make([]int, 3), make([]error, 3)
	var all sync.WaitGroup
	for i := range ids {
		ids[i] = a.add(a.diary)
		all.Go(func() { _, errs[i] = a.ExecContext(a.ctx, insertInto(ids[i])) })
	}
	all.Wait()
	for i, id := range ids {
		a.inserted(id, errs[i])
	}
}

func (a *actor) begin() {
	if len(a.levels) == 4 {
		return
	}
	if len(a.levels) == 0 && a.random.IntN(3) == 0 {
		if a.exec("BEGIN") {
			a.levels = append(a.levels, level{})
		}
		return
	}
	if tx, err := a.BeginTx(a.ctx, nil); a.told("BeginTx", err) {
		a.levels = append(a.levels, level{tx: tx})
		a.drop = append(a.drop, tx.Rollback)
	}
}

// finish commits or rolls back the innermost level.
func (a *actor) finish() {
	n := len(a.levels) - 1
	if n < 0 {
		return
	}
	top := a.levels[n]
	commit, rollback := func() error { return top.tx.Commit() }, func() error { return top.tx.Rollback() }
	if top.tx == nil {
		commit = func() error { _, err := a.ExecContext(a.ctx, "COMMIT"); return err }
		rollback = func() error { _, err := a.ExecContext(a.ctx, "ROLLBACK"); return err }
	}
	if a.random.IntN(3) == 0 {
		ok := a.told("rollback", rollback())
		a.adrift = a.adrift || !ok && top.tx == nil
		if a.levels = a.levels[:n]; !ok && n > 0 {
			a.levels[n-1].doubtful = append(a.levels[n-1].doubtful, append(top.ids, top.doubtful...)...)
			a.doubt()
		}
		return
	}
	ok := a.told("commit", commit())
	a.adrift = a.adrift || !ok && top.tx == nil
	a.levels = a.levels[:n]
	switch {
	case n > 0:
		outer := &a.levels[n-1]
		outer.doubtful = append(outer.doubtful, top.doubtful...)
		if ok {
			outer.ids = append(outer.ids, top.ids...)
		} else {
			outer.doubtful = append(outer.doubtful, top.ids...)
			a.doubt()
		}
	case ok:
		a.settle(stored, top.ids...)
		a.settle(unsure, top.doubtful...)
	default:
		a.settle(unsure, top.doubtful...)
		a.allOrNothing(top.ids)
	}
}

// set changes the session. In a transaction the change would go with it.
func (a *actor) set() {
	if a.name != "sqlite" && len(a.levels) == 0 && a.exec(a.setTenant(a.number)) {
		a.tenant = true
	}
}

// look requires that the session is the actor's own, or an error.
func (a *actor) look() {
	if a.name == "sqlite" {
		return
	}
	var seen sql.NullString
	err := a.QueryRowContext(a.ctx, a.askTenant()).Scan(&seen)
	if !a.told("look", err) {
		a.doubt()
		return
	}
	if want := fmt.Sprint(a.number); seen.Valid != a.tenant || seen.Valid && seen.String != want {
		a.T.Errorf("actor %d, which has set its variable: %t, sees %+v:\n%s", a.number, a.tenant, seen, a.diary)
	}
}
