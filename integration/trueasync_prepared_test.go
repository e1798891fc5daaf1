package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// What TrueAsync tests of coroutines, here of tasks: prepared statements, and
// what a statement leaves to be asked for.

// dated is a text whose answer tells, on PostgreSQL, when it was prepared.
func (s stage) dated() string {
	return s.say("SELECT max(prepare_time)::text FROM pg_prepared_statements WHERE statement LIKE '%/* dated */%' /* dated */",
		"SELECT 'dated'", "")
}

// preparations counts how often the server prepares the dated text while use
// runs, which returns the answers.
func (s stage) preparations(t *testing.T, use func() []string) int {
	t.Helper()
	if s.name == "postgres" {
		times := map[string]bool{}
		for _, answer := range use() {
			times[answer] = true
		}
		return len(times)
	}
	asked := func() (n int) {
		require.NoError(t, s.witness.QueryRowContext(t.Context(), `SELECT COALESCE(SUM(count_star), 0)
			FROM performance_schema.events_statements_summary_by_user_by_event_name
			WHERE event_name = 'statement/com/Prepare' AND user = ?`, s.account.User).Scan(&n))
		return n
	}
	before := asked()
	use()
	return asked() - before
}

// datedLeft counts the dated statements that the server keeps for the pool's
// connections. MySQL is asked for all that are prepared.
func (p stagePool) datedLeft(t *testing.T) (left int) {
	t.Helper()
	if p.name != "postgres" {
		require.NoError(t, p.witness.QueryRowContext(t.Context(), `SELECT count(*) FROM performance_schema.prepared_statements_instances
			JOIN performance_schema.threads ON thread_id = owner_thread_id WHERE processlist_user = ?`, p.account.User).Scan(&left))
		return left
	}
	for range p.connector.Stats().Pool.Max {
		conn, err := p.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		var n int
		require.NoError(t, conn.QueryRowContext(t.Context(),
			"SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%/* da' || 'ted */'").Scan(&n))
		left += n
	}
	return left
}

func TestTasksOnOneConnectionShareAPreparedStatement(t *testing.T) {
	t.Parallel()
	const tasks = 8
	eachServer(t, func(t *testing.T, s stage) {
		p := s.open(t, 1)
		// PostgreSQL's statement is kept as long as somebody has it prepared; a
		// virtual connection that database/sql closes has not.
		p.SetMaxIdleConns(tasks)
		all := newGate(tasks)
		answers := make(chan string, tasks)
		require.Equal(t, 1, s.preparations(t, func() (list []string) {
			for _, err := range parallel(tasks, func() error {
				return pooldriver.Do(t.Context(), func(ctx context.Context) error {
					stmt, err := p.PrepareContext(ctx, s.dated())
					if err != nil {
						return err
					}
					defer stmt.Close()
					if err := all.pass(ctx); err != nil {
						return err
					}
					var answer string
					err = stmt.QueryRowContext(ctx).Scan(&answer)
					answers <- answer
					return err
				})
			}) {
				require.NoError(t, err)
			}
			for range tasks {
				list = append(list, <-answers)
			}
			return list
		}))
	})
}

func TestWithoutAStatementCacheEachPrepareReachesTheServerAndNothingStays(t *testing.T) {
	t.Parallel()
	const times = 5
	eachServer(t, func(t *testing.T, s stage) {
		for _, cache := range []int{0, 10} {
			t.Run(fmt.Sprintf("pool_stmt_cache=%d", cache), func(t *testing.T) {
				p := s.openURL(t, s.url("pool_max_conns=1", fmt.Sprintf("pool_stmt_cache=%d", cache)))
				var stmts []*sql.Stmt
				n := s.preparations(t, func() (answers []string) {
					for range times {
						stmt, err := p.PrepareContext(t.Context(), s.dated())
						require.NoError(t, err)
						stmts = append(stmts, stmt)
						var answer string
						require.NoError(t, stmt.QueryRowContext(t.Context()).Scan(&answer))
						answers = append(answers, answer)
					}
					return answers
				})
				for _, stmt := range stmts {
					require.NoError(t, stmt.Close())
				}
				if cache == 0 {
					require.GreaterOrEqual(t, n, times)
					require.Zero(t, p.datedLeft(t))
				} else {
					require.Equal(t, 1, n)
					require.Equal(t, 1, p.datedLeft(t))
				}
			})
		}
	})
}

// TestWhatTheClientFillsInIsNotPrepared: interpolateParams is a mode of MySQL's
// driver.
func TestWhatTheClientFillsInIsNotPrepared(t *testing.T) {
	t.Parallel()
	s := stage{name: "mysql", account: testbed.Shared(t, testbed.MySQL).NewAccount(t)}
	s.witness = s.account.Witness(t)
	for _, interpolates := range []bool{true, false} {
		t.Run(fmt.Sprintf("interpolateParams=%t", interpolates), func(t *testing.T) {
			mustExec(t, s.witness, "DROP TABLE IF EXISTS ledger")
			mustExec(t, s.witness, "CREATE TABLE ledger (id integer)")
			p := s.openURL(t, s.url("pool_max_conns=1", fmt.Sprintf("interpolateParams=%t", interpolates)))
			n := s.preparations(t, func() []string {
				for i := range 3 {
					_, err := p.ExecContext(t.Context(), "INSERT INTO ledger VALUES (?)", i)
					require.NoError(t, err)
					var id int
					require.NoError(t, p.QueryRowContext(t.Context(), "SELECT id FROM ledger WHERE id = ?", i).Scan(&id))
					require.Equal(t, i, id)
				}
				return nil
			})
			require.Equal(t, interpolates, n == 0, "%d", n)
		})
	}
}

func TestAPreparedStatementJoinsTheTransactionOfItsTask(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		p := s.open(t, 2)
		anybodys, err := p.PrepareContext(t.Context(), insertInto(1))
		require.NoError(t, err)
		defer anybodys.Close()
		for _, commits := range []bool{false, true} {
			t.Run(fmt.Sprintf("commits=%t", commits), func(t *testing.T) {
				mustExec(t, s.witness, "DELETE FROM ledger")
				ctx, end := pooldriver.WithTask(t.Context())
				defer end()
				before, err := p.PrepareContext(ctx, insertInto(2))
				require.NoError(t, err)
				tx := p.mustBegin(ctx, t)
				inside, err := p.PrepareContext(ctx, insertInto(3))
				require.NoError(t, err)
				for _, stmt := range []*sql.Stmt{anybodys, before, inside, tx.StmtContext(ctx, anybodys)} {
					_, err := stmt.ExecContext(ctx)
					require.NoError(t, err)
				}
				require.Equal(t, 4, p.count(ctx, t))
				require.Empty(t, s.stored(t))
				require.NoError(t, finish(tx, commits))
				want := []int{}
				if commits {
					want = []int{1, 1, 2, 3}
				}
				require.Equal(t, want, s.stored(t))
				for _, stmt := range []*sql.Stmt{before, inside} {
					require.NoError(t, stmt.Close())
				}
			})
		}
	})
}

func TestAPreparedSetIsStateOfItsTask(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s stage) {
		p := s.open(t, 1)
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		set, err := p.PrepareContext(ctx, s.say("SET app.tenant = 'alice'", "SET @tenant = 'alice'", ""))
		require.NoError(t, err)
		defer set.Close()
		tenant := func(ctx context.Context) bool {
			seen, err := observed(ctx, p.DB, s.traces()[0])
			require.NoError(t, err)
			return seen
		}
		require.False(t, tenant(ctx))
		_, err = set.ExecContext(ctx)
		require.NoError(t, err)
		require.Equal(t, 1, p.lent())
		id := p.backend(ctx, t)
		require.True(t, tenant(ctx))
		end()
		require.Zero(t, p.lent())
		require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
			require.Equal(t, id, p.backend(ctx, t))
			require.False(t, tenant(ctx))
			return nil
		}))
	})
}

// TestWarningsCanBeAskedForInTheTransactionOfTheirStatement: the server keeps
// those of a connection's last statement.
func TestWarningsCanBeAskedForInTheTransactionOfTheirStatement(t *testing.T) {
	t.Parallel()
	s := stage{name: "mysql", account: testbed.Shared(t, testbed.MySQL).NewAccount(t)}
	s.witness = s.account.Witness(t)
	mustExec(t, s.witness, "CREATE TABLE ledger (id integer)")
	p := s.open(t, 3)
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	tx := p.mustBegin(ctx, t)
	for _, from := range []interface {
		QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	}{p, tx} {
		p.mustExec(ctx, t, "INSERT IGNORE INTO ledger VALUES ('12 sheep'), ('7')")
		rows, err := from.QueryContext(ctx, "SHOW WARNINGS")
		require.NoError(t, err)
		var level, message string
		var code int
		require.True(t, rows.Next())
		require.NoError(t, rows.Scan(&level, &code, &message))
		require.Contains(t, message, "'id' at row 1")
		require.False(t, rows.Next())
		require.NoError(t, rows.Close())
	}
	require.NoError(t, tx.Commit())
}

// TestAnInsertKnowsItsOwnRowsID: PostgreSQL has RETURNING for that.
func TestAnInsertKnowsItsOwnRowsID(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		if s.name == "postgres" {
			return
		}
		mustExec(t, s.witness, "CREATE TABLE numbered (id integer PRIMARY KEY "+s.say("", "AUTO_INCREMENT", "AUTOINCREMENT")+", who integer)")
		p := s.open(t, 2)
		ctxs := make([]context.Context, 2)
		txs := make([]*sql.Tx, 2)
		for i := range txs {
			var end func()
			ctxs[i], end = pooldriver.WithTask(t.Context())
			defer end()
			txs[i] = p.mustBegin(ctxs[i], t)
		}
		results := map[sql.Result]int{}
		for who := range 4 {
			res, err := p.ExecContext(ctxs[who%2], fmt.Sprintf("INSERT INTO numbered (who) VALUES (%d)", who))
			require.NoError(t, err)
			results[res] = who
			if s.name == "sqlite" { // It has one writer at a time.
				require.NoError(t, txs[who%2].Commit())
				txs[who%2] = p.mustBegin(ctxs[who%2], t)
			}
		}
		for _, tx := range txs {
			require.NoError(t, tx.Commit())
		}
		seen := map[int64]bool{}
		for res, who := range results {
			id, err := res.LastInsertId()
			require.NoError(t, err)
			require.False(t, seen[id])
			seen[id] = true
			var stored int
			require.NoError(t, s.witness.QueryRowContext(t.Context(), fmt.Sprintf("SELECT who FROM numbered WHERE id = %d", id)).Scan(&stored))
			require.Equal(t, who, stored)
		}
	})
}

// TestCopyIsPartOfTheTransactionOfItsConn: what only the driver can do, with no
// task.
func TestCopyIsPartOfTheTransactionOfItsConn(t *testing.T) {
	t.Parallel()
	s := stage{name: "postgres", account: testbed.Shared(t, testbed.Postgres).NewAccount(t)}
	s.witness = s.account.Witness(t)
	p := s.open(t, 1)
	mustExec(t, p.DB, "CREATE TABLE ledger (id integer)")
	for _, table := range []string{"ledger", "missing"} {
		for _, commits := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/commits=%t", table, commits), func(t *testing.T) {
				mustExec(t, p.DB, "DELETE FROM ledger")
				conn, err := p.Conn(t.Context())
				require.NoError(t, err)
				defer conn.Close()
				var before, after int
				require.NoError(t, conn.QueryRowContext(t.Context(), s.self()).Scan(&before))
				tx, err := conn.BeginTx(t.Context(), nil)
				require.NoError(t, err)
				err = pooldriver.Raw(t.Context(), conn, func(dc driver.Conn) error {
					_, err := dc.(*stdlib.Conn).Conn().CopyFrom(t.Context(), pgx.Identifier{table}, []string{"id"},
						pgx.CopyFromRows([][]any{{2}, {3}}))
					return err
				})
				require.Equal(t, table == "missing", err != nil, "%v", err)
				require.Empty(t, s.stored(t))
				err = finish(tx, commits)
				require.Equal(t, table == "missing" && commits, err != nil, "%v", err)
				want := []int{}
				if table == "ledger" && commits {
					want = []int{2, 3}
				}
				require.Equal(t, want, s.stored(t))
				require.NoError(t, conn.QueryRowContext(t.Context(), s.self()).Scan(&after))
				require.Equal(t, before, after)
				_, err = conn.ExecContext(t.Context(), insertInto(9))
				require.NoError(t, err)
				require.Equal(t, append(want, 9), s.stored(t))
			})
		}
	}
}
