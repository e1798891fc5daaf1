package integration

import (
	"bufio"
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/inspect"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestIncidentsOfTheWorkAreNamed: statements, locks, and who has the connections.
func TestIncidentsOfTheWorkAreNamed(t *testing.T) {
	t.Parallel()
	playAll(t, ofTheWork)
}

const (
	leaked   = "held for nothing|all held for nothing"
	noSleep  = `(?i)sleep\(s\)`
	unproven = "unknown|slow statements"
)

var ofTheWork = map[string]staged{
	"the database takes 700 ms for 2 ms": {
		long: true, stage: on(testbed.Postgres, paced), begin: slowTo(0.7),
		right: "slower than usual", culprit: noSleep,
	},
	"MariaDB takes 700 ms for 2 ms": {
		long: true, stage: on(testbed.MariaDB, paced), begin: slowTo(0.7),
		right: "slower than usual", culprit: noSleep,
	},
	"the database takes 2.5 s for 2 ms": {
		long: true, stage: on(testbed.Postgres, paced), begin: slowTo(2.5),
		right: "slower than usual|silence of one statement", culprit: noSleep, // which of them, nobody can know while none has ended
	},
	"statements with literals become slow": {
		long: true, stage: on(testbed.Postgres, literal), begin: slowTo(0.7),
		right: "slower than usual", culprit: noSleep + `, \?`,
	},
	"COMMIT takes 300 ms longer": { // with 100 ms: slow-disk of inspect's recorded snapshots
		long: true, stage: committing(0), begin: slowTo(0.3),
		right: "slow commits", culprit: `COMMIT takes`,
	},
	"COMMIT hangs": {
		long: true, stage: committing(0), begin: slowTo(600),
		right: "commit hangs", culprit: `COMMIT.*POST /orders`,
	},
	"COMMIT hangs on MariaDB": {
		long: true, stage: committingOnMariaDB, begin: backupBlocksCommit,
		right: "commit hangs|lock", culprit: `POST /orders.*COMMIT|COMMIT.*POST /orders`,
	},
	"COMMIT always takes 45 ms": {
		long: true, stage: committing(0.045), begin: nothing,
		calm: true, right: "well",
	},
	"functions of Raw have all connections": {
		stage: on(testbed.Postgres, small), begin: rawHasAll,
		right: "raw has all", culprit: `COPY /export`,
	},
	"transactions are idle nine tenths of the time": {
		stage: on(testbed.Postgres, checkouts), begin: callInside,
		right: "often held for nothing|" + leaked, culprit: `POST /checkout`,
	},
	"transactions on MariaDB are idle nine tenths of the time": {
		long: true, stage: on(testbed.MariaDB, checkouts), begin: callInside,
		right: "often held for nothing|" + leaked, culprit: `POST /checkout`,
	},
	"a deadlock of tasks": {
		stage: on(testbed.Postgres, small), begin: tasksInTasks,
		right: "deadlock", culprit: `POST /refund`,
	},
	"a deadlock of nested statements": {
		long: true, stage: on(testbed.Postgres, small), begin: nestedStatements,
		right: "deadlock", culprit: `POST /orders`,
	},
	"overload": {
		long: true, stage: on(testbed.Postgres, refusing), begin: tooMany,
		right: "overload|one label takes over", culprit: `overloaded \d+`,
	},
	"leaked transactions, and requests give up by their deadline": {
		long: true, stage: on(testbed.Postgres, hasty), begin: leakTransactions,
		right: leaked, culprit: `leakTransactions.*gave up \d+`,
	},
	"the same on MariaDB": {
		long: true, stage: on(testbed.MariaDB, hasty), begin: leakTransactions,
		right: leaked, culprit: `leakTransactions.*gave up \d+`,
	},
	"leaked transactions, and requests are cancelled from above": {
		long: true, stage: on(testbed.Postgres, cancelled), begin: leakTransactions,
		right: leaked, culprit: `leakTransactions.*gave up \d+`,
	},
	"leaked transactions, and 250 statements wait for long": {
		long: true, stage: on(testbed.Postgres, small), begin: hundreds,
		right: leaked, culprit: `2\d\d statements wait.*leakTransactions`,
		also: func(t *testing.T, p inspect.Pool) { require.GreaterOrEqual(t, p.Recent.WaitP99, time.Second) },
	},
	"a restart of the program in the incident": {
		long: true, unknown: true, stage: on(testbed.Postgres, slowAlready), begin: restartProgram,
		right: unproven, culprit: noSleep,
	},
	"a release with a slow query": {
		long: true, stage: on(testbed.Postgres, small), begin: release,
		right: unproven, culprit: `GET /report.*pg_sleep`,
	},
	"a feature with a slow query is switched on": {
		long: true, stage: on(testbed.Postgres, small), begin: feature,
		right: unproven + "|one label takes over", culprit: `GET /report`,
	},
	"the process gets no processor": {
		long: true, unknown: true, stage: inAProcess, begin: starve,
		right: "no processor", culprit: `gets no processor`,
	},
	"clients try again": {
		long: true, stage: on(testbed.Postgres, paying), begin: (*incident).payOften,
		right: "one label takes over", culprit: `GET /pay`,
	},
	"a text that is short or long by tenant": {
		long: true, stage: on(testbed.Postgres, byTenant), begin: nothing,
		calm: true, right: "well",
	},
	"pods wait for the advisory lock of a migration": {
		stage: shop, begin: podsWait,
		right: "advisory lock", culprit: `pg_advisory_lock`,
	},
	"forgotten rows": {
		long: true, stage: on(testbed.Postgres, small), begin: forgetRows,
		right: leaked + "|forgotten rows", culprit: `GET /list`,
	},
	"a leaked transaction with a row lock": {
		long: true, stage: shop, begin: leakLock,
		right: "lock|lock, as it looks", culprit: `POST /orders at \S*leakLockUnseen`,
	},
	"a small pool": {
		long: true, stage: on(testbed.Postgres, twins), begin: func(i *incident) { i.each(8, "", i.run("SELECT pg_sleep(0.05)")) },
		right: "small",
	},
	"all is well at load, beside a listener of Raw": {
		long: true, stage: on(testbed.Postgres, well), begin: nothing,
		calm: true, right: "well",
	},
	"a writer of SQLite for 11 s": {
		long: true, stage: file, begin: longWriter,
		right: "lock|lock, as it looks|slower than usual|statements fail", culprit: `POST /import`,
	},
}

// small and twins are services with few connections, which are enough.
func small(t *testing.T, account testbed.Account) *incident {
	return usually(t, account, endless, 2, 4, "pool_acquire_timeout=0")
}

func twins(t *testing.T, account testbed.Account) *incident {
	i := newIncident(t, account, "pool_max_conns=2")
	i.each(1, "", i.waits("SELECT pg_sleep(0.05)"))
	return i
}

// literal is paced with texts that nobody sends twice.
func literal(t *testing.T, account testbed.Account) *incident {
	i := newIncident(t, account, "pool_max_conns=4")
	i.makePace(0.002)
	i.each(16, "GET /stock", func(ctx context.Context) { i.waits(fmt.Sprintf("SELECT pg_sleep(s), %d FROM pace", rand.Int32()))(ctx) })
	return i
}

// committing is a service whose COMMIT takes so long.
func committing(seconds float64) func(*testing.T) *incident {
	return on(testbed.Postgres, func(t *testing.T, account testbed.Account) *incident {
		i := newIncident(t, account, "pool_max_conns=10")
		i.makePace(seconds)
		i.exec("CREATE TABLE orders (n INT)")
		i.exec("CREATE FUNCTION linger() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(s) FROM pace; RETURN NULL; END'")
		i.exec("CREATE CONSTRAINT TRIGGER linger AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION linger()")
		i.each(4, "POST /orders", i.order)
		i.each(2, "GET /orders", i.waits("SELECT 1"))
		return i
	})
}

// order is a transaction.
func (i *incident) order(ctx context.Context) {
	time.Sleep(20 * time.Millisecond)
	tx, err := i.db.BeginTx(ctx, nil)
	if err != nil {
		return
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (1)"); err == nil {
		_ = tx.Commit()
	}
}

func committingOnMariaDB(t *testing.T) *incident {
	i := newIncident(t, testbed.Start(t, testbed.MariaDB).NewAccount(t), "pool_max_conns=10")
	i.exec("CREATE TABLE orders (n INT)")
	i.each(4, "POST /orders", i.order)
	i.each(2, "GET /orders", i.waits("SELECT 1"))
	return i
}

func backupBlocksCommit(i *incident) {
	i.other("BACKUP STAGE START", "BACKUP STAGE FLUSH", "BACKUP STAGE BLOCK_DDL", "BACKUP STAGE BLOCK_COMMIT")
}

func rawHasAll(i *incident) {
	for range 4 {
		i.later(func(ctx context.Context) {
			conn, err := i.db.Conn(pooldriver.Label(ctx, "COPY /export"))
			if err != nil {
				return
			}
			defer conn.Close()
			_ = pooldriver.Raw(pooldriver.Label(ctx, "COPY /export"), conn, func(driver.Conn) error { <-ctx.Done(); return nil })
		})
	}
}

// checkouts is a service whose 30 clients call another one after their transactions, and in an incident inside of them.
func checkouts(t *testing.T, account testbed.Account) *incident {
	i := newIncident(t, account, "pool_max_conns=10")
	calls := func(inside bool) {
		if i.paused.Load() == inside {
			time.Sleep(200 * time.Millisecond)
		}
	}
	i.each(30, "POST /checkout", func(ctx context.Context) {
		defer calls(false)
		tx, err := i.db.BeginTx(ctx, nil)
		if err != nil {
			return
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, "SELECT 1"); err == nil {
			calls(true)
			_ = tx.Commit()
		}
	})
	return i
}

func callInside(i *incident) { i.paused.Store(true) }

// tasksInTasks: work of a task waits for another task that it has begun itself.
func tasksInTasks(i *incident) {
	i.each(8, "POST /refund", func(ctx context.Context) {
		_ = pooldriver.Do(ctx, func(ctx context.Context) error {
			return pooldriver.InTx(ctx, i.db, nil, func(ctx context.Context, tx *sql.Tx) error {
				if _, err := tx.ExecContext(ctx, "SELECT 1"); err != nil {
					return err
				}
				time.Sleep(50 * time.Millisecond)
				inner, end := pooldriver.NewTask(ctx)
				defer end()
				_, err := i.db.ExecContext(inner, "SELECT 2")
				return err
			})
		})
	})
}

func refusing(t *testing.T, account testbed.Account) *incident {
	i := newIncident(t, account, "pool_max_conns=4", "pool_queue_target=20ms")
	i.each(2, "GET /list", i.waits("SELECT pg_sleep(0.05)"))
	return i
}

func tooMany(i *incident) { i.each(40, "GET /list", i.waits("SELECT pg_sleep(0.05)")) }

func hasty(t *testing.T, account testbed.Account) *incident {
	return usually(t, account, time.Second, 4, 4)
}

// cancelled is a service whose clients go away after 1.5 s.
func cancelled(t *testing.T, account testbed.Account) *incident {
	i := usually(t, account, endless, 1, 4)
	i.each(3, "GET /home", func(ctx context.Context) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer time.AfterFunc(1500*time.Millisecond, cancel).Stop()
		i.waits("SELECT n FROM stock")(ctx)
	})
	return i
}

func hundreds(i *incident) {
	leakTransactions(i)
	i.each(250, "GET /list", i.run("SELECT 1"))
}

func slowAlready(t *testing.T, account testbed.Account) *incident {
	i := newIncident(t, account)
	i.makePace(0.7)
	return i
}

func restartProgram(i *incident) {
	i.connect(func(*pooldriver.Config) {}, "pool_max_conns=4")
	i.each(16, "GET /stock", i.waits(slows[i.account.Server.Engine]))
}

// release restarts the program: the old one gets no requests any more.
func release(i *incident) {
	i.paused.Store(true)
	n := &incident{T: i.T, account: i.account}
	n.connect(func(*pooldriver.Config) {}, "pool_max_conns=4")
	n.each(4, "GET /stock", n.waits("SELECT n FROM stock"))
	feature(n)
	i.page = func(fresh bool) inspect.Pool { return n.see(fresh) }
}

func feature(i *incident) {
	i.each(12, "GET /report", i.waits("SELECT n, pg_sleep(0.7) FROM stock WHERE id = 1"))
}

func paying(t *testing.T, account testbed.Account) *incident {
	i := newIncident(t, account, "pool_max_conns=2")
	i.payUsually()
	return i
}

func byTenant(t *testing.T, account testbed.Account) *incident {
	i := newIncident(t, account, "pool_max_conns=20")
	i.each(8, "GET /list", func(ctx context.Context) {
		seconds := 0.002
		if rand.IntN(3) == 0 {
			seconds = 0.4
		}
		_, _ = i.db.ExecContext(ctx, "SELECT pg_sleep($1)", seconds)
	})
	return i
}

func podsWait(i *incident) {
	for range 9 {
		i.other("SELECT pg_advisory_lock(7)") // the first one gets it
	}
	i.later(func(ctx context.Context) {
		conn, err := i.db.Conn(pooldriver.Label(ctx, "migrate"))
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = conn.ExecContext(pooldriver.Label(ctx, "migrate"), "SELECT pg_advisory_lock(7)")
	})
}

func forgetRows(i *incident) {
	for range 4 {
		rows, err := i.db.QueryContext(i.label("GET /list"), manyRows[i.account.Server.Engine])
		require.NoError(i, err)
		i.Cleanup(func() { _ = rows.Close() })
	}
}

func well(t *testing.T, account testbed.Account) *incident {
	i := usually(t, account, endless, 8, 10)
	i.later(func(ctx context.Context) {
		conn, err := i.db.Conn(pooldriver.Label(ctx, "listener"))
		if err != nil {
			return
		}
		defer conn.Close()
		_ = pooldriver.Raw(ctx, conn, func(driver.Conn) error { <-ctx.Done(); return nil })
	})
	i.each(1, "GET /report", i.run("SELECT pg_sleep(20)"))
	return i
}

// longWriter writes for 11 s, and then again.
func longWriter(i *incident) {
	i.each(1, "POST /import", func(ctx context.Context) {
		tx, err := i.db.BeginTx(ctx, nil)
		if err != nil {
			return
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(ctx, "UPDATE stock SET n = 0"); err != nil {
			return
		}
		select {
		case <-ctx.Done():
		case <-time.After(11 * time.Second):
			_ = tx.Commit()
		}
	})
}

const pageIsAt = "the page is at "

// inAProcess is a service in a process of its own.
func inAProcess(t *testing.T) *incident {
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	cmd := exec.Command(os.Args[0], "-test.run=^TestAServiceInAProcessOfItsOwn$", "-test.v", "-test.count=1")
	cmd.Env = append(os.Environ(), childDSN+"="+account.URL("pool_max_conns=10"))
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	i := &incident{T: t, account: account, process: cmd.Process}
	url := ""
	for lines := bufio.NewScanner(out); url == "" && lines.Scan(); {
		_, url, _ = strings.Cut(lines.Text(), pageIsAt)
	}
	require.NotEmpty(t, url)
	i.page = func(fresh bool) inspect.Pool {
		answer, err := http.Get(fmt.Sprintf("%s?format=json&fresh=%v", url, fresh))
		require.NoError(t, err)
		defer answer.Body.Close()
		var s inspect.Snapshot
		require.NoError(t, json.NewDecoder(answer.Body).Decode(&s))
		return s.Pools[0]
	}
	return i
}

func TestAServiceInAProcessOfItsOwn(t *testing.T) {
	dsn := os.Getenv(childDSN)
	if dsn == "" {
		t.Skip("another test runs it in a process of its own")
	}
	i := &incident{T: t}
	i.connector = pooldriver.New(dsn, quiet)
	i.db = sql.OpenDB(i.connector)
	i.inspector = inspect.Handler(i.connector)
	i.each(6, "GET /stock", i.waits("SELECT 1"))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := i.inspector
		if r.URL.Query().Get("fresh") == "true" {
			page = inspect.Handler(i.connector)
		}
		page.ServeHTTP(w, r)
	}))
	_, _ = fmt.Fprintln(os.Stdout, pageIsAt+server.URL)
	time.Sleep(time.Hour) // until it is killed
}

// starve lets the process run for a seventh of the time, as a limit of its cgroup does.
func starve(i *incident) {
	i.later(func(ctx context.Context) {
		for ctx.Err() == nil {
			_ = i.process.Signal(syscall.SIGSTOP)
			time.Sleep(1200 * time.Millisecond)
			_ = i.process.Signal(syscall.SIGCONT)
			time.Sleep(200 * time.Millisecond)
		}
	})
}
