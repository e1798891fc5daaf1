package integration

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// mean is a way to run a statement in a task, with no transaction at hand.
type mean struct {
	name string
	run  func(ctx context.Context, p stagePool, statement string) error
}

var means = []mean{
	{"DB", func(ctx context.Context, p stagePool, statement string) error {
		_, err := p.ExecContext(ctx, statement)
		return err
	}},
	{"rows", func(ctx context.Context, p stagePool, statement string) error {
		rows, err := p.QueryContext(ctx, statement)
		if err != nil {
			return err
		}
		_, err = scanned[int](rows)
		return err
	}},
	{"Conn", func(ctx context.Context, p stagePool, statement string) error {
		conn, err := p.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.ExecContext(ctx, statement)
		return err
	}},
	{"prepared statement", func(ctx context.Context, p stagePool, statement string) error {
		stmt, err := p.PrepareContext(ctx, statement)
		if err != nil {
			return err
		}
		defer stmt.Close()
		_, err = stmt.ExecContext(ctx)
		return err
	}},
	{"inner transaction", func(ctx context.Context, p stagePool, statement string) error {
		tx, err := p.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, statement); err != nil {
			return err
		}
		return tx.Commit()
	}},
}

// statements are the means that begin no transaction.
var statements = means[:4]

// requireLost has every one of the means fail with ErrTxLost.
func (p stagePool) requireLost(ctx context.Context, t *testing.T, means []mean) {
	t.Helper()
	for _, by := range means {
		require.ErrorIs(t, by.run(ctx, p, insertInto(-1)), pooldriver.ErrTxLost, by.name)
	}
}

// TestNothingOfATransactionRunsOutsideItWhenItsConnectionDies kills the
// connection at a random statement. What the task does then, by the Tx or beside
// it, fails until the Tx is ended.
func TestNothingOfATransactionRunsOutsideItWhenItsConnectionDies(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s stage) {
		random := randomtest.Seeded(t)
		p := s.open(t, 3)
		var want []int
		for round := range randomtest.Rounds(25, 400) {
			ctx, end := pooldriver.WithTask(t.Context())
			tx, err := p.BeginTx(ctx, nil)
			require.NoError(t, err)
			const n = 6
			deathAt := random.IntN(n + 1)
			for i := range n {
				if i == deathAt {
					s.kill(t, p.backend(ctx, t))
				}
				ambient := random.IntN(2) == 0
				if by := means[random.IntN(len(means))]; ambient {
					err = by.run(ctx, p, insertInto(round))
				} else {
					_, err = tx.ExecContext(ctx, insertInto(round))
				}
				switch {
				case i < deathAt:
					require.NoError(t, err)
				case i == deathAt:
					require.Error(t, err)
				default:
					require.ErrorIs(t, err, pooldriver.ErrTxLost)
				}
			}
			switch {
			case deathAt == n:
				s.kill(t, p.backend(ctx, t))
				require.Error(t, tx.Commit(), "the server has rolled back")
			case random.IntN(2) == 0:
				p.requireLost(ctx, t, means)
				require.ErrorIs(t, tx.Commit(), pooldriver.ErrTxLost)
			default:
				p.requireLost(ctx, t, means)
				_ = tx.Rollback()
			}
			require.ErrorIs(t, tx.Rollback(), sql.ErrTxDone)

			p.mustExec(ctx, t, insertInto(1000+round))
			want = append(want, 1000+round)
			require.NoError(t, pooldriver.InTx(ctx, p.DB, nil, func(ctx context.Context, _ *sql.Tx) error {
				_, err := p.ExecContext(ctx, insertInto(5000+round))
				return err
			}))
			want = append(want, 5000+round)
			end()
			p.requireNothingLeft(t)
		}
		slices.Sort(want)
		require.Equal(t, want, s.stored(t))
		p.requireAtRest(t)
	})
}

// TestATransactionWhoseConnectionDiesDuringAStatementIsLost: the same, with the
// server at work.
func TestATransactionWhoseConnectionDiesDuringAStatementIsLost(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s stage) {
		p := s.open(t, 3)
		w := &work{T: t, stagePool: p}
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		w.ctx = ctx
		tx, err := p.BeginTx(ctx, nil)
		require.NoError(t, err)
		p.mustExec(ctx, t, insertInto(1))
		id := p.backend(ctx, t)
		failed := w.sleepUntilFailed()
		waiting := make(chan error, 1)
		go func() {
			_, err := p.ExecContext(ctx, insertInto(2))
			waiting <- err
		}()
		s.kill(t, id)
		require.Error(t, <-failed)
		require.ErrorIs(t, <-waiting, pooldriver.ErrTxLost, "it has waited for the connection of the transaction")
		p.requireLost(ctx, t, means)
		require.Error(t, tx.Commit())
		p.mustExec(ctx, t, insertInto(3))
		require.Equal(t, []int{3}, s.stored(t))
	})
}

// TestATransactionByStatementThatIsLostStaysLostUntilTheTaskEnds: there is no
// Tx whose end could say that the program knows.
func TestATransactionByStatementThatIsLostStaysLostUntilTheTaskEnds(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s stage) {
		random := randomtest.Seeded(t)
		p := s.open(t, 3)
		for range randomtest.Rounds(5, 50) {
			ctx, end := pooldriver.WithTask(t.Context())
			p.mustExec(ctx, t, "BEGIN")
			for range random.IntN(3) {
				p.mustExec(ctx, t, insertInto(1))
			}
			if random.IntN(2) == 0 {
				s.kill(t, p.backend(ctx, t))
				require.Error(t, means[random.IntN(len(means))].run(ctx, p, insertInto(2)))
			} else {
				inner, err := p.BeginTx(ctx, nil)
				require.NoError(t, err)
				s.kill(t, p.backend(ctx, t))
				_, err = inner.ExecContext(ctx, insertInto(2))
				require.Error(t, err)
				_ = inner.Rollback() // It was not the outermost.
			}
			p.requireLost(ctx, t, means)
			for _, statement := range []string{"COMMIT", "ROLLBACK", "BEGIN", insertInto(3)} {
				_, err := p.ExecContext(ctx, statement)
				require.ErrorIs(t, err, pooldriver.ErrTxLost, statement)
			}
			p.requireLost(ctx, t, means)
			_, err := p.ExecContext(pooldriver.Outside(ctx), "DELETE FROM ledger")
			require.NoError(t, err, "what does not belong to the task goes on")
			end()
			p.requireNothingLeft(t)

			require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
				_, err := p.ExecContext(ctx, insertInto(4))
				return err
			}))
			require.Equal(t, []int{4}, s.stored(t))
		}
	})
}

// TestASessionLostWithRowsThatWereCancelledIsMissed: the statement has
// succeeded, the program does not want its rows, and some drivers give up the
// connection for it. No error has told anybody.
func TestASessionLostWithRowsThatWereCancelledIsMissed(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s stage) {
		begin := func(ctx context.Context, p stagePool) error { _, err := p.BeginTx(ctx, nil); return err }
		exec := func(statement string) func(context.Context, stagePool) error {
			return func(ctx context.Context, p stagePool) error { return means[0].run(ctx, p, statement) }
		}
		for name, have := range map[string]func(context.Context, stagePool) error{
			"a transaction":                begin,
			"a transaction by a statement": exec("BEGIN"),
			"state":                        exec(s.say("SET app.tenant = 'alice'", "SET @tenant = 'alice'", "")),
		} {
			t.Run(name, func(t *testing.T) {
				for range randomtest.Rounds(5, 100) {
					p := s.open(t, 2)
					ctx, end := pooldriver.WithTask(t.Context())
					require.NoError(t, have(ctx, p))
					before := p.backend(ctx, t)
					brief, cancel := context.WithCancel(ctx)
					rows, err := p.QueryContext(brief, strings.Replace(someRows, "SELECT n FROM", "SELECT n, repeat('x', 9999) FROM", 1))
					require.NoError(t, err)
					require.True(t, rows.Next())
					cancel()
					_ = rows.Close()

					var after int64
					err = p.QueryRowContext(ctx, p.self()).Scan(&after)
					if err == nil {
						require.Equal(t, before, after, "it goes on as if it had its session")
					} else {
						_, err = p.ExecContext(ctx, insertInto(1))
						require.ErrorIs(t, err, pooldriver.ErrTxLost)
					}
					end()
					require.NoError(t, p.Close())
				}
				require.Empty(t, s.stored(t))
			})
		}
	})
}

// TestStatementsDoNotGoOnWithoutTheSessionTheyWereMeantFor: what a task has set
// is gone with its connection. Another connection would be another tenant, or
// another role.
func TestStatementsDoNotGoOnWithoutTheSessionTheyWereMeantFor(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s stage) {
		for _, set := range []string{
			"SET ROLE " + s.account.Role,
			s.say("SET app.tenant = 'alice'", "SET @tenant = 'alice'", ""),
			s.say("CREATE TEMP TABLE left_behind (id integer)", "CREATE TEMPORARY TABLE left_behind (id integer)", ""),
			s.say("SELECT pg_advisory_lock(7)", "DO GET_LOCK(CONCAT(DATABASE(), '.7'), 0)", ""),
		} {
			for _, by := range means {
				t.Run(set+"/"+by.name, func(t *testing.T) {
					p := s.open(t, 3)
					ctx, end := pooldriver.WithTask(t.Context())
					defer end()
					p.mustExec(ctx, t, set)
					s.kill(t, p.backend(ctx, t))
					for range 3 {
						require.Error(t, by.run(ctx, p, insertInto(1)))
					}
					for _, by := range means {
						require.Error(t, by.run(ctx, p, insertInto(1)), by.name)
					}
					require.Empty(t, s.stored(t))
					end()
					p.requireNothingLeft(t)
					ctx, end = pooldriver.WithTask(t.Context())
					defer end()
					require.NoError(t, means[0].run(ctx, p, "SELECT 1"))
				})
			}
		}
	})
}

// TestAfterATransactionThatEndedBehindTheProgramsBack there is a loss
// barrier if other statements have joined the transaction: they rely on it.
func TestAfterATransactionThatEndedBehindTheProgramsBack(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		for _, joined := range []bool{true, false} {
			t.Run(fmt.Sprintf("joined=%t", joined), func(t *testing.T) {
				mustExec(t, s.witness, "DELETE FROM ledger")
				p := s.open(t, 2)
				want := []int{}
				for i := range randomtest.Rounds(16, 200) {
					ctx, end := pooldriver.WithTask(t.Context())
					limited, cancel := context.WithCancel(ctx)
					if i == 0 {
						passed := make(chan struct{}) // a deadline, whenever the transaction has begun
						limited, cancel = expiring{ctx, passed}, sync.OnceFunc(func() { close(passed) })
					}
					tx, err := p.BeginTx(limited, nil)
					require.NoError(t, err)
					_, err = tx.ExecContext(ctx, insertInto(1))
					require.NoError(t, err)
					if joined {
						p.mustExec(ctx, t, insertInto(2))
					}
					if i%2 == 1 && s.name != "sqlite" {
						time.AfterFunc(10*time.Millisecond, cancel)
						_, err = tx.ExecContext(limited, sleepFor(s.account.Server.Engine, time.Minute))
						require.Error(t, err)
					} else {
						cancel()
					}
					<-limited.Done()
					// No pause: nobody tells the program when the rollback is done.
					if joined {
						p.requireLost(ctx, t, statements)
						require.Error(t, tx.Commit())
						p.requireLost(ctx, t, statements)
						tx, err := p.BeginTx(ctx, nil)
						require.NoError(t, err)
						p.mustExec(ctx, t, insertInto(100+i))
						require.NoError(t, tx.Commit())
						p.mustExec(ctx, t, insertInto(1000+i))
						want = append(want, 100+i, 1000+i)
					} else {
						p.mustExec(ctx, t, insertInto(100+i))
						want = append(want, 100+i)
						require.Contains(t, s.stored(t), 100+i, "it was part of the dead transaction")
						require.Error(t, tx.Commit())
					}
					cancel()
					end()
					p.requireNothingLeft(t)
				}
				slices.Sort(want)
				require.Equal(t, want, s.stored(t))
				p.requireAtRest(t)
			})
		}
	})
}

// requireRolledBack has a task's transaction fail by a statement at which the server
// rolls all of it back. Nothing runs outside of it, and the connection goes on.
func (p stagePool) requireRolledBack(t *testing.T, fail func(ctx context.Context, tx *sql.Tx) error) {
	t.Helper()
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	tx, err := p.BeginTx(ctx, nil)
	require.NoError(t, err)
	before := p.backend(ctx, t)
	p.mustExec(ctx, t, insertInto(0))
	err = fail(ctx, tx)
	require.Error(t, err)
	require.NotErrorIs(t, err, pooldriver.ErrTxLost)
	p.requireLost(ctx, t, means)
	_, own := tx.ExecContext(ctx, insertInto(1))
	_, beside := p.ExecContext(ctx, insertInto(1))
	for _, err := range []error{own, beside, tx.Commit()} {
		require.ErrorIs(t, err, pooldriver.ErrTxLost)
		require.ErrorContains(t, err, "the server rolled it back")
		require.NotContains(t, err.Error(), "connection was lost")
	}
	p.mustExec(ctx, t, insertInto(2))
	require.Equal(t, []int{2}, p.stored(t))
	require.Equal(t, before, p.backend(ctx, t))
	end()
	p.requireNothingLeft(t)
	mustExec(t, p.witness, "DELETE FROM ledger")
}

func requireNumber(t *testing.T, want uint16, err error) {
	t.Helper()
	var refused *mysql.MySQLError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, want, refused.Number)
}

// contended makes a table with two rows that others change.
func (s stage) contended(t *testing.T) {
	t.Helper()
	mustExec(t, s.witness, "CREATE TABLE contended (id integer PRIMARY KEY, value integer)")
	mustExec(t, s.witness, "INSERT INTO contended VALUES (1, 0), (2, 0)")
}

const changeContended = "UPDATE contended SET value = value + 1 WHERE id = 1"

// changedSinceRead is MariaDB's error 1020, which is the transaction's end. false:
// the server does not know it.
func (p stagePool) changedSinceRead(t *testing.T) (known bool) {
	t.Helper()
	var on bool
	if err := p.witness.QueryRow("SELECT @@innodb_snapshot_isolation").Scan(&on); err != nil || !on {
		t.Logf("no innodb_snapshot_isolation here: %t, %v", on, err)
		return false
	}
	p.requireRolledBack(t, func(ctx context.Context, tx *sql.Tx) error {
		var value int
		require.NoError(t, tx.QueryRowContext(ctx, "SELECT value FROM contended WHERE id = 1").Scan(&value))
		mustExec(t, p.witness, changeContended)
		_, err := tx.ExecContext(ctx, changeContended)
		require.ErrorContains(t, err, "Record has changed since last read")
		return err
	})
	return true
}

func TestARowThatHasChangedSinceItWasReadIsTheTransactionsEnd(t *testing.T) {
	t.Parallel()
	s := serverStage(t, testbed.Shared(t, testbed.MySQL).NewAccount(t))
	s.contended(t)
	s.open(t, 1).changedSinceRead(t)
}

// TestAWaitForALockThatIsTooLongIsTheTransactionsEndWhereTheServerSaysSo: only with
// innodb_rollback_on_timeout.
func TestAWaitForALockThatIsTooLongIsTheTransactionsEndWhereTheServerSaysSo(t *testing.T) {
	t.Parallel()
	tooLong := func(t *testing.T, s stage) func(ctx context.Context, tx *sql.Tx) error {
		return func(ctx context.Context, tx *sql.Tx) error {
			other, err := s.witness.BeginTx(t.Context(), nil)
			require.NoError(t, err)
			defer other.Rollback()
			_, err = other.Exec(changeContended)
			require.NoError(t, err)
			_, err = tx.ExecContext(ctx, changeContended)
			requireNumber(t, 1205, err)
			return err
		}
	}
	t.Run("transaction", func(t *testing.T) {
		t.Parallel()
		server := testbed.Start(t, testbed.MySQL, testbed.WithArguments("--innodb-rollback-on-timeout=ON", "--innodb-lock-wait-timeout=1"))
		s := serverStage(t, server.NewAccount(t))
		s.contended(t)
		s.open(t, 1).requireRolledBack(t, tooLong(t, s))
	})
	t.Run("statement", func(t *testing.T) {
		t.Parallel()
		s := serverStage(t, testbed.Shared(t, testbed.MySQL).NewAccount(t))
		s.contended(t)
		p := s.open(t, 1)
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		p.mustExec(ctx, t, "SET innodb_lock_wait_timeout = 1")
		tx, err := p.BeginTx(ctx, nil)
		require.NoError(t, err)
		p.mustExec(ctx, t, insertInto(0))
		require.Error(t, tooLong(t, s)(ctx, tx))
		p.mustExec(ctx, t, insertInto(1))
		require.NoError(t, tx.Commit())
		require.Equal(t, []int{0, 1}, s.stored(t))
	})
}

// TestADeadlocksVictimIsToldThatTheServerRolledItBack: its connection is as good
// as before.
func TestADeadlocksVictimIsToldThatTheServerRolledItBack(t *testing.T) {
	t.Parallel()
	s := serverStage(t, testbed.Shared(t, testbed.MySQL).NewAccount(t))
	s.contended(t)
	mustExec(t, s.witness, "CREATE TABLE weight (id integer)")
	s.open(t, 1).requireRolledBack(t, func(ctx context.Context, tx *sql.Tx) error {
		_, err := tx.ExecContext(ctx, "UPDATE contended SET value = 1 WHERE id = 1")
		require.NoError(t, err)
		other, err := s.witness.BeginTx(t.Context(), nil)
		require.NoError(t, err)
		defer other.Rollback()
		for range 50 { // The victim is the one that has changed less.
			_, err = other.ExecContext(t.Context(), "INSERT INTO weight VALUES (1)")
			require.NoError(t, err)
		}
		_, err = other.ExecContext(t.Context(), "UPDATE contended SET value = 2 WHERE id = 2")
		require.NoError(t, err)
		survives := async(func() error {
			_, err := other.ExecContext(t.Context(), "UPDATE contended SET value = 2 WHERE id = 1")
			return err
		})
		_, failed := tx.ExecContext(ctx, "UPDATE contended SET value = 1 WHERE id = 2")
		requireNumber(t, 1213, failed)
		require.NoError(t, <-survives)
		require.NoError(t, other.Commit())
		return failed
	})
}
