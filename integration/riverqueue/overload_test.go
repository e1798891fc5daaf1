package riverqueue

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/riverpooldriver"
)

// complaints counts the errors that River logs, but for fetches and cleanings that are refused: they come again.
type complaints struct{ n atomic.Int64 }

func (c *complaints) Write(p []byte) (int, error) {
	if !strings.Contains(string(p), "Error fetching jobs") && !strings.Contains(string(p), "Error cleaning") {
		c.n.Add(1)
	}
	return len(p), nil
}

// flood sends twice as many requests as two connections can serve, until stop is closed.
func (s service) flood(t *testing.T, stop <-chan struct{}) (served, came *atomic.Int64, done func()) {
	served, came = &atomic.Int64{}, &atomic.Int64{}
	var all sync.WaitGroup
	all.Go(func() {
		for tick := time.NewTicker(5 * time.Millisecond / 2); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
			}
			came.Add(1)
			all.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 250*time.Millisecond)
				defer cancel()
				if _, err := s.db.ExecContext(ctx, "SELECT pg_sleep(0.01)"); err == nil {
					served.Add(1)
				}
			})
		}
	})
	return served, came, all.Wait
}

func TestJobsAreCompletedUnderOverload(t *testing.T) {
	t.Parallel()
	const jobs, length = 100, 5 * time.Second
	s := open(t, "pool_max_conns=2", "pool_queue_target=50ms", "pool_queue_interval=100ms")
	alone := make(chan struct{})
	served, _, done := s.flood(t, alone)
	time.Sleep(length)
	without := served.Load()
	close(alone)
	done()

	stop := make(chan struct{})
	defer func() {
		close(stop)
		done()
	}()
	var mu sync.Mutex
	worked := map[int]int{}
	workers := river.NewWorkers()
	river.AddWorker(workers, river.WorkFunc(func(_ context.Context, job *river.Job[Ship]) error {
		mu.Lock()
		defer mu.Unlock()
		worked[job.Args.Order]++
		return nil
	}))
	heard := &complaints{}
	client, err := river.NewClient(riverpooldriver.New(s.pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 20}}, Workers: workers,
		Logger: slog.New(slog.NewTextHandler(heard, &slog.HandlerOptions{Level: slog.LevelError})),
	})
	require.NoError(t, err)
	served, came, done := s.flood(t, stop)
	begun := time.Now()
	require.NoError(t, client.Start(t.Context()))
	t.Cleanup(func() { _ = client.StopAndCancel(context.WithoutCancel(t.Context())) })
	refused := 0
	for order := range jobs {
		for {
			if _, err = client.Insert(t.Context(), Ship{Order: order}, nil); !errors.Is(err, pooldriver.ErrOverloaded) {
				break
			}
			refused++
			time.Sleep(20 * time.Millisecond)
		}
		require.NoError(t, err)
	}
	witness := s.Witness(t)
	require.Eventually(t, func() bool {
		var completed int
		require.NoError(t, witness.QueryRow("SELECT count(*) FROM river_job WHERE state = 'completed'").Scan(&completed))
		return completed == jobs
	}, time.Minute, 50*time.Millisecond)
	took := time.Since(begun)
	time.Sleep(length - min(took, length))
	with := float64(served.Load()) * float64(length) / float64(time.Since(begun))
	t.Logf("%d jobs in %v; %d inserts and %d of %d requests were refused; served in %v: %d without River, %.0f with it",
		jobs, took, refused, came.Load()-served.Load(), came.Load(), length, without, with)
	mu.Lock()
	defer mu.Unlock()
	require.Len(t, worked, jobs)
	for order, n := range worked {
		require.Equal(t, 1, n, "job %d", order)
	}
	require.Zero(t, heard.n.Load(), "what River complains of")
	require.NotZero(t, s.connector.Stats().Pool.Shed)
}
