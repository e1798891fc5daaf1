package failover

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// TestNoTransactionIsGivenUpInAGroupOfTwoWritableMembers has both members of a group write
// the same few rows, so that the group refuses many commits, and then takes one member out.
// InTx with Retry gives none of the transactions up.
func TestNoTransactionIsGivenUpInAGroupOfTwoWritableMembers(t *testing.T) {
	if !randomtest.Long() {
		t.Skip("a minute: make test-long runs it")
	}
	if !testbed.HasMySQL() {
		t.Skip("NOT RUN: MySQL's image could not be had")
	}
	group := testbed.StartGroup(t)
	account := group.NewAccount(t)
	first := account.On(group.Members[0]).OpenBare(t)
	for _, statement := range []string{
		"CREATE TABLE accounts (id INT PRIMARY KEY, balance INT NOT NULL)",
		"CREATE TABLE transfers (id VARCHAR(64) PRIMARY KEY)",
		"INSERT INTO accounts VALUES (0, 0), (1, 0), (2, 0), (3, 0), (4, 0)",
	} {
		_, err := first.ExecContext(t.Context(), statement)
		require.NoError(t, err)
	}

	var (
		made, waited atomic.Int64
		repeated     uint64
		connectors   []*pooldriver.Connector
		all          sync.WaitGroup
		stop         = make(chan struct{})
	)
	for i, m := range group.Members {
		// The other member is the second of the list, for when the own one has left.
		list := account.Via(m.Addr + "," + group.Members[1-i].Addr)
		connector := pooldriver.New(list.URL("target_session_attrs=read-write", "pool_max_conns=8"), logged(t))
		db := sql.OpenDB(connector)
		t.Cleanup(func() { require.NoError(t, db.Close()) })
		connectors = append(connectors, connector)
		for w := range 8 {
			all.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					switch err := transferOnce(t.Context(), db, fmt.Sprintf("%d/%d/%d", i, w, n)); {
					case err == nil:
						made.Add(1)
					case isNumber(err, 1205): // a lock that could not be had in time is not repeated
						waited.Add(1)
					default:
						t.Errorf("transfer %d/%d/%d was given up: %v", i, w, n, err)
					}
				}
			})
		}
	}
	seconds := time.Duration(randomtest.Rounds(4, 20)) * time.Second
	time.Sleep(seconds)
	together := made.Load()
	group.Leave(t, group.Members[1])
	time.Sleep(seconds)
	close(stop)
	all.Wait()
	for _, c := range connectors {
		repeated += c.Stats().TxRetries
	}
	t.Logf("%d transfers on two members, %d while one left and after it; %d repeated, %d waited for a lock in vain", together, made.Load()-together, repeated, waited.Load())
	require.Positive(t, repeated)
	require.Greater(t, made.Load(), together+100)

	var stored, sum int64
	require.NoError(t, first.QueryRowContext(t.Context(), "SELECT (SELECT COUNT(*) FROM transfers), (SELECT SUM(balance) FROM accounts)").Scan(&stored, &sum))
	require.Equal(t, made.Load(), stored)
	require.Zero(t, sum)
}

func isNumber(err error, number uint16) bool {
	var server *mysql.MySQLError
	return errors.As(err, &server) && server.Number == number
}

// transferOnce moves something between two accounts.
func transferOnce(ctx context.Context, db *sql.DB, id string) error {
	return pooldriver.InTx(ctx, db, nil, func(ctx context.Context, tx *sql.Tx) error {
		from := rand.IntN(5)
		for _, change := range []struct{ account, amount int }{{from, -1}, {(from + 1 + rand.IntN(4)) % 5, 1}} {
			if _, err := tx.ExecContext(ctx, "UPDATE accounts SET balance = balance + ? WHERE id = ?", change.amount, change.account); err != nil {
				return err
			}
		}
		_, err := tx.ExecContext(ctx, "INSERT INTO transfers VALUES (?)", id)
		return err
	}, pooldriver.Retry{})
}
