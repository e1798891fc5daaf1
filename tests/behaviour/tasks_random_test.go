package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
	"github.com/pooldriver/pooldriver/pool"
)

// belief is what a program takes a row for.
type belief int

const (
	pending belief = iota // in a transaction that is open
	stored                // committed, and it was told so
	absent                // it was told that it was not stored
	unsure                // an error where the outcome is open
)

// beliefs keeps account of all rows that were ever inserted.
type beliefs struct {
	mu   sync.Mutex // protects following fields
	rows []belief
}

func (b *beliefs) add() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.rows = append(b.rows, pending)
	return len(b.rows) - 1
}

func (b *beliefs) settle(to belief, ids ...int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range ids {
		if b.rows[id] == pending || to == unsure {
			b.rows[id] = to
		}
	}
}

// check compares the account with the table.
func (b *beliefs) check(t *testing.T, table [][]any) {
	t.Helper()
	times := make(map[int]int)
	for _, row := range table {
		times[int(row[0].(int64))]++
	}
	told := map[belief]int{}
	for id, believed := range b.rows {
		told[believed]++
		switch believed {
		case stored:
			require.Equal(t, 1, times[id], "row %d was reported as committed", id)
		case absent, pending:
			require.Zero(t, times[id], "row %d was not committed", id)
		case unsure:
			require.LessOrEqual(t, times[id], 1, "row %d is there twice", id)
		}
	}
	t.Logf("%d stored, %d absent, %d left pending, %d unsure", told[stored], told[absent], told[pending], told[unsure])
	require.NotZero(t, told[stored])
}

// opened is a transaction of an actor's: of BeginTx, or by hand where tx is nil.
type opened struct {
	tx  *sql.Tx
	ids []int
}

// actor is a task that does things at random, and keeps in mind what it was
// told. Errors are the world's: what matters is what is believed after them.
type actor struct {
	*testing.T
	*beliefs
	random *rand.Rand
	server *fakedb.Server
	db     *sql.DB
	shared *sql.Stmt
	ctx    context.Context
	number int

	open  []opened
	state bool // it has set the variable to its number
	lost  bool // it does not know any more where it stands
	conns []*sql.Conn
	rows  []*sql.Rows
	done  []string
}

const boom = "boom"

// guarded does something in which the driver may panic.
func (a *actor) guarded(name string, fn func() error) (err error) {
	a.done = append(a.done, name)
	err = errors.New("the driver panicked")
	defer func() {
		if p := recover(); p != nil && p != boom {
			panic(p)
		}
		if errors.Is(err, pooldriver.ErrDeadlock) || errors.Is(err, pooldriver.ErrNestedBuffer) || errors.As(err, new(*pool.AcquireError)) && name != "insert" && a.ctx.Err() == nil {
			a.Errorf("actor %d: %v\nafter %v", a.number, err, a.done)
		}
	}()
	return fn()
}

// patience is the task's context, now and then with an end of its own.
func (a *actor) patience() (context.Context, context.CancelFunc) {
	switch a.random.IntN(12) {
	case 0:
		ctx, cancel := context.WithCancel(a.ctx)
		cancel()
		return ctx, cancel
	case 1:
		return context.WithTimeout(a.ctx, time.Duration(a.random.IntN(1000))*time.Microsecond)
	}
	return a.ctx, func() {}
}

func (a *actor) top() *opened { return &a.open[len(a.open)-1] }

// insert inserts a row through some handle. It is the innermost transaction's,
// where one is open.
func (a *actor) insert() {
	id := a.add()
	ctx, cancel := a.patience()
	defer cancel()
	err := a.guarded("insert", func() error {
		const text = "INSERT INTO t VALUES (?)"
		switch choice := a.random.IntN(8); {
		case choice == 0:
			_, err := a.shared.ExecContext(ctx, id)
			return err
		case choice == 1:
			rows, err := a.db.QueryContext(ctx, text, id)
			if err == nil {
				err = rows.Close()
			}
			return err
		case choice == 2:
			conn, err := a.db.Conn(ctx)
			if err == nil {
				_, err = conn.ExecContext(ctx, text, id)
				_ = conn.Close()
			}
			return err
		case choice == 3 && len(a.conns) > 0:
			_, err := a.conns[a.random.IntN(len(a.conns))].ExecContext(ctx, text, id)
			return err
		case choice == 4 && len(a.open) > 0 && a.top().tx != nil:
			_, err := a.top().tx.ExecContext(ctx, text, id)
			return err
		case choice == 5 && len(a.open) == 0:
			return pooldriver.InTx(ctx, a.db, nil, func(ctx context.Context, tx *sql.Tx) error {
				_, err := a.db.ExecContext(ctx, text, id)
				return err
			})
		case choice == 6:
			stmt, err := a.db.PrepareContext(ctx, text)
			if err == nil {
				_, err = stmt.ExecContext(ctx, id)
				_ = stmt.Close()
			}
			return err
		}
		_, err := a.db.ExecContext(ctx, text, id)
		return err
	})
	switch {
	case err != nil:
		a.settle(unsure, id)
	case len(a.open) > 0:
		a.top().ids = append(a.top().ids, id)
	default:
		a.settle(stored, id)
	}
}

// begin begins a transaction or, inside one, a savepoint.
func (a *actor) begin() {
	switch {
	case len(a.open) == 3, len(a.open) > 0 && a.open[0].tx == nil:
	case len(a.open) == 0 && a.random.IntN(5) == 0:
		if err := a.guarded("BEGIN", func() error { return a.exec("BEGIN") }); err == nil {
			a.open = append(a.open, opened{})
		} else {
			a.lost = true
		}
	default:
		_ = a.guarded("begin", func() error {
			tx, err := a.db.BeginTx(a.ctx, nil)
			if err == nil {
				a.open = append(a.open, opened{tx: tx})
			}
			return err
		})
	}
}

func (a *actor) exec(statement string) error {
	_, err := a.db.ExecContext(a.ctx, statement)
	return err
}

// finish ends the innermost transaction.
func (a *actor) finish() {
	if len(a.open) == 0 {
		return
	}
	last, commit := *a.top(), a.random.IntN(3) > 0
	a.open = a.open[:len(a.open)-1]
	err := a.guarded("finish", func() error {
		switch {
		case last.tx == nil && commit:
			return a.exec("COMMIT")
		case last.tx == nil:
			return a.exec("ROLLBACK")
		case commit:
			return last.tx.Commit()
		}
		return last.tx.Rollback()
	})
	switch {
	case errors.Is(err, pooldriver.ErrTxLost):
		a.settle(absent, last.ids...)
	case err != nil:
		a.settle(unsure, last.ids...)
	case !commit:
		a.settle(absent, last.ids...)
	case len(a.open) > 0:
		a.top().ids = append(a.top().ids, last.ids...)
	default:
		a.settle(stored, last.ids...)
	}
	a.lost = a.lost || err != nil && last.tx == nil
}

// nest reads rows and, inside the loop, does other things.
func (a *actor) nest() {
	_ = a.guarded("nest", func() error {
		rows, err := a.db.QueryContext(a.ctx, "SELECT n FROM numbers LIMIT 5")
		if err != nil {
			return err
		}
		defer rows.Close()
		for n := 0; rows.Next(); n++ {
			var got int
			if err := rows.Scan(&got); err == nil && got != n {
				a.Errorf("actor %d: row %d is %d", a.number, n, got)
			}
			switch a.random.IntN(6) {
			case 0, 1:
				a.insert()
			case 2:
				a.look()
			}
		}
		return rows.Err()
	})
}

// set sets a variable of the session, look looks at it: it is the task's own, or
// nobody's.
func (a *actor) set() {
	err := a.guarded("set", func() error { return a.exec(fmt.Sprintf("SET a = %d", a.number)) })
	if err == nil {
		a.state = true
	} else if !a.state {
		a.lost = true // it may be set or not
	}
}

func (a *actor) look() {
	_ = a.guarded("look", func() error {
		var v any
		if err := a.db.QueryRowContext(a.ctx, "SHOW a").Scan(&v); err != nil {
			return err
		}
		if a.state && v != int64(a.number) || !a.state && v != nil {
			a.Errorf("actor %d, state %v: the session has %v\nafter %v", a.number, a.state, v, a.done)
		}
		return nil
	})
}

// parallel runs clean statements at the same time.
func (a *actor) parallel() {
	a.done = append(a.done, "parallel")
	var wg sync.WaitGroup
	for range 3 {
		wg.Go(func() {
			defer func() { _ = recover() }()
			var n int
			_ = a.db.QueryRowContext(a.ctx, "SELECT 1").Scan(&n)
		})
	}
	wg.Wait()
}

// fault makes something go wrong for whoever comes next.
func (a *actor) fault() {
	f := fakedb.Fault{Skip: a.random.IntN(3)}
	calls := []fakedb.Call{fakedb.ConnExecCtx, fakedb.ConnQueryCtx, fakedb.ConnPrepareCtx, fakedb.ConnBeginCtx, fakedb.StmtExecCtx}
	quiet := []fakedb.Call{fakedb.ConnPing, fakedb.Connect, fakedb.RowsNext, fakedb.RowsClose, fakedb.TxCommit, fakedb.TxRollback, fakedb.ConnReset}
	switch a.random.IntN(4) {
	case 0:
		f.Panic = boom
	case 1:
		f.Err, f.Kill = driver.ErrBadConn, true
		calls = append(calls, quiet...)
	case 2:
		f.Err = errors.New("fault")
		calls = append(calls, quiet...)
	case 3:
		if sessions := a.server.State().Sessions; len(sessions) > 0 {
			a.server.Kill(sessions[a.random.IntN(len(sessions))].ID)
		}
		return
	}
	f.Call = calls[a.random.IntN(len(calls))]
	if f.Call == fakedb.ConnExecCtx {
		f.Text = "INSERT" // not what database/sql rolls back in a goroutine of its own
	}
	a.server.Inject(f)
}

// act does one thing.
func (a *actor) act() {
	switch choice := a.random.IntN(100); {
	case choice < 35:
		a.insert()
	case choice < 47:
		a.begin()
	case choice < 62:
		a.finish()
	case choice < 72:
		a.nest()
	case choice < 75:
		a.set()
	case choice < 79:
		a.look()
	case choice < 83:
		_ = a.guarded("conn", func() error {
			conn, err := a.db.Conn(a.ctx)
			if err == nil {
				a.conns = append(a.conns, conn)
				err = conn.PingContext(a.ctx)
			}
			return err
		})
	case choice < 86 && len(a.conns) > 0:
		_ = a.conns[0].Close()
		a.conns = a.conns[1:]
	case choice < 89:
		_ = a.guarded("rows", func() error {
			rows, err := a.db.QueryContext(a.ctx, "SELECT n FROM numbers LIMIT 40")
			if err == nil {
				a.rows = append(a.rows, rows)
				rows.Next()
			}
			return err
		})
	case choice < 93 && len(a.conns) > 0:
		_ = a.guarded("raw", func() error {
			return pooldriver.Raw(a.ctx, a.conns[len(a.conns)-1], func(dc driver.Conn) error { return rawly(a.ctx, dc, "PING") })
		})
	case choice < 97:
		a.parallel()
	default:
		a.fault()
	}
}

// close gives back what the actor holds besides its transactions.
func (a *actor) close() {
	for _, rows := range a.rows {
		_ = rows.Close()
	}
	for _, conn := range a.conns {
		_ = conn.Close()
	}
	a.rows, a.conns = nil, nil
}

// live is the actor's life, with one of the ways out that programs have.
func (a *actor) live(parent context.Context) {
	parent, cancel := context.WithCancel(parent)
	defer cancel()
	ctx, end := pooldriver.WithTask(parent)
	a.ctx = ctx
	for range 3 + a.random.IntN(15) {
		if !a.lost {
			a.act()
		}
	}
	defer a.close()
	switch a.random.IntN(5) {
	case 0: // in good order
		for len(a.open) > 0 {
			a.finish()
		}
		a.close()
	case 1: // as good as
		a.close()
	case 2: // by the context
		cancel()
	case 3: // while it closes what it has
		go cancel()
		a.close()
	case 4: // while something runs
		var wg sync.WaitGroup
		defer wg.Wait()
		for range 2 {
			wg.Go(func() {
				defer func() { _ = recover() }()
				_, _ = a.db.ExecContext(context.WithoutCancel(ctx), "SELECT 1")
			})
		}
	}
	end()
	if _, err := a.db.ExecContext(context.WithoutCancel(ctx), "INSERT INTO t VALUES (-1)"); !errors.Is(err, pooldriver.ErrTaskEnded) {
		a.Errorf("actor %d: a statement of an ended task: %v", a.number, err)
	}
}

// stranger does things without a task.
func (a *actor) stranger() {
	a.ctx = context.Background()
	for range 6 {
		switch a.random.IntN(3) {
		case 0:
			a.insert()
		case 1:
			a.nest()
		case 2:
			a.look()
		}
	}
}

func TestTasksLeaveNothingBehindWhateverTheyDo(t *testing.T) {
	t.Parallel()
	random := randomtest.Seeded(t)
	for _, most := range []int{1, 4} {
		t.Run(fmt.Sprintf("max=%d", most), func(t *testing.T) {
			defer randomtest.Watch(t, 10*time.Minute)()
			for range randomtest.Rounds(10, 200) {
				tasksAtOnce(t, most, random)
				if t.Failed() {
					return
				}
			}
		})
	}
}

// tasksAtOnce runs many tasks, and some who have none, on one pool.
func tasksAtOnce(t *testing.T, most int, random *rand.Rand) {
	server, db, c := openTasks(t, most, quiet, deadlockAfter(200*time.Millisecond))
	shared, err := db.Prepare("INSERT INTO t VALUES (?)")
	require.NoError(t, err)
	rows := new(beliefs)
	var wg sync.WaitGroup
	for number := range 30 {
		a := &actor{T: t, beliefs: rows, random: rand.New(rand.NewPCG(random.Uint64(), random.Uint64())), server: server, db: db, shared: shared, number: number}
		wg.Go(func() {
			if number%5 == 0 {
				a.stranger()
			} else {
				a.live(t.Context())
			}
		})
	}
	wg.Wait()
	server.Heal()
	atRest(t, c)
	state, stats := server.State(), c.Stats()
	require.Zero(t, state.InTx())
	require.Zero(t, state.OpenRows())
	require.LessOrEqual(t, state.MaxOpen, most)
	require.Zero(t, stats.BufferedBytes)
	require.Empty(t, server.Violations())
	rows.check(t, server.Table("t"))
	for range 2 * most {
		require.Nil(t, show(t, t.Context(), db, "a"))
	}
	require.NoError(t, shared.Close())
	require.NoError(t, db.Close())
}
