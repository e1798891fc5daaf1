package integration

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestIncidentsOfOperationsMoreAreNamed has ten incidents more that were chosen from operations. The right rules and the culprit were
// written down, and committed, before they were run for the first time.
func TestIncidentsOfOperationsMoreAreNamed(t *testing.T) {
	t.Parallel()
	playAll(t, moreOperations)
}

var moreOperations = map[string]staged{
	"a migration renames a column that the program still reads": {
		stage: on(testbed.Postgres, calmly), begin: renameColumn,
		right: "statements fail", culprit: `class 42`,
	},
	"the server's table of locks is full": {
		long: true, stage: shopOf(testbed.Postgres, testbed.WithMaxConnections(20), testbed.WithArguments("-c", "max_locks_per_transaction=10")), begin: lockEverything,
		// The first set had "statements fail" alone. But no connection is left: a reset needs a lock, and a login, too.
		right: "statements fail|unreachable", culprit: `class 53|out of shared memory`,
	},
	"the new month has no partition": {
		stage: on(testbed.Postgres, monthly), begin: nextMonth,
		right: "statements fail", culprit: `class 23`,
	},
	"the server ends transactions that are idle for too long": {
		stage: on(testbed.Postgres, charges), begin: callInside,
		right: "connections lost|statements fail", culprit: `\d+ connections were lost|class 25`,
	},
	"the workers of a queue all wait for its first row": {
		stage: on(testbed.Postgres, takers), begin: moreWorkers,
		right: "lock|slower than usual", culprit: `worker|FROM jobs`,
	},
	"large answers are lost on the way, and small ones are not": {
		stage: on(testbed.Postgres, exports), begin: smallerPackets,
		right: "slower than usual|unanswered|connections lost", culprit: `FROM documents|\d+ connections were lost`,
	},
	"a session is killed for want of memory, and with it all others, each 3 s": {
		long: true, stage: shopOf(testbed.Postgres), begin: killSessions,
		right: "connections lost|unreachable|statements fail", culprit: `\d+ connections were lost|class 57|recovery mode|not yet accepting`,
	},
	"documents are larger than MariaDB's max_allowed_packet": {
		long: true, stage: documents, begin: smallerDocuments,
		right: "connections lost|statements fail", culprit: `\d+ connections were lost|class 08`,
	},
	"MariaDB's max_statement_time is set below what a report takes": {
		stage: on(testbed.MariaDB, reporting), begin: limitStatements,
		right: "statements fail", culprit: `class 70`,
	},
	"transactions of SQLite read before they write": {
		stage: file, begin: readThenWrite,
		right: "statements fail|lock|lock, as it looks", culprit: `lock`,
	},
}

func renameColumn(i *incident) {
	mustExec(i.T, i.account.Witness(i), "ALTER TABLE stock RENAME COLUMN n TO amount")
}

// lockEverything takes locks until the server has no room for one more, and keeps them.
func lockEverything(i *incident) {
	i.other("SELECT pg_advisory_lock(g) FROM generate_series(1, 1000000) g")
}

// monthly is a service with a table by month.
func monthly(t *testing.T, account testbed.Account) *incident {
	i := newIncident(t, account, "pool_max_conns=10")
	i.exec("CREATE TABLE today AS SELECT DATE '2026-11-30' AS day")
	i.exec("CREATE TABLE orders (day DATE, n INT) PARTITION BY RANGE (day)")
	i.exec("CREATE TABLE november PARTITION OF orders FOR VALUES FROM ('2026-11-01') TO ('2026-12-01')")
	i.each(3, "POST /orders", i.waits("INSERT INTO orders SELECT day, 1 FROM today"))
	i.each(3, "GET /cart", i.waits("SELECT 1"))
	return i
}

func nextMonth(i *incident) {
	mustExec(i.T, i.account.Witness(i), "UPDATE today SET day = '2026-12-01'")
}

// charges is a service that calls another one inside its transactions, which may be idle for 300 ms. In an incident the call takes 600 ms.
func charges(t *testing.T, account testbed.Account) *incident {
	mustExec(t, account.Witness(t), "ALTER ROLE "+account.User+" SET idle_in_transaction_session_timeout = '300ms'")
	i := newIncident(t, account, "pool_max_conns=10")
	i.each(6, "POST /charges", func(ctx context.Context) {
		time.Sleep(20 * time.Millisecond)
		tx, err := i.db.BeginTx(ctx, nil)
		if err != nil {
			return
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, "SELECT 1"); err != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
		if i.paused.Load() {
			time.Sleep(580 * time.Millisecond)
		}
		if _, err := tx.ExecContext(ctx, "SELECT 2"); err == nil {
			_ = tx.Commit()
		}
	})
	return i
}

// takers is a service with a queue of jobs and one worker.
func takers(t *testing.T, account testbed.Account) *incident {
	i := newIncident(t, account, "pool_max_conns=10")
	i.exec("CREATE TABLE jobs (id INT PRIMARY KEY, done BOOL)")
	i.exec("INSERT INTO jobs SELECT g, false FROM generate_series(1, 10000) g")
	i.each(1, "worker", i.takeJob)
	i.each(3, "GET /cart", i.waits("SELECT 1"))
	return i
}

// takeJob does the first job, for 300 ms.
func (i *incident) takeJob(ctx context.Context) {
	tx, err := i.db.BeginTx(ctx, nil)
	if err != nil {
		return
	}
	defer func() { _ = tx.Rollback() }()
	id := 0
	if err := tx.QueryRowContext(ctx, "SELECT id FROM jobs WHERE NOT done ORDER BY id LIMIT 1 FOR UPDATE").Scan(&id); err != nil {
		return
	}
	time.Sleep(300 * time.Millisecond)
	if _, err := tx.ExecContext(ctx, "UPDATE jobs SET done = true WHERE id = $1", id); err == nil {
		_ = tx.Commit()
	}
}

func moreWorkers(i *incident) { i.each(6, "worker", i.takeJob) }

// exports is a service with small answers and large ones, and deadlines of 2 s.
func exports(t *testing.T, account testbed.Account) *incident {
	i := newIncident(t, viaStall(t, account), "pool_max_conns=10")
	i.exec("CREATE TABLE documents AS SELECT repeat('x', 20000) AS text")
	i.each(2, "GET /export", i.within(2*time.Second, "SELECT text FROM documents"))
	i.each(4, "GET /cart", i.within(2*time.Second, "SELECT 1"))
	return i
}

// smallerPackets: as where a tunnel has a smaller MTU, and nobody is told.
func smallerPackets(i *incident) { i.proxy().LoseAbove(1400) }

// killSessions kills a process of the server, which then ends all sessions and recovers.
func killSessions(i *incident) {
	witness := i.account.Witness(i)
	i.later(func(ctx context.Context) {
		for ctx.Err() == nil {
			process := 0
			if witness.QueryRowContext(ctx, "SELECT pid FROM pg_stat_activity WHERE usename = $1 LIMIT 1", i.account.User).Scan(&process) == nil {
				_, _ = witness.ExecContext(ctx, fmt.Sprintf("COPY (SELECT 1) TO PROGRAM 'kill -9 %d'", process))
			}
			select {
			case <-ctx.Done():
			case <-time.After(3 * time.Second):
			}
		}
	})
}

// documents is a service that writes 50 kB at a time.
func documents(t *testing.T) *incident {
	i := newIncident(t, testbed.Start(t, testbed.MariaDB).NewAccount(t), "pool_max_conns=10")
	i.exec("CREATE TABLE documents (id INT PRIMARY KEY, text MEDIUMTEXT)")
	i.exec("INSERT INTO documents VALUES (1, '')")
	i.each(3, "PUT /document", i.waits("UPDATE documents SET text = '"+strings.Repeat("x", 50_000)+"' WHERE id = 1"))
	i.each(3, "GET /cart", i.waits("SELECT 1"))
	return i
}

func smallerDocuments(i *incident) {
	admin, err := i.account.Server.Admin()
	require.NoError(i, err)
	mustExec(i.T, admin, "SET GLOBAL max_allowed_packet = 16384")
	i.connector.Flush() // as time does
}

// reporting is a service with a report that takes a tenth of a second.
func reporting(t *testing.T, account testbed.Account) *incident {
	i := newIncident(t, account, "pool_max_conns=10")
	i.exec("CREATE TABLE sales (n INT)")
	i.exec("INSERT INTO sales WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 900) SELECT n FROM s")
	i.exec("INSERT INTO sales SELECT n + 900 FROM sales")
	i.each(2, "GET /report", i.waits("SELECT count(*) FROM sales a JOIN sales b ON a.n < b.n"))
	i.each(2, "GET /cart", i.waits("SELECT 1"))
	return i
}

func limitStatements(i *incident) {
	mustExec(i.T, i.account.Witness(i), "ALTER USER "+i.account.User+"@'%' WITH MAX_STATEMENT_TIME 0.03")
	i.connector.Flush() // as time does
}

// readThenWrite: a transaction that has read an old state may not write. n stays even, because 1 lets orders grow.
func readThenWrite(i *incident) {
	i.each(5, "POST /transfers", func(ctx context.Context) {
		time.Sleep(20 * time.Millisecond)
		tx, err := i.db.BeginTx(ctx, nil)
		if err != nil {
			return
		}
		defer func() { _ = tx.Rollback() }()
		n := 0
		if err := tx.QueryRowContext(ctx, "SELECT n FROM stock").Scan(&n); err != nil {
			return
		}
		time.Sleep(20 * time.Millisecond)
		if _, err := tx.ExecContext(ctx, "UPDATE stock SET n = (n + 2) % 100"); err == nil {
			_ = tx.Commit()
		}
	})
}
