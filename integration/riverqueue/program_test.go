package riverqueue

import (
	"context"
	"database/sql"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
	"github.com/pooldriver/pooldriver/riverpooldriver"
	"github.com/pooldriver/pooldriver/sandbox"
)

// Ship are the arguments of a job.
type Ship struct {
	Order int    `json:"order"`
	Note  string `json:"note"`
}

func (Ship) Kind() string { return "ship" }

// Shipped is a row that a job writes.
type Shipped struct{ Order int }

func (Shipped) TableName() string { return "shipped" }

// never is a poll interval so long that only a notification can begin a job.
const never = time.Hour

// program is a service with a client of River.
type program struct {
	service
	client *river.Client[pgx.Tx]
	gorm   *gorm.DB
	at     pooldriver.Stats // after the migrations, whose DO blocks cost a cleaning and a connection

	mu    sync.Mutex
	began map[int]time.Time // by order
}

// run starts a program. Each job writes a row, and completes in the same transaction.
func run(t *testing.T, s service) *program {
	t.Helper()
	p := &program{service: s, began: map[int]time.Time{}}
	_, err := p.pool.Exec(t.Context(), `CREATE TABLE shipped ("order" int PRIMARY KEY)`)
	require.NoError(t, err)
	p.gorm, err = gorm.Open(postgres.New(postgres.Config{Conn: p.db}), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(p.work))
	p.client, err = river.NewClient(riverpooldriver.New(p.pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 20}}, Workers: workers,
		FetchCooldown: time.Millisecond, FetchPollInterval: never, Logger: silent,
	})
	require.NoError(t, err)
	p.at = p.connector.Stats()
	require.NoError(t, p.client.Start(t.Context()))
	t.Cleanup(func() { _ = p.client.StopAndCancel(context.WithoutCancel(t.Context())) })
	return p
}

func (p *program) work(ctx context.Context, job *river.Job[Ship]) error {
	p.mu.Lock()
	p.began[job.Args.Order] = time.Now()
	p.mu.Unlock()
	return pooldriver.Do(ctx, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
			if err := p.gorm.WithContext(ctx).Create(&Shipped{job.Args.Order}).Error; err != nil {
				return err
			}
			_, err := river.JobCompleteTx[*riverpooldriver.Driver](ctx, tx, job)
			return err
		})
	})
}

// completed waits until n jobs are done, and no more.
func (p *program) completed(t *testing.T, n int) {
	t.Helper()
	p.completedOf(t, n, n)
}

// completedOf is completed where n of all jobs are those of the program.
func (p *program) completedOf(t *testing.T, n, all int) {
	t.Helper()
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		var rows, jobs, others int
		require.NoError(t, p.db.QueryRow("SELECT count(*) FROM shipped").Scan(&rows))
		require.NoError(t, p.db.QueryRow("SELECT count(*) FILTER (WHERE state = 'completed'), count(*) FILTER (WHERE state <> 'completed') FROM river_job").Scan(&jobs, &others))
		require.Equal(t, []int{n, all, 0}, []int{rows, jobs, others}, "rows, jobs completed, others")
	}, waits, 20*time.Millisecond)
}

// gone reports whether there is no such job.
func (p *program) gone(t *testing.T, id int64) bool {
	t.Helper()
	_, err := p.client.JobGet(t.Context(), id)
	if !errors.Is(err, rivertype.ErrNotFound) {
		require.NoError(t, err)
	}
	return err != nil
}

var errUndone = errors.New("undone")

// eachWay runs a test with the settings that change how statements are sent.
func eachWay(t *testing.T, test func(t *testing.T, parameters ...string)) {
	t.Parallel()
	for _, way := range []string{"pool_lazy_begin=false", "pool_lazy_begin=true", "pool_pipeline=16", "default_query_exec_mode=exec", "default_query_exec_mode=simple_protocol"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			test(t, way, "pool_max_conns=4")
		})
	}
}

func TestAJobBelongsToTheTransactionOfItsTask(t *testing.T) { eachWay(t, jobsBelong) }

func jobsBelong(t *testing.T, parameters ...string) {
	p := run(t, open(t, parameters...))
	// Each inserts a job in a transaction, which ends with the error that it is given.
	ways := []func(ctx context.Context, job Ship, ends error) (int64, error){
		p.byPgx, p.byGorm, p.byGormAndInsertTx, p.byDatabaseSQL,
	}
	for i, insert := range ways {
		id, err := insert(t.Context(), Ship{Order: 100 + i}, errUndone)
		require.ErrorIs(t, err, errUndone)
		require.NotZero(t, id)
		require.True(t, p.gone(t, id), "way %d", i)
	}
	for i, insert := range ways {
		id, err := insert(t.Context(), Ship{Order: i, Note: `a "note" \ ü`}, nil)
		require.NoError(t, err)
		require.False(t, p.gone(t, id), "way %d", i)
	}
	p.completed(t, len(ways))
	p.isClean(t)
	require.NoError(t, p.client.Stop(t.Context()))
	require.Len(t, p.began, len(ways))
}

func idOf(r *rivertype.JobInsertResult, err error) (int64, error) {
	if err != nil {
		return 0, err
	}
	return r.Job.ID, nil
}

func (p *program) byPgx(ctx context.Context, job Ship, ends error) (id int64, err error) {
	err = pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
		if id, err = idOf(p.client.InsertTx(ctx, tx, job, nil)); err != nil {
			return err
		}
		return ends
	})
	return id, err
}

func (p *program) byGorm(ctx context.Context, job Ship, ends error) (id int64, err error) {
	err = pooldriver.Do(ctx, func(ctx context.Context) error {
		return p.gorm.WithContext(ctx).Transaction(func(*gorm.DB) error {
			if id, err = idOf(p.client.Insert(ctx, job, nil)); err != nil {
				return err
			}
			return ends
		})
	})
	return id, err
}

func (p *program) byGormAndInsertTx(ctx context.Context, job Ship, ends error) (id int64, err error) {
	err = pooldriver.Do(ctx, func(ctx context.Context) error {
		return p.gorm.WithContext(ctx).Transaction(func(*gorm.DB) error {
			if id, err = p.byPgx(ctx, job, nil); err != nil {
				return err
			}
			return ends
		})
	})
	return id, err
}

func (p *program) byDatabaseSQL(ctx context.Context, job Ship, ends error) (id int64, err error) {
	err = pooldriver.InTx(ctx, p.db, nil, func(ctx context.Context, tx *sql.Tx) error {
		if id, err = idOf(p.client.Insert(ctx, job, nil)); err != nil {
			return err
		}
		var seen int64
		if err := tx.QueryRowContext(ctx, "SELECT id FROM river_job WHERE id = $1", id).Scan(&seen); err != nil {
			return err
		}
		return ends
	})
	return id, err
}

// TestFiveHundredJobs: the server itself refuses a connection more than pool_max_conns and that of the listener.
func TestFiveHundredJobs(t *testing.T) {
	t.Parallel()
	p := run(t, open(t, "pool_max_conns=4"))
	p.LimitConnections(t, 4+1)
	watch := p.Watch(t)
	order := 0
	many := func(n int) (all []river.InsertManyParams) {
		for range n {
			order++
			all = append(all, river.InsertManyParams{Args: Ship{Order: order}})
		}
		return all
	}
	for range 4 {
		_, err := p.client.InsertMany(t.Context(), many(50))
		require.NoError(t, err)
	}
	_, err := p.client.InsertManyFast(t.Context(), many(200))
	require.NoError(t, err)
	err = pooldriver.Do(t.Context(), func(ctx context.Context) error { // COPY in a transaction of database/sql
		return pooldriver.InTx(ctx, p.db, nil, func(ctx context.Context, _ *sql.Tx) error {
			_, err := p.client.InsertManyFast(ctx, many(50))
			return err
		})
	})
	require.NoError(t, err)
	for _, job := range many(50) {
		_, err := p.client.Insert(t.Context(), job.Args, nil)
		require.NoError(t, err)
	}
	p.completed(t, 500)
	p.isClean(t)
	require.NoError(t, p.client.Stop(t.Context()))
	peak := watch.Stop()
	require.LessOrEqual(t, peak.Backends, 4+1)
	require.Greater(t, peak.Backends, 1)
	stats := p.connector.Stats()
	require.Zero(t, stats.DialErrors, "the server has refused a connection")
	require.Zero(t, stats.Listen.Losses)
	p.atRest(t)
}

func TestANotificationBeginsAJob(t *testing.T) {
	t.Parallel()
	p := run(t, open(t, "pool_max_conns=4"))
	p.LimitConnections(t, 4+1)
	begins := func(order int) time.Duration {
		at := time.Now()
		_, err := p.client.Insert(t.Context(), Ship{Order: order}, nil)
		require.NoError(t, err)
		p.completed(t, order)
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.began[order].Sub(at)
	}
	require.Less(t, begins(1), waits)
	require.Equal(t, 3, p.connector.Stats().Listen.Channels)
	witness := p.Witness(t)
	for order := 2; order < 5; order++ {
		before := p.connector.Stats().Listen
		require.Equal(t, pooldriver.ListenListening, before.State)
		var killed int
		require.NoError(t, witness.QueryRow("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = $1 AND pid = $2", p.User, p.listener(t)).Scan(&killed))
		require.Equal(t, 1, killed)
		require.Eventually(t, func() bool {
			now := p.connector.Stats().Listen
			return now.Losses == before.Losses+1 && now.State == pooldriver.ListenListening && now.Channels == 3
		}, waits, tick)
		require.Less(t, begins(order), waits)
	}
	require.NoError(t, p.client.Stop(t.Context()))
	p.atRest(t)
}

func (p *program) atRest(t *testing.T) {
	t.Helper()
	require.Eventually(t, func() bool {
		now := p.connector.Stats()
		return now.Pool.Active == 0 && now.Listen.State == pooldriver.ListenUnused
	}, waits, tick, "%v", p.connector.Holders())
}

// isClean wants that nothing of what River sends is taken for state of its session.
func (p *program) isClean(t *testing.T) {
	t.Helper()
	now := p.connector.Stats()
	require.Zero(t, now.Discards-p.at.Discards, "connections closed at their return")
	require.Zero(t, now.Cleanings-p.at.Cleanings, "cleanings")
}

// listener is the server's number of the connection that listens.
func (p *program) listener(t *testing.T) int64 {
	t.Helper()
	for _, h := range p.connector.Holders() {
		if h.Pin == pooldriver.PinListen {
			return int64(h.ProcessID)
		}
	}
	require.Fail(t, "nobody listens")
	return 0
}

// TestAClosedConnectorEndsItsClient: River does not try again for long what cannot succeed.
func TestAClosedConnectorEndsItsClient(t *testing.T) {
	t.Parallel()
	p := run(t, open(t, "pool_max_conns=4"))
	require.NoError(t, p.connector.Close())
	_, err := p.client.Insert(t.Context(), Ship{}, nil)
	require.ErrorIs(t, err, pooldriver.ErrClosed)
	ctx, cancel := context.WithTimeout(t.Context(), waits)
	defer cancel()
	require.NoError(t, p.client.Stop(ctx))
}

func TestADriverWithoutAPoolTakesTransactions(t *testing.T) {
	t.Parallel()
	s := open(t)
	client, err := river.NewClient(riverpooldriver.New(nil), &river.Config{Logger: silent})
	require.NoError(t, err)
	_, err = client.Insert(t.Context(), Ship{}, nil)
	require.Error(t, err)
	plain, err := pgx.Connect(t.Context(), s.URL())
	require.NoError(t, err)
	defer plain.Close(context.WithoutCancel(t.Context()))
	for _, beginner := range []interface {
		Begin(ctx context.Context) (pgx.Tx, error)
	}{s.pool, plain} {
		require.NoError(t, pgx.BeginFunc(t.Context(), beginner, func(tx pgx.Tx) error {
			_, err := client.InsertTx(t.Context(), tx, Ship{}, nil)
			return err
		}))
	}
}

// TestInASandboxAJobIsRolledBack: a test of a program sees what it has inserted, and leaves nothing.
func TestInASandboxAJobIsRolledBack(t *testing.T) {
	s := open(t)
	client, err := river.NewClient(riverpooldriver.New(s.pool), &river.Config{Logger: silent})
	require.NoError(t, err)
	jobs := func(ctx context.Context) int {
		all, err := client.JobList(ctx, nil)
		require.NoError(t, err)
		return len(all.Jobs)
	}
	t.Run("test", func(t *testing.T) {
		inside, err := river.NewClient(riverpooldriver.New(pgxpooldriver.New(sandbox.Connector(t, s.connector))), &river.Config{Logger: silent})
		require.NoError(t, err)
		_, err = inside.Insert(t.Context(), Ship{}, nil)
		require.NoError(t, err)
		all, err := inside.JobList(t.Context(), nil)
		require.NoError(t, err)
		require.Len(t, all.Jobs, 1)
		require.Zero(t, jobs(t.Context()))
	})
	require.Zero(t, jobs(t.Context()))
}

func TestAConnectorThatCannotListenIsAnErrorOfStartUnlessRiverPolls(t *testing.T) {
	t.Parallel()
	s := open(t)
	config, err := pgx.ParseConfig(s.URL())
	require.NoError(t, err)
	config.OnNotification = func(*pgconn.PgConn, *pgconn.Notification) {}
	cannot := over(t, s.Account, pooldriver.Wrap(stdlib.GetConnector(*config), quiet))
	startsOnlyToPoll(t, cannot, "OnNotification")
}

func startsOnlyToPoll(t *testing.T, s service, why string) {
	t.Helper()
	for _, polls := range []bool{false, true} {
		worked, workers := make(chan int, 1), river.NewWorkers()
		river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[Ship]) error {
			worked <- job.Args.Order
			return nil
		}))
		client, err := river.NewClient(riverpooldriver.New(s.pool), &river.Config{
			Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 1}}, Workers: workers,
			FetchPollInterval: 200 * time.Millisecond, PollOnly: polls, Logger: silent,
		})
		require.NoError(t, err)
		err = client.Start(t.Context())
		if !polls {
			require.ErrorContains(t, err, why)
			continue
		}
		require.NoError(t, err)
		_, err = client.Insert(t.Context(), Ship{Order: 7}, nil)
		require.NoError(t, err)
		require.Equal(t, 7, <-worked)
		require.NoError(t, client.Stop(t.Context()))
	}
}

// TestBehindPgBouncer in transaction mode, which drops notifications: the listener has a way of its own.
func TestBehindPgBouncer(t *testing.T) {
	t.Parallel()
	account := testbed.Start(t, testbed.Postgres, testbed.WithNetwork(testbed.NewNetwork(t), "db")).NewAccount(t)
	via := account.Via(testbed.StartPgBouncer(t, account, "default_pool_size=2").Addr).URL("default_query_exec_mode=exec")
	s := over(t, account, pooldriver.New(via, quiet))
	s.migrate(t)
	startsOnlyToPoll(t, s, "ListenDSN")
	p := run(t, over(t, account, pooldriver.New(via, quiet, func(c *pooldriver.Config) { c.ListenDSN = account.URL() })))
	for order := 1; order < 10; order++ {
		_, err := p.client.Insert(t.Context(), Ship{Order: order}, nil)
		require.NoError(t, err)
	}
	p.completedOf(t, 9, 10)
	require.NoError(t, p.client.Stop(t.Context()))
	p.atRest(t)
}
