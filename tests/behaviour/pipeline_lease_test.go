package behaviour

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
)

// askingLog is a log that needs a connection.
type askingLog struct {
	slog.Handler
	ask func()
}

func (a *askingLog) Enabled(context.Context, slog.Level) bool { return true }
func (a *askingLog) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "pool_pipeline has no effect") {
		a.ask()
	}
	return nil
}

func TestTheLogOfTrialsMayUseTheConnection(t *testing.T) {
	var db *sql.DB
	var trials atomic.Int32
	asked := make(chan error, 1)
	p := &pipeline{trial: func(context.Context) error { trials.Add(1); return errors.New("wrong") }}
	log := &askingLog{ask: func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		asked <- db.PingContext(ctx)
	}}
	db, c := openPipeline(t, p, func(c *pooldriver.Config) { c.Logger = slog.New(log) })
	for trials.Load() < 3 {
		known(t, db, lookup)
		queue(t, c, db, 8)()
	}
	require.NoError(t, <-asked)
}

// A follower whose query was not sent waits for any connection, and not for that of its leader.
func TestAFollowerDoesNotWaitForACleaning(t *testing.T) {
	for !followsWhileCleaned(t) {
	}
}

// followsWhileCleaned reports false if there was no pipeline: a machine that stands still makes a text slow.
func followsWhileCleaned(t *testing.T) (pipelined bool) {
	p := &pipeline{}
	db, c := openPipeline(t, p, maxConns(2), func(c *pooldriver.Config) { c.Reset = pooldriver.ResetAlways })
	first, second := busy(t, db), busy(t, db)
	p.together = func(context.Context, dialects.PipelinedQuery) error { return errors.ErrUnsupported }
	var cleanings atomic.Int32
	cleaning, goOn := make(chan struct{}), make(chan struct{})
	p.OnClean = func() (bool, error) {
		if cleanings.Add(1) == 2 { // after the first connection's it is the pipeline's
			close(cleaning)
			<-goOn
		}
		return true, nil
	}
	ends := make(chan error, 2)
	var all sync.WaitGroup
	for i := range 2 {
		all.Go(func() {
			_, err := look(t.Context(), db, lookup, int64(i+1))
			ends <- err
		})
		waiting(t, c, i+1)
	}
	require.NoError(t, first.Close())
	<-cleaning
	pipelined = p.sent.Load() == 1
	require.NoError(t, second.Close())
	for range 2 {
		select {
		case err := <-ends:
			require.NoError(t, err)
		case <-time.After(patience):
			t.Error("it waits for the cleaning")
		}
	}
	close(goOn)
	all.Wait()
	require.NoError(t, db.Close())
	return pipelined
}
