package pairs

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivermigrate"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
	"github.com/pooldriver/pooldriver/riverpooldriver"
)

// jobs is a client of River. Its jobs write the row of an act.
type jobs struct{ client *river.Client[pgx.Tx] }

type job struct {
	ID int64 `json:"id"`
}

func (job) Kind() string { return "job" }

func migrate(t *testing.T, account testbed.Account) {
	t.Helper()
	c := pooldriver.New(account.URL(), func(c *pooldriver.Config) { c.Logger = slog.New(slog.DiscardHandler) })
	migrator, err := rivermigrate.New(riverpooldriver.New(pgxpooldriver.New(c)), &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

func startJobs(r *run) *jobs {
	_, err := r.witness.Exec("TRUNCATE river_job")
	require.NoError(r, err)
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(ctx context.Context, j *river.Job[job]) error {
		for {
			_, err := r.handle.exec(ctx, "INSERT INTO writes (id, tenant) VALUES ($1, (SELECT nullif(current_setting('app.tenant', true), '')))", j.Args.ID)
			if !errors.Is(err, pooldriver.ErrOverloaded) { // a refusal is no matter of River
				return err
			}
			r.refusals.Add(1)
			time.Sleep(20 * time.Millisecond)
		}
	}))
	client, err := river.NewClient(riverpooldriver.New(pgxpooldriver.New(r.connector)), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 4}}, Workers: workers,
		FetchCooldown: 20 * time.Millisecond, FetchPollInterval: 100 * time.Millisecond,
		Logger: slog.New(slog.NewTextHandler(complaints{r}, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	require.NoError(r, err)
	require.NoError(r, client.Start(context.Background()))
	return &jobs{client}
}

func (j *jobs) insert(ctx context.Context, id int64) error {
	_, err := j.client.Insert(ctx, job{id}, nil)
	return err
}

// stop: without other load River completes soon what was acknowledged.
func (j *jobs) stop(r *run) {
	var completed, others int64
	for end := time.Now().Add(r.limit("jobs are not completed", 10*time.Second)); ; time.Sleep(20 * time.Millisecond) {
		err := r.witness.QueryRow("SELECT count(*) FILTER (WHERE state = 'completed'), count(*) FILTER (WHERE state <> 'completed') FROM river_job").Scan(&completed, &others)
		if err == nil && others == 0 {
			break
		}
		if time.Now().After(end) {
			var states string
			_ = r.witness.QueryRow("SELECT string_agg(DISTINCT state::text || ' ' || attempt || coalesce(' ' || errors[1]::text, ''), '; ') FROM river_job WHERE state <> 'completed'").Scan(&states)
			if !r.rough() {
				r.fault(nil, "jobs are not completed", "%d completed, %d not: %s", completed, others, states)
			}
			break
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), r.patience(20*time.Second))
	defer cancel()
	if err := j.client.StopAndCancel(ctx); err != nil {
		r.fault(nil, "River does not stop", "%v", err)
	}
}

// complaints is River's log. Over pgxpool River logs no error.
type complaints struct{ r *run }

// refusable are the errors that overload may cause: a refused fetch leaves the job in the queue, and a cleaner comes again.
var refusable = []string{"Error fetching jobs", "Error cleaning jobs", "Error cleaning queues"}

func (c complaints) Write(p []byte) (int, error) {
	text := string(p)
	// On a machine that takes a tenth of it for an answer, a second of River's is too short for a login.
	slow := strings.Contains(text, "timed out after 1s") && c.r.slowest.Load() > int64(100*time.Millisecond)
	may := slow || strings.Contains(text, "overloaded") && slices.ContainsFunc(refusable, func(what string) bool { return strings.Contains(text, what) })
	if !c.r.rough() && !may {
		c.r.fault(nil, "River complains", "%s", p)
	}
	return len(p), nil
}
