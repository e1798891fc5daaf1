package integration

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// TestCommitsAreOnTheServerAndRollbacksAreNot ends three levels of transactions
// in orders legal and not, and keeps account of what was acknowledged.
func TestCommitsAreOnTheServerAndRollbacksAreNot(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		random := randomtest.Seeded(t)
		p := s.open(t, 2)
		want, next := []int{}, 0
		outOfOrder := 0
		for range randomtest.Rounds(60, 2000) {
			ctx, end := pooldriver.WithTask(t.Context())
			var levels []level
			var over []*sql.Tx // inner ones of an outer that has ended
			for step := 0; step < 12 || len(levels) > 0; step++ {
				switch choice := random.IntN(10); {
				case choice < 4 && step < 12:
					p.mustExec(ctx, t, insertInto(next))
					if n := len(levels) - 1; n >= 0 {
						levels[n].ids = append(levels[n].ids, next)
					} else {
						want = append(want, next)
					}
					next++
				case choice < 7 && len(levels) < 3 && step < 12:
					tx, err := p.BeginTx(ctx, nil)
					require.NoError(t, err)
					levels = append(levels, level{tx: tx})
				case len(levels) > 0:
					k := len(levels) - 1
					if random.IntN(3) == 0 {
						k = random.IntN(len(levels))
					}
					ended, inner := levels[k], levels[k+1:]
					levels = levels[:k]
					for _, level := range inner {
						over = append(over, level.tx)
					}
					if random.IntN(3) == 0 {
						require.NoError(t, ended.tx.Rollback())
						continue
					}
					err := ended.tx.Commit()
					if len(inner) > 0 {
						outOfOrder++
						require.Error(t, err, "an inner transaction is open")
						continue
					}
					require.NoError(t, err)
					if k > 0 {
						levels[k-1].ids = append(levels[k-1].ids, ended.ids...)
					} else {
						want = append(want, ended.ids...)
					}
				}
			}
			for _, tx := range over {
				require.ErrorIs(t, tx.Commit(), sql.ErrTxDone)
			}
			if random.IntN(4) == 0 {
				_, err := p.BeginTx(ctx, nil)
				require.NoError(t, err)
				p.mustExec(ctx, t, insertInto(next))
				next++
			}
			end()
		}
		slices.Sort(want)
		require.Equal(t, want, s.stored(t))
		require.Positive(t, outOfOrder)
		p.requireNothingLeft(t)
		p.requireAtRest(t)
	})
}

// TestAnInnerTransactionThatFailedCanBeRolledBackAlone: PostgreSQL accepts
// nothing after an error but the way back to the savepoint.
func TestAnInnerTransactionThatFailedCanBeRolledBackAlone(t *testing.T) {
	t.Parallel()
	eachStage(t, func(t *testing.T, s stage) {
		p := s.open(t, 1)
		require.NoError(t, pooldriver.Do(t.Context(), func(ctx context.Context) error {
			outer, err := p.BeginTx(ctx, nil)
			require.NoError(t, err)
			p.mustExec(ctx, t, insertInto(1))
			inner, err := p.BeginTx(ctx, nil)
			require.NoError(t, err)
			p.mustExec(ctx, t, insertInto(2))
			_, err = inner.ExecContext(ctx, "INSERT INTO missing VALUES (1)")
			require.Error(t, err)
			require.NoError(t, inner.Rollback())
			p.mustExec(ctx, t, insertInto(3))
			return outer.Commit()
		}))
		require.Equal(t, []int{1, 3}, s.stored(t))
	})
}

// TestAnInnerTransactionWithOtherOptionsIsRefused: a savepoint has no options.
func TestAnInnerTransactionWithOtherOptionsIsRefused(t *testing.T) {
	t.Parallel()
	eachServer(t, func(t *testing.T, s stage) {
		p := s.open(t, 1)
		ctx, end := pooldriver.WithTask(t.Context())
		defer end()
		serializable := &sql.TxOptions{Isolation: sql.LevelSerializable}
		outer, err := p.BeginTx(ctx, serializable)
		require.NoError(t, err)
		p.mustExec(ctx, t, insertInto(1))
		for _, other := range []*sql.TxOptions{{Isolation: sql.LevelReadCommitted}, {ReadOnly: true}, {Isolation: sql.LevelSerializable, ReadOnly: true}} {
			_, err = p.BeginTx(ctx, other)
			require.Error(t, err, "%+v", other)
		}
		for _, same := range []*sql.TxOptions{nil, {}, serializable} {
			inner, err := p.BeginTx(ctx, same)
			require.NoError(t, err, "%+v", same)
			require.NoError(t, inner.Commit())
		}
		require.NoError(t, outer.Commit(), "what was refused has changed nothing")
		require.Equal(t, []int{1}, s.stored(t))
	})
}

// TestTwoLibrariesShareOneTransaction: gorm and plain database/sql, each with
// statements and transactions of its own.
func TestTwoLibrariesShareOneTransaction(t *testing.T) {
	t.Parallel()
	no := errors.New("no")
	eachServer(t, func(t *testing.T, s stage) {
		p := s.open(t, 2)
		g, err := gorm.Open(dialector(s.account.Server.Engine, p.DB), &gorm.Config{Logger: logger.Discard})
		require.NoError(t, err)
		require.NoError(t, g.AutoMigrate(&author{}, &book{}))
		create := func(g *gorm.DB) error { return g.Create(&author{Name: "A", Books: []book{{Title: "B"}}}).Error }
		plain := func(ctx context.Context) error {
			_, err := p.ExecContext(ctx, insertInto(1))
			return err
		}
		for _, outer := range []struct {
			name string
			run  func(ctx context.Context, work func(g *gorm.DB) error) error
		}{
			{"gorm's transaction", func(ctx context.Context, work func(g *gorm.DB) error) error {
				return g.WithContext(ctx).Transaction(work)
			}},
			{"plain transaction", func(ctx context.Context, work func(g *gorm.DB) error) error {
				tx, err := p.BeginTx(ctx, nil)
				require.NoError(t, err)
				if err := work(g.WithContext(ctx)); err != nil {
					require.NoError(t, tx.Rollback())
					return err
				}
				return tx.Commit()
			}},
			{"InTx", func(ctx context.Context, work func(g *gorm.DB) error) error {
				return pooldriver.InTx(ctx, p.DB, nil, func(ctx context.Context, _ *sql.Tx) error { return work(g.WithContext(ctx)) })
			}},
		} {
			for _, fails := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/fails=%t", outer.name, fails), func(t *testing.T) {
					for _, table := range []string{"ledger", "books", "authors"} {
						mustExec(t, s.witness, "DELETE FROM "+table)
					}
					err := pooldriver.Do(t.Context(), func(ctx context.Context) error {
						return outer.run(ctx, func(g *gorm.DB) error {
							ctx := g.Statement.Context
							require.NoError(t, plain(ctx))
							require.NoError(t, create(g))
							require.ErrorIs(t, g.Transaction(func(g *gorm.DB) error {
								require.NoError(t, plain(ctx))
								require.NoError(t, create(g))
								return no
							}), no)
							require.NoError(t, create(g))
							require.Equal(t, 1, p.count(ctx, t), "what gorm has rolled back")
							if fails {
								return no
							}
							return nil
						})
					})
					want := 1
					if fails {
						require.ErrorIs(t, err, no)
						want = 0
					} else {
						require.NoError(t, err)
					}
					require.Len(t, s.stored(t), want)
					for _, table := range []string{"books", "authors"} {
						var n int
						require.NoError(t, s.witness.QueryRowContext(t.Context(), "SELECT count(*) FROM "+table).Scan(&n))
						require.Equal(t, 2*want, n, table)
					}
					p.requireNothingLeft(t)
				})
			}
		}
	})
}

// TestCopyInATasksTransactionBelongsToIt: what only the driver can do.
func TestCopyInATasksTransactionBelongsToIt(t *testing.T) {
	t.Parallel()
	s := stage{name: "postgres", account: testbed.Shared(t, testbed.Postgres).NewAccount(t)}
	s.witness = s.account.Witness(t)
	p := s.open(t, 2)
	mustExec(t, p.DB, "CREATE TABLE ledger (id integer)")
	for _, commits := range []bool{false, true} {
		for _, nested := range []bool{false, true} {
			t.Run(fmt.Sprintf("commits=%t/nested=%t", commits, nested), func(t *testing.T) {
				mustExec(t, s.witness, "DELETE FROM ledger")
				ctx, end := pooldriver.WithTask(t.Context())
				defer end()
				tx, err := p.BeginTx(ctx, nil)
				require.NoError(t, err)
				p.mustExec(ctx, t, insertInto(1))
				copied := func(ctx context.Context) error {
					conn, err := p.Conn(ctx)
					if err != nil {
						return err
					}
					defer conn.Close()
					return pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
						_, err := dc.(*stdlib.Conn).Conn().CopyFrom(ctx, pgx.Identifier{"ledger"}, []string{"id"},
							pgx.CopyFromRows([][]any{{2}, {3}}))
						return err
					})
				}
				if nested {
					require.NoError(t, pooldriver.InTx(ctx, p.DB, nil, func(ctx context.Context, _ *sql.Tx) error { return copied(ctx) }))
				} else {
					require.NoError(t, copied(ctx))
				}
				require.Equal(t, 3, p.count(ctx, t))
				require.Empty(t, s.stored(t), "nobody else sees it yet")
				want := []int{}
				if commits {
					require.NoError(t, tx.Commit())
					want = []int{1, 2, 3}
				} else {
					require.NoError(t, tx.Rollback())
				}
				require.Equal(t, want, s.stored(t))
				end()
				p.requireNothingLeft(t)
			})
		}
	}
}
