package integration

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/inspect"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestStrangeIncidentsAreNamed has incidents that were chosen from operations, and not from the rules. The right rules and the culprit
// were written down before they were run.
func TestStrangeIncidentsAreNamed(t *testing.T) {
	t.Parallel()
	playAll(t, stranges)
}

var stranges = map[string]staged{
	"a migration waits behind a reader, and everybody behind the migration": {
		stage: shop, begin: alterBehindReader,
		right: "lock", culprit: `idle in transaction.*SELECT n FROM stock`, // the reader at the end of the chain, and not the migration
	},
	"statement_timeout ends what waits for a batch": {
		stage: impatientShop, begin: lockedByBatch,
		right: "lock|slower than usual|statements fail", culprit: `UPDATE stock|57`,
	},
	"a report beyond temp_file_limit": {
		stage: reports, begin: moreSales,
		right: "statements fail", culprit: `53`,
	},
	"transactions that lock rows in another order": {
		stage: transfers, begin: otherOrder,
		right: "lock|slower than usual|statements fail", culprit: `stock|40`,
	},
	"a synchronous standby that is gone": {
		long: true, stage: shopOf(testbed.Postgres), begin: standbyGone,
		right: "commit hangs|slow commits|slower than usual", culprit: `UPDATE stock|COMMIT`,
	},
	"a server that stands still": {
		long: true, stage: shopOf(testbed.Postgres), begin: standStill,
		right: "no answer|silence|silence of one statement|no login answered", culprit: `does not answer`,
	},
	"a certificate that has expired": {
		long: true, stage: shopOf(testbed.Postgres, testbed.WithTLSOnly()), begin: expired,
		right: "unreachable|certificate", culprit: `certificate has expired`,
	},
	"a replica that was promoted": {
		long: true, stage: replicatedShop, begin: promoted,
		right: "replica away|replicas away", culprit: `does not serve \(no standby\)`,
	},
	"a backup locks all tables of MariaDB": {
		long: true, stage: shopOf(testbed.MariaDB), begin: backup,
		right: "lock", culprit: `UPDATE stock`,
	},
	"MariaDB becomes read-only": {
		long: true, stage: shopOf(testbed.MariaDB), begin: readOnly,
		right: "statements fail", culprit: `HY|read.only`,
	},
	"SQLite's lock is held by another program": {
		stage: file, begin: fileLocked,
		right: "lock|lock, as it looks|statements fail|slower than usual", culprit: `lock`,
	},
	"SQLite's disk is full": {
		stage: file, begin: fileFull,
		right: "statements fail", culprit: `other|full`,
	},
}

// shopOn is a service on a database: six goroutines, two of which write.
func shopOn(t *testing.T, account testbed.Account, parameters ...string) *incident {
	t.Helper()
	i := newIncident(t, account, append([]string{"pool_max_conns=10"}, parameters...)...)
	i.exec("CREATE TABLE stock (id INT PRIMARY KEY, n INT)")
	i.exec("INSERT INTO stock VALUES (1, 0), (2, 0)")
	i.each(4, "GET /stock", i.waits("SELECT n FROM stock"))
	i.each(2, "POST /orders", i.waits("UPDATE stock SET n = n + 1 WHERE id = 1"))
	return i
}

func shop(t *testing.T) *incident {
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	mustExec(t, account.Witness(t), "GRANT pg_read_all_stats TO "+account.User)
	return shopOn(t, account)
}

// shopOf has a server of its own.
func shopOf(engine testbed.Engine, options ...testbed.Option) func(*testing.T) *incident {
	return func(t *testing.T) *incident {
		return shopOn(t, testbed.Start(t, engine, options...).NewAccount(t))
	}
}

// other runs statements on a connection of another program, which keeps it. The last one may take as long as the incident.
func (i *incident) other(statements ...string) {
	i.Helper()
	witness := i.account.Witness(i)
	conn, err := witness.Conn(i.Context())
	require.NoError(i, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for _, statement := range statements {
			_, _ = conn.ExecContext(ctx, statement)
		}
	}()
	i.Cleanup(func() { cancel(); <-done; _ = conn.Close(); _ = witness.Close() })
	time.Sleep(100 * time.Millisecond)
}

func alterBehindReader(i *incident) {
	i.other("BEGIN", "SELECT n FROM stock")
	i.other("ALTER TABLE stock ADD COLUMN price INT")
}

// impatientShop has as few connections as it needs usually, and a statement may take 300 ms.
func impatientShop(t *testing.T) *incident {
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	mustExec(t, account.Witness(t), "ALTER ROLE "+account.User+" SET statement_timeout = '300ms'")
	i := newIncident(t, account, "pool_max_conns=4")
	i.exec("CREATE TABLE stock (id INT PRIMARY KEY, n INT)")
	i.exec("INSERT INTO stock VALUES (1, 0)")
	i.each(6, "POST /orders", i.waits("UPDATE stock SET n = n + 1 WHERE id = 1"))
	return i
}

func lockedByBatch(i *incident) { i.other("BEGIN", "UPDATE stock SET n = 0") }

func reports(t *testing.T) *incident {
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	mustExec(t, account.Witness(t), "ALTER ROLE "+account.User+" SET temp_file_limit = '1MB'")
	mustExec(t, account.Witness(t), "ALTER ROLE "+account.User+" SET work_mem = '64kB'")
	i := newIncident(t, account, "pool_max_conns=10")
	i.exec("CREATE TABLE sales AS SELECT g FROM generate_series(1, 1000) g")
	i.each(2, "GET /report", i.waits("SELECT g FROM sales ORDER BY md5(g::text) LIMIT 1 OFFSET 900"))
	i.each(2, "GET /cart", i.waits("SELECT 1"))
	return i
}

func moreSales(i *incident) {
	mustExec(i.T, i.account.Witness(i), "INSERT INTO sales SELECT g FROM generate_series(1, 100000) g")
}

// transfers lock two rows, one after the other.
func transfers(t *testing.T) *incident {
	i := newIncident(t, testbed.Shared(t, testbed.Postgres).NewAccount(t), "pool_max_conns=10")
	i.exec("CREATE TABLE stock (id INT PRIMARY KEY, n INT)")
	i.exec("INSERT INTO stock VALUES (1, 0), (2, 0)")
	i.each(2, "POST /orders", i.transfer(1, 2))
	return i
}

func (i *incident) transfer(from, to int) func(context.Context) {
	return func(ctx context.Context) {
		tx, err := i.db.BeginTx(ctx, nil)
		if err != nil {
			return
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, "UPDATE stock SET n = n - 1 WHERE id = $1", from); err != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
		if _, err := tx.ExecContext(ctx, "UPDATE stock SET n = n + 1 WHERE id = $1", to); err == nil {
			_ = tx.Commit()
		}
	}
}

func otherOrder(i *incident) { i.each(6, "POST /returns", i.transfer(2, 1)) }

func standbyGone(i *incident) {
	admin, err := i.account.Server.Admin()
	require.NoError(i, err)
	mustExec(i.T, admin, "ALTER SYSTEM SET synchronous_standby_names = 'gone'")
	mustExec(i.T, admin, "SELECT pg_reload_conf()")
	i.Cleanup(func() {
		mustExec(i.T, admin, "ALTER SYSTEM RESET synchronous_standby_names")
		mustExec(i.T, admin, "SELECT pg_reload_conf()")
	})
}

func standStill(i *incident) {
	i.account.Server.Pause(i)
	i.Cleanup(func() { i.account.Server.Wake(i) })
}

func expired(i *incident) {
	i.account.Server.UseCertificate(i, testbed.Expired)
	i.connector.Flush() // as time does
}

func replicatedShop(t *testing.T) *incident {
	set := testbed.StartReplicaSet(t, testbed.Postgres)
	i := shopOn(t, set.NewAccount(t), "pool_replicas="+set.Replicas[0].Addr+","+set.Replicas[1].Addr)
	set.CatchUp(t)
	i.each(4, "GET /list", i.reads("SELECT n FROM stock"))
	i.set = set
	return i
}

// reads is a read that a replica may serve, within a second.
func (i *incident) reads(query string) func(context.Context) {
	return func(ctx context.Context) { i.within(time.Second, query)(pooldriver.Replica(ctx)) }
}

func promoted(i *incident) {
	admin, err := i.set.Replicas[1].Admin()
	require.NoError(i, err)
	mustExec(i.T, admin, "SELECT pg_promote()")
}

func backup(i *incident) { i.other("FLUSH TABLES WITH READ LOCK") }

func readOnly(i *incident) {
	admin, err := i.account.Server.Admin()
	require.NoError(i, err)
	mustExec(i.T, admin, "SET GLOBAL read_only = ON")
	i.Cleanup(func() { mustExec(i.T, admin, "SET GLOBAL read_only = OFF") })
}

// file is a service with a database of SQLite, which may have 200 pages.
func file(t *testing.T) *incident {
	i := &incident{T: t}
	name := t.TempDir() + "/shop.db"
	between.Store(i, name)
	i.connector = pooldriver.New("sqlite:"+name+"?_pragma=journal_mode(WAL)&_pragma=max_page_count(200)&pool_max_conns=10", quiet, func(c *pooldriver.Config) { c.SampleStacks = 1 })
	i.db = sql.OpenDB(i.connector)
	t.Cleanup(func() { _ = i.db.Close() })
	i.inspector = inspect.Handler(i.connector)
	i.exec("CREATE TABLE stock (id INT PRIMARY KEY, n INT)")
	i.exec("INSERT INTO stock VALUES (1, 0)")
	i.exec("CREATE TABLE orders (id INTEGER PRIMARY KEY, text TEXT)")
	i.each(4, "GET /stock", i.waits("SELECT n FROM stock"))
	i.each(3, "POST /orders", i.waits("INSERT INTO orders (text) SELECT 'a' WHERE (SELECT count(*) FROM orders) < 10 OR (SELECT n FROM stock) = 1"))
	return i
}

func (i *incident) file() string {
	name, _ := between.Load(i)
	return name.(string)
}

func fileLocked(i *incident) {
	other, err := sql.Open("sqlite", i.file()+"?_pragma=busy_timeout(5000)")
	require.NoError(i, err)
	tx, err := other.Conn(i.Context())
	require.NoError(i, err)
	i.Cleanup(func() { _ = tx.Close(); _ = other.Close() })
	for _, statement := range []string{"BEGIN IMMEDIATE", "UPDATE stock SET n = 0"} {
		_, err = tx.ExecContext(i.Context(), statement)
		require.NoError(i, err, statement)
	}
}

// fileFull fills the file, and then each order needs room.
func fileFull(i *incident) {
	i.exec("UPDATE stock SET n = 1")
	for size := 400_000; size > 100; size /= 2 {
		for n := 0; ; n++ {
			if _, err := i.db.ExecContext(i.Context(), fmt.Sprintf("INSERT INTO orders (text) VALUES ('%s')", strings.Repeat("x", size))); err != nil {
				break
			}
		}
	}
}
