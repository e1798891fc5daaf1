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
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

const (
	bankAccounts  = 8
	bankCustomers = 64
	bankBalance   = 1_000_000 // of each account at the beginning
)

// TestTransfersAtSerializable: 64 customers transfer between 8 accounts for 60 s, or for
// three. No error reaches them. The server has each transfer once.
func TestTransfersAtSerializable(t *testing.T) {
	length := time.Duration(randomtest.Rounds(3, 60)) * time.Second
	eachDriver(t, func(t *testing.T, s stage) {
		b := openBank(t, s)
		until := time.Now().Add(length)
		var all sync.WaitGroup
		for customer := range bankCustomers {
			all.Go(func() {
				for n := 0; time.Now().Before(until); n++ {
					if err := b.transfer(t.Context(), customer<<32|n); err != nil {
						t.Errorf("transfer: %v", err)
						return
					}
				}
			})
		}
		all.Wait()
		b.requireBalanced(t)
	})
}

// bank transfers money, and keeps a journal in the database.
type bank struct {
	stagePool
	options *sql.TxOptions
	done    atomic.Int64 // transfers that were acknowledged
	longest atomic.Int64 // attempts of one transfer
}

func openBank(t *testing.T, s stage) *bank {
	t.Helper()
	url, options := s.url("pool_max_conns=16"), &sql.TxOptions{Isolation: sql.LevelSerializable}
	if s.name == "sqlite" { // which knows no other level, and has no conflicts where it may wait for long
		url, options = "sqlite:"+s.file+"?pool_max_conns=16&_txlock=immediate&_pragma=busy_timeout(20)&_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)", nil
	}
	b := &bank{stagePool: s.openURL(t, url), options: options}
	b.mustExec(t.Context(), t, "CREATE TABLE account (id integer PRIMARY KEY, balance integer)")
	b.mustExec(t.Context(), t, "CREATE TABLE journal (id bigint, source integer, target integer, amount integer)")
	for id := range bankAccounts {
		b.mustExec(t.Context(), t, fmt.Sprintf("INSERT INTO account VALUES (%d, %d)", id, bankBalance))
	}
	return b
}

func (b *bank) transfer(ctx context.Context, id int) error {
	source := rand.IntN(bankAccounts)
	target := (source + 1 + rand.IntN(bankAccounts-1)) % bankAccounts
	amount := 1 + rand.IntN(100)
	attempts := int64(0)
	err := pooldriver.InTx(ctx, b.DB, b.options, func(ctx context.Context, tx *sql.Tx) error {
		attempts++
		var from, to int
		if err := tx.QueryRowContext(ctx, fmt.Sprintf("SELECT balance FROM account WHERE id = %d", source)).Scan(&from); err != nil {
			return err
		}
		if err := tx.QueryRowContext(ctx, fmt.Sprintf("SELECT balance FROM account WHERE id = %d", target)).Scan(&to); err != nil {
			return err
		}
		for _, statement := range []string{
			fmt.Sprintf("UPDATE account SET balance = %d WHERE id = %d", from-amount, source),
			fmt.Sprintf("UPDATE account SET balance = %d WHERE id = %d", to+amount, target),
			fmt.Sprintf("INSERT INTO journal VALUES (%d, %d, %d, %d)", id, source, target, amount),
		} {
			if _, err := tx.ExecContext(ctx, statement); err != nil {
				return err
			}
		}
		return nil
	}, pooldriver.Retry{})
	if err == nil {
		b.done.Add(1)
	}
	for seen := b.longest.Load(); attempts > seen && !b.longest.CompareAndSwap(seen, attempts); {
		seen = b.longest.Load()
	}
	return err
}

// requireBalanced asks the server.
func (b *bank) requireBalanced(t *testing.T) {
	t.Helper()
	retries := b.connector.Stats().TxRetries
	t.Logf("%d transfers, %d repetitions, %d attempts at the most", b.done.Load(), retries, b.longest.Load())
	require.Positive(t, b.done.Load())
	require.Positive(t, retries)
	ask := func(query string) (n int64) {
		require.NoError(t, b.witness.QueryRow(query).Scan(&n), query)
		return n
	}
	require.EqualValues(t, bankAccounts*bankBalance, ask("SELECT sum(balance) FROM account"))
	require.Equal(t, b.done.Load(), ask("SELECT count(*) FROM journal"))
	require.Equal(t, b.done.Load(), ask("SELECT count(DISTINCT id) FROM journal"), "a transfer was made twice")
	require.Zero(t, ask(fmt.Sprintf(`SELECT count(*) FROM account AS a WHERE balance <> %d
		+ (SELECT coalesce(sum(amount), 0) FROM journal WHERE target = a.id)
		- (SELECT coalesce(sum(amount), 0) FROM journal WHERE source = a.id)`, bankBalance)), "accounts that do not follow from the journal")
	b.requireNothingLeft(t)
}
