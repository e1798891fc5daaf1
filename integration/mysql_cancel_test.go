package integration

import (
	"bytes"
	"context"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// TestMySQLCancelledStatementsEndWhileOthersSendBytes: MySQL refuses to show its list of
// connections in information_schema while one of them has an argument that is not UTF-8.
// What is cancelled meanwhile ends all the same, and the server never has more
// connections than the pool may have, and the one that kills.
func TestMySQLCancelledStatementsEndWhileOthersSendBytes(t *testing.T) {
	const goroutines, maxConns = 64, 6
	length := time.Duration(randomtest.Rounds(4, 60)) * time.Second
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	db := openPool(t, account, "pool_max_conns=6")
	watch := account.Watch(t)
	blob := bytes.Repeat([]byte{0xff, 0xfe, 0x80}, 64)
	until := time.Now().Add(length)
	var all sync.WaitGroup
	for range goroutines {
		all.Go(func() {
			for time.Now().Before(until) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(10+rand.IntN(200))*time.Millisecond)
				_, err := db.ExecContext(ctx, "DO SLEEP(600), ?", blob)
				cancel()
				if err == nil {
					t.Error("a statement of 10 min was not cancelled")
				}
			}
		})
	}
	all.Wait()
	witness := account.Witness(t)
	require.Eventually(t, func() bool {
		var running int
		err := witness.QueryRow("SELECT COUNT(*) FROM performance_schema.threads"+
			" WHERE processlist_user = ? AND processlist_info LIKE 'DO SLEEP%'", account.User).Scan(&running)
		return err == nil && running == 0
	}, slowMachine, 10*time.Millisecond, "statements that were cancelled are at work")
	peak := watch.Stop()
	t.Logf("%d connections at most, and %d that killed", peak.Backends, peak.Killers)
	require.LessOrEqual(t, peak.Backends, maxConns)
	require.LessOrEqual(t, peak.Killers, 2, "one, and the one before it, of which the server may not be rid yet")
}
