package integration

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestIncidentsOfOperationsAreNamed has incidents that were chosen from operations, and not from the rules. The right rules and the culprit were
// written down before they were run.
func TestIncidentsOfOperationsAreNamed(t *testing.T) {
	t.Parallel()
	playAll(t, operations)
}

var operations = map[string]staged{
	"a prepared transaction is left over, and has a lock": {
		long: true, stage: shopOf(testbed.Postgres, testbed.WithArguments("-c", "max_prepared_transactions=10")), begin: leavePrepared,
		right: "lock", culprit: `UPDATE stock`,
	},
	"an index is dropped": {
		long: true, stage: on(testbed.Postgres, sales), begin: dropIndex,
		right: "slower than usual", culprit: `FROM sales`,
	},
	"a restore has another name for the database": {
		long: true, stage: on(testbed.Postgres, calmly), begin: renameDatabase,
		right: "unreachable|login refused", culprit: `does not exist`,
	},
	"another service takes all connections of MariaDB": {
		long: true, stage: shopOf(testbed.MariaDB, testbed.WithMaxConnections(20)), begin: takeAll,
		right: full, culprit: `server is full`,
	},
	"a sequence is at its end": {
		long: true, stage: on(testbed.Postgres, billing), begin: lastBill,
		right: "statements fail", culprit: `class 22`,
	},
	"PgBouncer is paused": {
		long: true, stage: bounced, begin: pauseBouncer,
		right: noAnswer, culprit: `does not answer|stock`,
	},
	"the queue of NOTIFY is full": {
		long: true, stage: notifying, begin: sleepingListener,
		right: "statements fail", culprit: `class 54`,
	},
	"logins take 30 s": {
		long: true, stage: on(testbed.Postgres, calmly), begin: slowLogins,
		right: "no login answered|no answer|opening", culprit: `does not answer|being opened`,
	},
	"a release has deadlines that are too short": {
		long: true, stage: on(testbed.MariaDB, twentieth), begin: shortDeadlines,
		right: "connections lost|statements fail|closing|opening", culprit: `deadline|class ended`,
	},
	"SQLite's file is damaged": {
		long: true, stage: file, begin: damage,
		right: "statements fail|unreachable", culprit: `class XX`,
	},
}

func leavePrepared(i *incident) {
	i.Cleanup(func() { mustExec(i.T, i.account.Witness(i), "ROLLBACK PREPARED 'left'") })
	i.other("BEGIN", "UPDATE stock SET n = 0", "PREPARE TRANSACTION 'left'")
}

func sales(t *testing.T, account testbed.Account) *incident {
	i := newIncident(t, account, "pool_max_conns=10")
	i.exec("CREATE TABLE sales AS SELECT g % 10000 AS customer, g AS n FROM generate_series(1, 400000) g")
	i.exec("CREATE INDEX by_customer ON sales (customer)")
	i.exec("ANALYZE sales")
	i.each(4, "GET /sales", i.waits("SELECT sum(n) FROM sales WHERE customer = 17"))
	i.each(2, "GET /cart", i.waits("SELECT 1"))
	return i
}

func dropIndex(i *incident) { mustExec(i.T, i.account.Witness(i), "DROP INDEX by_customer") }

func renameDatabase(i *incident) {
	admin, err := i.account.Server.Admin()
	require.NoError(i, err)
	name := i.account.Database
	mustExec(i.T, admin, "ALTER DATABASE "+name+" ALLOW_CONNECTIONS false")
	require.Eventually(i, func() bool {
		mustExec(i.T, admin, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
		_, err := admin.ExecContext(i.Context(), "ALTER DATABASE "+name+" RENAME TO "+name+"_old")
		return err == nil
	}, slowMachine, 10*time.Millisecond)
	i.Cleanup(func() { mustExec(i.T, admin, "ALTER DATABASE "+name+"_old RENAME TO "+name) })
}

// takeAll opens what the server has room for, and keeps it.
func takeAll(i *incident) {
	other := i.account.Server.NewAccount(i).OpenBare(i)
	i.later(func(ctx context.Context) {
		var all []*sql.Conn
		for ctx.Err() == nil {
			if conn, err := other.Conn(ctx); err == nil {
				all = append(all, conn)
				continue
			}
			time.Sleep(20 * time.Millisecond)
		}
		for _, conn := range all {
			_ = conn.Close()
		}
	})
	for range 10 { // as the lifetimes of connections do
		i.connector.Flush()
		time.Sleep(50 * time.Millisecond)
	}
}

func billing(t *testing.T, account testbed.Account) *incident {
	i := newIncident(t, account, "pool_max_conns=10")
	i.exec("CREATE SEQUENCE numbers MAXVALUE 1000000")
	i.exec("CREATE TABLE bills (id INT)")
	i.each(3, "POST /bills", i.waits("INSERT INTO bills VALUES (nextval('numbers'))"))
	i.each(3, "GET /cart", i.waits("SELECT 1"))
	return i
}

func lastBill(i *incident) { mustExec(i.T, i.account.Witness(i), "SELECT setval('numbers', 1000000)") }

func pauseBouncer(i *incident) {
	bouncer, _ := between.Load(i.account.Addr)
	bouncer.(*testbed.PgBouncer).Pause(i)
}

// notifying is a service that notifies with each order.
func notifying(t *testing.T) *incident {
	i := newIncident(t, testbed.Start(t, testbed.Postgres, testbed.WithArguments("-c", "max_notify_queue_pages=64")).NewAccount(t), "pool_max_conns=10")
	i.each(3, "POST /orders", i.waits("SELECT pg_notify('orders', repeat('x', 4000))"))
	i.each(3, "GET /cart", i.waits("SELECT 1"))
	return i
}

func sleepingListener(i *incident) { i.other("LISTEN orders", "BEGIN", "SELECT 1") }

// slowLogins have a directory asked that does not answer.
func slowLogins(i *incident) {
	witness := i.account.Witness(i)
	mustExec(i.T, witness, fmt.Sprintf(`CREATE FUNCTION ask() RETURNS event_trigger LANGUAGE plpgsql AS
		$$BEGIN IF session_user = '%s' THEN PERFORM pg_sleep(30); END IF; END$$`, i.account.User))
	mustExec(i.T, witness, "CREATE EVENT TRIGGER ask ON login EXECUTE FUNCTION ask()")
	i.connector.Flush()
}

// twentieth is a service whose statements take a twentieth of a second.
func twentieth(t *testing.T, account testbed.Account) *incident {
	i := newIncident(t, account, "pool_max_conns=10")
	i.each(4, "GET /list", i.unlessPaused(i.within(time.Second, sleeps[account.Server.Engine])))
	return i
}

func shortDeadlines(i *incident) {
	i.paused.Store(true)
	i.each(4, "GET /list", i.within(30*time.Millisecond, sleeps[i.account.Server.Engine]))
}

// damage writes over the file.
func damage(i *incident) {
	i.exec("UPDATE stock SET n = 1")
	i.exec("PRAGMA wal_checkpoint(TRUNCATE)")
	content, err := os.ReadFile(i.file())
	require.NoError(i, err)
	f, err := os.OpenFile(i.file(), os.O_WRONLY, 0)
	require.NoError(i, err)
	defer f.Close()
	_, err = f.WriteAt(bytes.Repeat([]byte{0xa5}, len(content)-100), 100)
	require.NoError(i, err)
}
