package integration

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/integration/byteproxy"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// firstValues returns the first value or the error of each answer.
func firstValues(ctx context.Context, s dialects.Session, limit dialects.PipelineLimits, calls ...dialects.PipelinedQuery) (answers []any, err error) {
	err = s.(dialects.Pipeliner).QueryTogether(ctx, calls, limit, func(i int, rows driver.Rows, err error) {
		if i != len(answers) {
			panic("answers are not in order")
		}
		if err != nil {
			answers = append(answers, err)
			return
		}
		value := make([]driver.Value, len(rows.Columns()))
		if err := rows.Next(value); err == io.EOF {
			value[0] = nil
		} else if err != nil {
			value[0] = err
		}
		answers = append(answers, value[0])
	})
	return answers, err
}

func dialTogether(t testing.TB, account testbed.Account, parameters ...string) dialects.Session {
	_, tmpl := pgTemplate(t, account.URL(parameters...))
	return pgDial(t, tmpl)
}

func TestPostgresPipelineOfAStatementWhosePlanIsStale(t *testing.T) {
	t.Parallel()
	s := dialTogether(t, testbed.Shared(t, testbed.Postgres).NewAccount(t))
	d, err := dialects.Find("postgres://h/d")
	require.NoError(t, err)
	for _, text := range []string{"CREATE TABLE t (a int)", "INSERT INTO t VALUES (1)"} {
		pgExec(t, s, text)
	}
	calls := []dialects.PipelinedQuery{pipelined("SELECT 1"), pipelined("SELECT * FROM t"), pipelined("SELECT 2")}
	for _, change := range []string{"ALTER TABLE t ADD b int", "ALTER TABLE t ALTER a TYPE text"} {
		_, err := firstValues(t.Context(), s, pipelineLimit, calls...)
		require.NoError(t, err)
		pgExec(t, s, change)
		answers, err := firstValues(t.Context(), s, pipelineLimit, calls...)
		require.NoError(t, err)
		require.EqualValues(t, 1, answers[0])
		require.ErrorContains(t, answers[1].(error), "0A000")
		require.Equal(t, dialects.StaleStatement, d.Diagnose(answers[1].(error)))
		require.EqualValues(t, 2, answers[2])
	}
	answers, err := firstValues(t.Context(), s, pipelineLimit, calls...)
	require.NoError(t, err)
	require.Equal(t, []any{int64(1), "1", int64(2)}, answers)
	pgExec(t, s, "DEALLOCATE ALL") // nobody has said so
	answers, err = firstValues(t.Context(), s, pipelineLimit, calls[0])
	require.NoError(t, err)
	require.Equal(t, dialects.StaleStatement, d.Diagnose(answers[0].(error)))
	answers, err = firstValues(t.Context(), s, pipelineLimit, calls[0])
	require.NoError(t, err)
	require.Equal(t, []any{int64(1)}, answers)
}

func TestPostgresPipelineLeavesOutWhatIsTooLarge(t *testing.T) {
	t.Parallel()
	s := dialTogether(t, testbed.Shared(t, testbed.Postgres).NewAccount(t))
	answers, err := firstValues(t.Context(), s, dialects.PipelineLimits{Bytes: 1000, Statements: 128}, pipelined("SELECT repeat('x', 900)"), pipelined("SELECT repeat('x', 1001)"),
		pipelined("SELECT g, repeat('x', 1000) FROM generate_series(1, 5000) g"), pipelined("SELECT 10 / (300 - g) FROM generate_series(1, 300) g"), pipelined("SELECT 7"))
	require.NoError(t, err)
	require.Len(t, answers[0], 900)
	require.Equal(t, []any{dialects.ErrTooLarge, dialects.ErrTooLarge, dialects.ErrTooLarge, int64(7)}, answers[1:])
	require.EqualValues(t, 8, pgValue(t, s, "SELECT 8"))
}

const countPipelined = "SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'pooldriver%'"

func TestPostgresPipelineKeepsAFewStatements(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	for parameter, most := range map[string]int64{"statement_cache_capacity=512": 128, "statement_cache_capacity=5": 5} {
		s := dialTogether(t, account, parameter)
		for round := range 30 {
			var calls []dialects.PipelinedQuery
			for i := range 16 {
				calls = append(calls, pipelined(fmt.Sprintf("SELECT %d", round*8+i)))
			}
			answers, err := firstValues(t.Context(), s, pipelineLimit, calls...)
			require.NoError(t, err)
			for i := range calls {
				require.EqualValues(t, round*8+i, answers[i])
			}
		}
		_, err := firstValues(t.Context(), s, pipelineLimit, pipelined("SELECT 247")) // it closes what the last one has dropped
		require.NoError(t, err)
		require.Equal(t, most, pgValue(t, s, countPipelined))
	}
}

func TestPostgresPipelineForgetsStatementsThatHaveEndedOrMeanSomethingElse(t *testing.T) {
	t.Parallel()
	s := dialTogether(t, testbed.Shared(t, testbed.Postgres).NewAccount(t), "timezone=UTC")
	ask := pipelined("SELECT '2024-01-01 00:00:00'::timestamptz::text")
	noon := func() any {
		answers, err := firstValues(t.Context(), s, pipelineLimit, ask)
		require.NoError(t, err)
		return answers[0]
	}
	set := func(settings ...dialects.ContextSetting) {
		require.NoError(t, s.(dialects.SettingsSetter).SetSettings(t.Context(), settings))
	}
	tokyo := dialects.ContextSetting{Name: "timezone", Value: "Asia/Tokyo"}
	require.Equal(t, "2024-01-01 00:00:00+00", noon())
	set(tokyo)
	require.Equal(t, "2024-01-01 00:00:00+09", noon())
	set(dialects.ContextSetting{Name: "my.tenant", Value: "7"})
	require.Equal(t, "2024-01-01 00:00:00+00", noon())
	set(tokyo)
	require.Equal(t, "2024-01-01 00:00:00+09", noon())
	for effect, want := range map[dialects.Effect]bool{dialects.Stateful: true, dialects.Suspect: false} {
		kept, err := s.Clean(t.Context(), effect)
		require.NoError(t, err)
		require.Equal(t, want, kept)
		require.Equal(t, "2024-01-01 00:00:00+00", noon())
	}
	require.EqualValues(t, 1, pgValue(t, s, countPipelined))
}

func TestPostgresPipelineEndsWithItsContext(t *testing.T) {
	t.Parallel()
	for _, server := range []*testbed.Server{testbed.Shared(t, testbed.Postgres), testbed.Start(t, testbed.Postgres, testbed.WithTLSOnly())} {
		account := server.NewAccount(t)
		witness := account.Witness(t)
		s := dialTogether(t, account)
		calls := []dialects.PipelinedQuery{pipelined("SELECT 1"), pipelined("SELECT 2 FROM pg_sleep(60)"), pipelined("SELECT 3 FROM pg_sleep(60)")}
		sent, _ := s.Sent()
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_, err := firstValues(ended, s, pipelineLimit, calls...)
		require.ErrorIs(t, err, context.Canceled)
		after, _ := s.Sent()
		require.Equal(t, sent, after)

		passed := make(chan struct{})
		began := time.Now()
		var answers []any
		err = s.(dialects.Pipeliner).QueryTogether(expiring{t.Context(), passed}, calls, pipelineLimit, func(i int, rows driver.Rows, err error) {
			if i == 0 {
				value := make([]driver.Value, 1)
				require.NoError(t, err)
				require.NoError(t, rows.Next(value))
				answers = append(answers, value[0])
				time.AfterFunc(300*time.Millisecond, func() { close(passed) })
				return
			}
			answers = append(answers, err)
		})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.Less(t, time.Since(began), 30*time.Second, "the statements would take two minutes")
		require.Equal(t, []any{int64(1)}, answers)
		require.Equal(t, dialects.TxLost, s.TxStatus())
		require.Equal(t, dialects.Dead, s.Peek())
		_, err = firstValues(t.Context(), s, pipelineLimit, calls[0])
		require.ErrorIs(t, err, driver.ErrBadConn)
		require.NoError(t, s.Close(t.Context()), "the server has ended all of them")
		require.Zero(t, listed(t, witness, pgPID(s)))
	}
}

func TestPostgresPipelineWhoseContextEndsBehindTheLastAnswer(t *testing.T) {
	t.Parallel()
	s := dialTogether(t, testbed.Shared(t, testbed.Postgres).NewAccount(t))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	calls := []dialects.PipelinedQuery{pipelined("SELECT 1"), pipelined("SELECT 2")}
	require.NoError(t, s.(dialects.Pipeliner).QueryTogether(ctx, calls, pipelineLimit, func(i int, _ driver.Rows, _ error) {
		if i == 1 {
			cancel()
			time.Sleep(20 * time.Millisecond) // until the connection is told
		}
	}))
	require.EqualValues(t, 3, pgValue(t, s, "SELECT 3"))
}

// A context that ends when the answers have come, or just before, breaks the connection or does not:
// the next statement shows which is true.
func TestPostgresPipelineWhoseContextEndsAtAnyMoment(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	random := randomtest.Seeded(t)
	var s dialects.Session
	var whole, broken int
	for range randomtest.Rounds(200, 5000) {
		if s == nil || s.TxStatus() == dialects.TxLost {
			s = dialTogether(t, account)
			_, err := firstValues(t.Context(), s, pipelineLimit, pipelined("SELECT 7"))
			require.NoError(t, err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(900))*time.Microsecond)
		answers, err := firstValues(ctx, s, pipelineLimit, pipelined("SELECT 7"), pipelined("SELECT 7"), pipelined("SELECT 7"))
		cancel()
		for _, answer := range answers {
			require.Equal(t, int64(7), answer)
		}
		if err == nil {
			whole++
			require.Len(t, answers, 3)
			require.Equal(t, int64(7), pgValue(t, s, "SELECT 7"))
		} else {
			broken++
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
	}
	t.Logf("%d whole, %d not", whole, broken)
}

func TestPostgresPipelineWhoseSessionIsKilled(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	s, witness := dialTogether(t, account), account.Witness(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for killed := false; !killed && t.Context().Err() == nil; {
			const kill = "SELECT count(pg_terminate_backend(pid)) = 1 FROM pg_stat_activity WHERE pid = $1 AND wait_event = 'PgSleep'"
			_ = witness.QueryRow(kill, pgPID(s)).Scan(&killed)
		}
	}()
	answers, err := firstValues(t.Context(), s, pipelineLimit, pipelined("SELECT 1"), pipelined("SELECT 2 FROM pg_sleep(60)"), pipelined("SELECT 3"))
	<-done
	var server *pgconn.PgError
	require.True(t, errors.As(err, &server), "%v", err)
	require.Equal(t, "57P01", server.Code)
	require.Equal(t, []any{int64(1)}, answers)
	require.Equal(t, dialects.TxLost, s.TxStatus())
}

// Whichever byte is the last one: what is answered is right, and the rest has no answer.
func TestPostgresPipelineIsCutAtAnyByte(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	proxy, err := byteproxy.Listen(account.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	random := randomtest.Seeded(t)
	_, tmpl := pgTemplate(t, account.Via(proxy.Addr()).URL())
	dial := func() (dialects.Session, []dialects.PipelinedQuery) {
		s, err := tmpl.Dial(t.Context(), nil)
		require.NoError(t, err)
		var calls []dialects.PipelinedQuery
		for i := range 8 {
			calls = append(calls, pipelined("SELECT $1::int, repeat('x', $1)", i))
		}
		_, err = firstValues(t.Context(), s, pipelineLimit, calls...)
		require.NoError(t, err)
		return s, calls
	}
	s, calls := dial()
	proxy.Count()
	_, err = firstValues(t.Context(), s, pipelineLimit, calls...)
	require.NoError(t, err)
	var size [2]int64
	size[byteproxy.ToServer], size[byteproxy.ToClient] = proxy.Counted()
	require.Equal(t, 1, proxy.RoundTrips())
	require.NoError(t, s.Close(t.Context()))

	for range randomtest.Rounds(60, 1000) {
		s, calls := dial()
		fault := byteproxy.Fault{Direction: byteproxy.Direction(random.IntN(2)), Cut: byteproxy.Cut(random.IntN(2))}
		fault.At = rand.N(size[fault.Direction])
		proxy.Arm(fault)
		answers, err := firstValues(t.Context(), s, pipelineLimit, calls...)
		require.Error(t, err, fault)
		require.Less(t, len(answers), len(calls), fault)
		for i, answer := range answers {
			require.EqualValues(t, i, answer, fault)
		}
		require.Equal(t, dialects.TxLost, s.TxStatus(), fault)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_ = s.Close(ctx)
		cancel()
	}
}

// A proxy that cannot pipeline may answer a part, and then nothing.
func TestPostgresTrialOfAPipelineThatHangs(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	proxy, err := byteproxy.Listen(account.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	s := dialTogether(t, account.Via(proxy.Addr()))
	require.NoError(t, s.(dialects.Pipeliner).Trial(t.Context()))
	proxy.Arm(byteproxy.Fault{Direction: byteproxy.ToClient, At: 100, Cut: byteproxy.Stall})
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	began := time.Now()
	require.ErrorIs(t, s.(dialects.Pipeliner).Trial(ctx), context.DeadlineExceeded)
	require.Less(t, time.Since(began), slowMachine, "nothing else would end it")
	require.Equal(t, dialects.TxLost, s.TxStatus())
	require.NoError(t, proxy.Close())
}

// The rows of pipelines are read ahead as other rows are.
func TestPostgresPipelinedRowsAreDetached(t *testing.T) {
	t.Parallel()
	s := dialTogether(t, testbed.Shared(t, testbed.Postgres).NewAccount(t))
	var rows driver.Rows
	calls := []dialects.PipelinedQuery{pipelined("SELECT '{1,2}'::int[]"), pipelined("SELECT 1")}
	require.NoError(t, s.(dialects.Pipeliner).QueryTogether(t.Context(), calls, pipelineLimit, func(i int, r driver.Rows, err error) {
		require.NoError(t, err)
		if i == 0 {
			rows = r
		}
	}))
	require.EqualValues(t, 2, pgValue(t, s, "SELECT 2"), "rows that are not closed hold up nobody")
	columns := s.(dialects.RowDetacher).DetachColumns(rows)
	require.NotNil(t, columns)
	require.NoError(t, rows.Next(make([]driver.Value, 1)))
	raw := columns.Raw(0)
	require.EqualValues(t, 3, pgValue(t, s, "SELECT 3"))
	var got []int
	done, err := columns.Scan(0, raw, &got)
	require.NoError(t, err)
	require.True(t, done)
	require.Equal(t, []int{1, 2}, got)
}

// BenchmarkPostgresPipeline compares 16 lookups, one after the other, with a pipeline of 16.
func BenchmarkPostgresPipeline(b *testing.B) {
	account := testbed.Shared(b, testbed.Postgres).NewAccount(b)
	s := dialTogether(b, account)
	for _, text := range []string{"CREATE TABLE t (id int PRIMARY KEY, v text)", "INSERT INTO t SELECT g, 'value ' || g FROM generate_series(1, 10000) g", "ANALYZE t"} {
		require.NoError(b, pgTry(b.Context(), s, text))
	}
	const n = 16
	calls := make([]dialects.PipelinedQuery, n)
	for i := range calls {
		calls[i] = pipelined("SELECT id, v FROM t WHERE id = $1", 1+i*601)
	}
	value := make([]driver.Value, 2)
	read := func(i int, rows driver.Rows, err error) {
		if err != nil || rows.Next(value) != nil || value[0] != int64(1+i*601) || rows.Close() != nil {
			b.Fatal(i, err, value)
		}
	}
	b.Run("alone", func(b *testing.B) {
		for b.Loop() {
			for i, call := range calls {
				rows, err := s.Conn().(driver.QueryerContext).QueryContext(b.Context(), call.Text, call.Args)
				read(i, rows, err)
			}
		}
	})
	b.Run("together", func(b *testing.B) {
		for b.Loop() {
			if err := s.(dialects.Pipeliner).QueryTogether(b.Context(), calls, pipelineLimit, read); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// A session that is in the middle of something says nothing of others.
func TestPostgresTrialOfASessionThatIsBusy(t *testing.T) {
	t.Parallel()
	s := dialTogether(t, testbed.Shared(t, testbed.Postgres).NewAccount(t))
	pgExec(t, s, "BEGIN")
	require.Equal(t, dialects.ErrNotPipelined, s.(dialects.Pipeliner).Trial(t.Context()))
	pgExec(t, s, "ROLLBACK")
	require.NoError(t, s.(dialects.Pipeliner).Trial(t.Context()))
}
