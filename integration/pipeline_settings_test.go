package integration

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// whoReads asks a row of a table, which each schema has, and by which settings it was read.
const whoReads = `SELECT schema, current_schema(), current_user, coalesce(current_setting('app.who', true), ''), '2024-01-01 00:00:00'::timestamptz::text FROM t WHERE id = $1`

// sight is what whoReads sees.
type sight struct{ table, schema, role, who, time string }

// TestNoReadInAPipelineHasAnothersSettings: half of the reads have settings of their contexts, tasks with state, or
// connections whose borrower sets a role and a search_path and leaves them.
func TestNoReadInAPipelineHasAnothersSettings(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	witness := account.Witness(t)
	other := account.User + "_other"
	mustExec(t, witness, "CREATE SCHEMA "+other)
	for _, schema := range []string{"public", other} {
		mustExec(t, witness, fmt.Sprintf("CREATE TABLE %s.t (id int PRIMARY KEY, schema text)", schema))
		mustExec(t, witness, fmt.Sprintf("INSERT INTO %[1]s.t SELECT i, '%[1]s' FROM generate_series(1, 100) i", schema))
		mustExec(t, witness, fmt.Sprintf("GRANT USAGE ON SCHEMA %s TO PUBLIC", schema))
		mustExec(t, witness, fmt.Sprintf("GRANT SELECT ON %s.t TO PUBLIC", schema))
	}
	for _, options := range [][]string{{"pool_reset=auto"}, {"pool_reset=always"}} {
		t.Run(options[0], func(t *testing.T) {
			connector := pooldriver.New(account.URL(append(options, "pool_max_conns=3", "pool_pipeline=16", "timezone=UTC")...), quiet)
			db := sql.OpenDB(connector)
			defer db.Close()
			r := &settingReaders{T: t, db: db, role: account.Role, other: other, plain: sight{"public", "public", account.User, "", "2024-01-01 00:00:00+00"}}
			goal := int64(randomtest.Rounds(4000, 500_000))
			pipelined := func() bool { return connector.Stats().Pool.Pipelined > uint64(goal/20) }
			r.run(goal, pipelined)
			s := connector.Stats().Pool
			t.Logf("%d reads, half of them with settings of their own; %d in %d pipelines", r.reads.Load(), s.Pipelined, s.Pipelines)
			require.NotZero(t, s.Pipelined)
		})
	}
}

type settingReaders struct {
	*testing.T
	db          *sql.DB
	plain       sight
	role, other string
	reads       atomic.Int64
}

func (r *settingReaders) run(goal int64, pipelined func() bool) {
	begun := time.Now()
	var all sync.WaitGroup
	for i := range 40 {
		all.Go(func() {
			for n := 0; !r.Failed() && (r.reads.Load() < goal || !pipelined() && time.Since(begun) < slowMachine); n++ {
				r.reads.Add(1)
				want := r.plain
				if (i+n)%2 == 0 {
					r.check(r.Context(), r.db, want)
				} else {
					r.different(want)
				}
			}
		})
	}
	all.Wait()
}

// different reads with settings of its own.
func (r *settingReaders) different(want sight) {
	ctx := r.Context()
	switch rand.N(4) {
	case 0:
		want.who = fmt.Sprint(rand.N(1000))
		r.check(pooldriver.WithSettings(ctx, pooldriver.Settings{"app.who": want.who}), r.db, want)
	case 1:
		want.time = "2024-01-01 00:00:00+09"
		r.check(pooldriver.WithSettings(ctx, pooldriver.Settings{"timezone": "Asia/Tokyo"}), r.db, want)
	case 2:
		task, end := pooldriver.WithTask(ctx)
		defer end()
		r.check(task, r.db, want)
		r.changes(task, r.db, want)
	case 3:
		conn, err := r.db.Conn(ctx)
		if err != nil {
			r.Error(err)
			return
		}
		defer conn.Close()
		r.check(ctx, conn, want)
		r.changes(ctx, conn, want)
	}
}

// changes sets state, reads by it, and leaves it.
func (r *settingReaders) changes(ctx context.Context, on querier, want sight) {
	want.table, want.schema, want.role, want.who = r.other, r.other, r.role, "me"
	for _, text := range []string{"SET search_path = " + r.other, "SET ROLE " + r.role, "SET app.who = 'me'"} {
		if _, err := on.ExecContext(ctx, text); err != nil {
			r.Error(err)
			return
		}
	}
	r.check(ctx, on, want)
}

func (r *settingReaders) check(ctx context.Context, on querier, want sight) {
	var got sight
	err := on.QueryRowContext(ctx, whoReads, 1+rand.N(100)).Scan(&got.table, &got.schema, &got.role, &got.who, &got.time)
	if err != nil || got != want {
		r.Errorf("%v: %+v in place of %+v", err, got, want)
	}
}

// TestReadsWithSettingsShareAPipeline: each is in a transaction of its own, with its own settings. Refused ones cost nobody else.
func TestReadsWithSettingsShareAPipeline(t *testing.T) {
	const text = "SELECT coalesce(current_setting('app.tenant', true), '') || n FROM items WHERE id = $1"
	p := openCrowd(t, testbed.Shared(t, testbed.Postgres).NewAccount(t))
	all := []pooldriver.Settings{
		{"app.tenant": "a"}, nil, {"app.tenant": "b", "work_mem": "1MB"}, {"statement_timeout": "secret"}, {"app.tenant": "c"}, nil,
		{"timezone": "Asia/Tokyo"}, {"search_path": "public"},
	}
	ask := func(i int) (got string, err error) {
		err = p.db.QueryRowContext(pooldriver.WithSettings(t.Context(), all[i]), text, i+1).Scan(&got)
		return got, err
	}
	for range 40 { // the server is asked also behind settings whether the text has written
		_, err := ask(0)
		require.NoError(t, err)
	}
	for try := 0; ; try++ {
		require.Less(t, try, mostTries)
		p.prepare(t)
		before := p.c.Stats()
		held, err := p.db.Conn(t.Context())
		require.NoError(t, err)
		require.NoError(t, held.PingContext(t.Context()))
		var asking sync.WaitGroup
		got, errs := make([]string, len(all)), make([]error, len(all))
		for i := range all {
			asking.Go(func() { got[i], errs[i] = ask(i) })
			require.Eventually(t, func() bool { return p.c.Stats().Pool.Waiting == i+1 }, slowMachine, 50*time.Microsecond)
		}
		require.NoError(t, held.Close())
		asking.Wait()
		require.Equal(t, []string{"a1", "2", "b3", "", "c5", "6", "7", ""}, got)
		for i, err := range errs {
			switch i {
			case 3:
				require.ErrorContains(t, err, "the server refuses one of the settings statement_timeout of the context")
				require.NotContains(t, err.Error(), "secret")
			case 7:
				require.ErrorContains(t, err, `"search_path" is not allowed`)
			default:
				require.NoError(t, err, i)
			}
		}
		if after := p.c.Stats(); after.Pipelined-before.Pipelined == 5 && after.PipelineRepeats == before.PipelineRepeats {
			return // else the machine stood still
		}
	}
}
