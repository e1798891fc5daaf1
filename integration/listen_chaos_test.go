package integration

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// listening is the application_name of the sessions that listen.
const listening = "listening"

// sent is a notification of the test, whose payload is its place in its channel. It was committed
// between begun and done.
type sent struct{ begun, done time.Time }

// listeningSessions asks the server for its sessions that listen.
func listeningSessions(ctx context.Context, admin *sql.DB, account testbed.Account) (pids []int64, err error) {
	rows, err := admin.QueryContext(ctx, "SELECT pid FROM pg_stat_activity WHERE usename = $1 AND application_name = $2", account.User, listening)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var pid int64
		if err := rows.Scan(&pid); err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	return pids, rows.Err()
}

// TestEveryNotificationArrivesOnceOrIsInAGap kills the session that listens again and again, while
// transactions notify.
func TestEveryNotificationArrivesOnceOrIsInAGap(t *testing.T) {
	t.Parallel()
	const channels, each = 20, 100
	kills := 12
	if randomtest.Long() {
		kills = 100
	}
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	admin, err := account.Server.Admin()
	require.NoError(t, err)
	c := pooldriver.New(account.URL("pool_max_conns=2"), quiet, func(c *pooldriver.Config) {
		c.ListenDSN = account.URL("application_name=" + listening)
	})
	db := sql.OpenDB(c)
	defer db.Close()
	watch := account.Watch(t)

	told := make([][]pooldriver.Notification, channels+1) // the last one listens to the first channel, too
	ctx, stop := context.WithCancel(t.Context())
	var listeners sync.WaitGroup
	var begun, ended sync.WaitGroup
	for i := range told {
		var once sync.Once
		begun.Add(1)
		ended.Add(1)
		listeners.Go(func() {
			err := c.Listen(ctx, "channel "+strconv.Itoa(i%channels), func(_ context.Context, n pooldriver.Notification) {
				if told[i] = append(told[i], n); len(told[i]) == 1 {
					begun.Done()
				}
				if n.Payload == "end" {
					once.Do(ended.Done)
				}
			})
			require.NoError(t, err)
		})
	}
	begun.Wait()

	var most atomic.Int64
	over := make(chan struct{})
	var chaos sync.WaitGroup
	chaos.Go(func() {
		defer close(over)
		for killed := 0; killed < kills && t.Context().Err() == nil; {
			time.Sleep(rand.N(20 * time.Millisecond)) // chance decides what is hit: a dial, the probe, LISTEN, the wait
			pids, err := listeningSessions(ctx, admin, account)
			require.NoError(t, err)
			most.Store(max(most.Load(), int64(len(pids))))
			if len(pids) == 0 || rand.IntN(20) > 0 {
				continue
			}
			_, err = admin.ExecContext(ctx, "SELECT pg_terminate_backend($1)", pids[0])
			require.NoError(t, err)
			killed++
		}
	})
	all := make([][]sent, channels)
	transactions := 0
	for killing := true; killing || transactions < kills; {
		select {
		case <-over:
			killing, over = false, nil
		case <-time.After(rand.N(500 * time.Millisecond)):
		}
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		notified := map[int]int{}
		transactions++
		for range each {
			i := rand.IntN(channels)
			_, err := tx.ExecContext(ctx, "SELECT pg_notify($1, $2)", fmt.Sprint("channel ", i), strconv.Itoa(len(all[i])+notified[i]))
			require.NoError(t, err)
			notified[i]++
		}
		begun := time.Now()
		require.NoError(t, tx.Commit())
		done := time.Now()
		for i, n := range notified {
			for range n {
				all[i] = append(all[i], sent{begun, done})
			}
		}
	}
	chaos.Wait()
	heard := make(chan struct{})
	go func() { defer close(heard); ended.Wait() }()
	for last := false; !last; { // again: nobody may have noticed the last kill yet, and then the end is in a gap, too
		for i := range channels {
			mustExec(t, db, "SELECT pg_notify('channel "+strconv.Itoa(i)+"', 'end')")
		}
		select {
		case <-heard:
			last = true
		case <-time.After(100 * time.Millisecond):
		}
	}
	stop()
	listeners.Wait()

	lost, arrived := 0, 0
	for i := range told {
		gone := lossesOf(t, all[i%channels], told[i])
		lost, arrived = lost+gone, arrived+len(all[i%channels])-gone
	}
	require.Positive(t, arrived)
	require.LessOrEqual(t, most.Load(), int64(1), "sessions that listen")
	require.LessOrEqual(t, watch.Stop().Backends, 2+1)
	t.Logf("%d kills, %d transactions: %d notifications arrived, %d were lost in gaps, %d losses", kills, transactions, arrived, lost, c.Stats().Listen.Losses)
}

// lossesOf compares what was told with what was sent.
func lossesOf(t *testing.T, all []sent, told []pooldriver.Notification) (lost int) {
	t.Helper()
	next := 0
	var gaps []pooldriver.Notification // since the last notification
	missing := func(until int) {
		for ; next < until; next++ {
			lost++
			covered := false
			for _, g := range gaps {
				covered = covered || !all[next].done.Before(g.Since) && !all[next].begun.After(g.Until)
			}
			require.True(t, covered, "notification %d was lost, committed between %v and %v; gaps: %v", next, all[next].begun, all[next].done, gaps)
		}
	}
	for _, n := range told {
		switch {
		case n.Gap:
			gaps = append(gaps, n)
			continue
		case n.Payload == "end":
			missing(len(all))
			continue
		}
		place, err := strconv.Atoi(n.Payload)
		require.NoError(t, err)
		require.GreaterOrEqual(t, place, next, "told twice, or out of order")
		missing(place)
		next, gaps = place+1, nil
	}
	return lost
}
