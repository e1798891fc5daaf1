package integration

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestAServerThatHangsCostsAConnectionAndNoPlace has a server stand still, its
// connections open, while transactions are. ROLLBACK, which most drivers send
// without a context, gets no answer; the place in the pool is free nevertheless.
func TestAServerThatHangsCostsAConnectionAndNoPlace(t *testing.T) {
	t.Parallel()
	const clean = 500 * time.Millisecond
	const orphaned = 5 * time.Second // the server is given that long to let go of a connection
	for _, engine := range testbed.Engines() {
		t.Run(engine.String(), func(t *testing.T) {
			t.Parallel()
			server := testbed.Start(t, engine, testbed.WithRestart())
			direct := serverStage(t, server.NewAccount(t))
			type way struct {
				name string
				pool stagePool
				end  func()
			}
			var ways []way
			for _, s := range append([]stage{direct}, direct.overODBC()...) {
				name := "direct"
				if s.odbc {
					name = "odbc"
				}
				task := s.openURL(t, s.url("pool_max_conns=1", "pool_clean_timeout="+clean.String()))
				ctx, end := pooldriver.NewTask(context.Background())
				tx, err := task.BeginTx(ctx, nil)
				require.NoError(t, err)
				_, err = tx.ExecContext(ctx, insertInto(1))
				require.NoError(t, err)
				ways = append(ways, way{name + ", a task ends", task, end})

				plain := s.openURL(t, s.url("pool_max_conns=1", "pool_clean_timeout="+clean.String()))
				ctx, cancel := context.WithCancel(context.Background())
				t.Cleanup(cancel)
				tx, err = plain.BeginTx(ctx, nil)
				require.NoError(t, err)
				_, err = tx.ExecContext(ctx, insertInto(2))
				require.NoError(t, err)
				ways = append(ways, way{name + ", a transaction's context ends", plain, cancel})

				if s.odbc {
					continue // nobody can cut an ODBC driver's connection
				}
				busy := s.openURL(t, s.url("pool_max_conns=1", "pool_clean_timeout="+clean.String()))
				ctx, end = pooldriver.NewTask(context.Background())
				executed := make(chan error, 1)
				endless := context.WithoutCancel(ctx)
				busy.mustExec(endless, t, insertInto(3)) // so that it is connected
				go func() {
					_, err := busy.ExecContext(endless, sleepFor(engine, time.Hour))
					executed <- err
				}()
				require.Eventually(t, func() bool { return busy.lent() == 1 }, 10*time.Second, time.Millisecond)
				ways = append(ways, way{name + ", a task ends while a statement without a context runs", busy, func() {
					end()
					if <-executed == nil {
						t.Error("the server has not answered")
					}
				}})
			}
			server.Pause(t)
			paused := time.Now()
			for _, w := range ways {
				go w.end()
			}
			for _, w := range ways {
				require.Eventually(t, func() bool { return w.pool.connector.Stats().Pool.Count == 0 },
					2*orphaned+5*time.Second, 10*time.Millisecond, w.name)
				t.Logf("%s: the place is free after %v", w.name, time.Since(paused).Round(time.Millisecond))
			}
			server.Kill(t)
			server.Start(t)
			require.Equal(t, []int{3}, direct.stored(t))
			for _, w := range ways {
				require.Eventually(t, func() bool { return w.pool.Ping() == nil }, 10*time.Second, 10*time.Millisecond, w.name)
			}
		})
	}
}
