package integration

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/byteproxy"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// trouble is an incident: how it begins, and what the page has to say of it.
type trouble struct {
	parameters []string
	openConns  int                                               // SetMaxOpenConns; 0: not called
	tasks      bool                                              // each goroutine is an implicit task
	via        func(*testing.T, testbed.Account) testbed.Account // what is before the server; nil: nothing
	begin      func(*incident)
	level      string
	says       string
	saysMySQL  string // if it differs
}

func (tr trouble) sentence(e testbed.Engine) string {
	if e == testbed.MySQL && tr.saysMySQL != "" {
		return tr.saysMySQL
	}
	return tr.says
}

const (
	ourSession   = `In the way is POST /orders at \S*leakLockUnseen \(troubles_test\.go:\d+\), which has run nothing for \S+, last: UPDATE stock`
	otherSession = `In the way is a session that is not of this pool: process \d+ of `
)

var troubles = map[string]trouble{
	"leaked transactions": {
		parameters: []string{"pool_max_conns=4"}, begin: leakTransactions, level: "bad",
		says: `^3 statements wait\. 4 of 4 connections are in use, and 4 of them run no statement: transactions are open, for longest by POST /orders at \S*leakTransactions \(troubles_test\.go:\d+\), for \S+; POST /orders has 4 of 4 connections, for \S+: UPDATE stock`,
	},
	"a slow report": {
		parameters: []string{"pool_max_conns=4"}, begin: slowReport, level: "bad",
		says: `^2 statements wait\. 4 of 4 connections are in use\. GET /report has 4 of 4 connections, for \S+: SELECT \S+\(\?\)\. It is slow, or waits for a lock, or the database does not answer`,
	},
	"short reports, one after the other": {
		parameters: []string{"pool_max_conns=4"}, begin: shortReports, level: "busy",
		says: `^\d statements? waits?\. 4 of 4 connections are in use, and their statements are slow\. GET /report has \d of 4 connections, for \S+: SELECT`,
	},
	"a table that another program has locked": {
		parameters: []string{"pool_max_conns=10"}, begin: foreignLock, level: "bad",
		says:      `^4 statements wait for a lock \(relation\), for \S+: GET /stock: SELECT n FROM stock\. ` + otherSession,
		saysMySQL: `^4 statements wait for a lock \((Waiting for table metadata lock|metadata)\), for \S+: GET /stock: SELECT n FROM stock\. (The server does not say to us who has it|` + otherSession + `)`,
	},
	"the same, and the pool is full": {
		parameters: []string{"pool_max_conns=4"}, begin: foreignLockFull, level: "bad",
		says: `^3 statements wait\. 4 of 4 connections are in use\. GET /stock has 4 of 4 connections, for \S+: SELECT n FROM stock\. It is slow, or waits for a lock, or the database does not answer`,
	},
	"a lock of our own": {
		parameters: []string{"pool_max_conns=6"}, begin: leakLock, level: "bad",
		says: `^3 statements wait for a lock \((transactionid|tuple|row)\), for \S+: GET /stock: UPDATE stock.*\. ` + ourSession,
	},
	"the same, and the server tells nobody": {
		parameters: []string{"pool_max_conns=6"}, begin: leakLockUnseen, level: "bad",
		says:      `^3 statements wait for a lock \((transactionid|tuple)\), for \S+: GET /stock: UPDATE stock.*\. In the way is POST /orders`,
		saysMySQL: `^3 statements have been running for \S+ or longer, while a transaction by POST /orders at \S*leakLockUnseen \(troubles_test\.go:\d+\) has run nothing for \S+: it may hold the locks that they wait for`,
	},
	"a label that takes over": {
		parameters: []string{"pool_max_conns=2"}, begin: retryStorm, level: "bad",
		says: `^\d+ statements? waits?\. GET /pay comes \d+ times a second, and usually \d+, for \S+: it has [12] of 2 connections, and \d+ of those who wait\.$`,
	},
	"a server that is full": {
		parameters: []string{"pool_max_conns=20"}, begin: serverFills, level: "bad",
		says: `^The server is full: it allows us [23] of 20 connections, and [23] are in use, and \d+ statements? waits?`,
	},
	"a network that stalls": {
		parameters: []string{"pool_max_conns=4"}, via: viaStall, begin: stall, level: "bad",
		says: `^Nothing has moved for \S+: 4 statements run, and none has ended; \d+ statements? waits?\. The database or the network does not answer`,
	},
	"a network that stalls, and connections are idle": {
		parameters: []string{"pool_max_conns=6"}, via: viaStall, begin: stallWithIdle, level: "bad",
		says: `^The database or the network does not answer: 3 statements run, the first for \S+, and the server has not answered a question of this page within \S+`,
	},
	"a new password, and old connections": {
		parameters: []string{"pool_max_conns=10"}, begin: newPassword, level: "bad",
		says: `^The server refuses our login: the last \d+ dials have failed, for .*(password authentication failed|Access denied).* Connections that are open still work: 2 of 10 connections are in use[.;]`,
	},
	"a new password, and no connection": {
		parameters: []string{"pool_max_conns=10"}, begin: newPasswordOnly, level: "bad",
		says: `^The server refuses our login: the last \d+ dials have failed, for .*(password authentication failed|Access denied).* No connection is open\.$`,
	},
	"a pool that is too small": {
		parameters: []string{"pool_max_conns=2"}, begin: tooSmall, level: "busy",
		says: `^\d+ statements? waits?\. 2 of 2 connections are in use, and their statements take no longer than before: the pool is small\.$`,
	},
	"idle in a transaction": {
		parameters: []string{"pool_max_conns=4"}, begin: idleInTransaction, level: "busy",
		says: `^A transaction by POST /orders at \S*idleInTransaction \(troubles_test\.go:\d+\) has run nothing for \S+: it keeps a connection, and its locks\. \d of 4 connections are in use, and nobody waits\.$`,
	},
	"a restart of the server": {
		parameters: []string{"pool_max_conns=4"}, via: viaDoor, begin: restart, level: "bad",
		says: `^The database cannot be reached, or refuses us: the last \d+ dials have failed, for .* No connection is open\.$`,
	},
	"nested statements": {
		parameters: []string{"pool_max_conns=4"}, begin: nestedStatements, level: "bad",
		says: `^A deadlock in the program, as it looks: each holder of a connection waits for one more, and none is left\. POST /orders has 4 of 4 connections, for \S+: UPDATE stock`,
	},
	"nested statements of tasks": {
		parameters: []string{"pool_max_conns=4"}, tasks: true, begin: nestedStatements, level: "bad",
		says: `^A deadlock in the program: each holder of a connection waits for one more, and none is left\. POST /orders has 4 of 4 connections, for \S+: UPDATE stock`,
	},
	"a name that is not found": {
		parameters: []string{"pool_max_conns=4"}, begin: noName, level: "bad",
		says: `^The server's name is not found \(DNS\): the last \d+ dials have failed, for .* No connection is open\.$`,
	},
	"a slow reader": {
		parameters: []string{"pool_max_conns=2"}, begin: slowReader, level: "busy",
		says: `^2 of 2 connections are in use, and on 2 of them rows are open that the program reads slowly, for longest by GET /export at \S*slowReader.* \(troubles_test\.go:\d+\), for \S+, of which the database has waited \d+ %`,
	},
	"slow readers, and others get their connections": {
		parameters: []string{"pool_max_conns=2"}, begin: slowReaderAndOthers, level: "busy",
		says: `^The rows of (1 query|2 queries) are open in memory, because others needed their connection, the oldest for \S+ by GET /export at `,
	},
	"slow readers of many rows, and others wait": {
		parameters: []string{"pool_max_conns=2", "pool_nested_buffer=1KiB", "pool_nested_buffer_total=1KiB"}, begin: slowReaderAndOthers, level: "bad",
		says: `^\d statements? waits?\. 2 of 2 connections are in use, and on 2 of them rows are open that the program reads slowly, for longest by GET /export at `,
	},
	"SetMaxOpenConns below the pool": {
		parameters: []string{"pool_max_conns=10"}, openConns: 2, begin: callersQueue, level: "busy",
		says: `^SetMaxOpenConns\(2\) is below the pool's 10 connections: 2 of 2 are in use, and callers queue in database/sql, where the pool does not see them: \d+ so far\.`,
	},
}

func leakTransactions(i *incident) {
	for n := range 4 {
		tx, err := i.db.BeginTx(i.label("POST /orders"), nil)
		require.NoError(i, err)
		i.Cleanup(func() { _ = tx.Rollback() })
		_, err = tx.Exec(fmt.Sprintf("UPDATE stock SET n = 1 WHERE id = %d", 10+n))
		require.NoError(i, err)
	}
	i.each(3, "GET /cart", i.run("SELECT 1"))
}

func slowReport(i *incident) {
	i.each(4, "GET /report", i.run(sleep[i.account.Server.Engine]))
	time.Sleep(50 * time.Millisecond)
	i.each(2, "GET /cart", i.run("SELECT 1"))
}

var shortSleep = map[testbed.Engine]string{testbed.Postgres: "SELECT pg_sleep(1.3)", testbed.MySQL: "SELECT SLEEP(1.3)"}

// shortReports: at some looks each report has just begun.
func shortReports(i *incident) {
	i.each(6, "GET /report", i.run(shortSleep[i.account.Server.Engine]))
}

func (i *incident) lockTable() {
	witness := i.account.Witness(i)
	conn, err := witness.Conn(i.Context())
	require.NoError(i, err)
	lock := "LOCK TABLES stock WRITE"
	if i.account.Server.Engine == testbed.Postgres {
		_, err = conn.ExecContext(i.Context(), "BEGIN")
		require.NoError(i, err)
		lock = "LOCK TABLE stock IN ACCESS EXCLUSIVE MODE"
	}
	_, err = conn.ExecContext(i.Context(), lock)
	require.NoError(i, err)
	i.Cleanup(func() { _ = conn.Close(); _ = witness.Close() })
}

func foreignLock(i *incident) {
	i.maySeeLocks()
	i.lockTable()
	i.each(4, "GET /stock", i.run("SELECT n FROM stock"))
}

func foreignLockFull(i *incident) {
	i.lockTable()
	i.each(7, "GET /stock", i.run("SELECT n FROM stock"))
}

func leakLock(i *incident) {
	i.maySeeLocks()
	leakLockUnseen(i)
}

// maySeeLocks gives the account what MySQL and MariaDB want for that.
func (i *incident) maySeeLocks() {
	if i.account.Server.Engine == testbed.MySQL {
		witness := i.account.Witness(i)
		mustExec(i.T, witness, "GRANT PROCESS ON *.* TO "+i.account.User+"@'%'")
		mustExec(i.T, witness, "GRANT SELECT ON performance_schema.* TO "+i.account.User+"@'%'")
		i.connector.Flush() // new connections have the privileges
	}
}

func leakLockUnseen(i *incident) {
	tx, err := i.db.BeginTx(i.label("POST /orders"), nil)
	require.NoError(i, err)
	i.Cleanup(func() { _ = tx.Rollback() })
	_, err = tx.Exec("UPDATE stock SET n = 1 WHERE id = 1")
	require.NoError(i, err)
	i.each(3, "GET /stock", i.run("UPDATE stock SET n = n + 1 WHERE id = 1"))
}

func serverFills(i *incident) {
	i.account.LimitConnections(i, 2)
	i.each(8, "GET /cart", i.run(sleeps[i.account.Server.Engine]))
}

// viaStall puts a proxy between, which stall stops.
func viaStall(t *testing.T, account testbed.Account) testbed.Account {
	proxy, err := byteproxy.Listen(account.Addr)
	require.NoError(t, err)
	t.Cleanup(func() { _ = proxy.Close() })
	account = account.Via(proxy.Addr())
	between.Store(proxy.Addr(), proxy)
	return account
}

// traffic is what a service does.
func (i *incident) traffic() {
	for n, label := range []string{"GET /cart", "GET /list", "POST /orders", "GET /stock", "GET /user", "GET /home"} {
		i.each(1, label, i.waits(fmt.Sprintf("SELECT %s FROM stock", [...]string{"1", "n", "id", "n + 1", "id + 1", "n, id"}[n])))
	}
}

func stall(i *incident) {
	i.traffic()
	require.Eventually(i, func() bool {
		s := i.connector.Stats().Pool
		return s.Count == 4 && s.Creating == 0
	}, slowMachine, 10*time.Millisecond)
	i.proxy().SetLatency(byteproxy.ToClient, time.Minute)
	i.Cleanup(func() { _ = i.proxy().Close() })
}

func stallWithIdle(i *incident) {
	var conns []*sql.Conn
	for range 6 {
		conn, err := i.db.Conn(i.Context())
		require.NoError(i, err)
		require.NoError(i, conn.PingContext(i.Context()))
		conns = append(conns, conn)
	}
	for _, conn := range conns {
		require.NoError(i, conn.Close())
	}
	i.proxy().SetLatency(byteproxy.ToClient, time.Minute)
	i.Cleanup(func() { _ = i.proxy().Close() })
	i.each(3, "GET /cart", i.run("SELECT 1"))
}

func (i *incident) changePassword() {
	change := "ALTER USER '%s'@'%%' IDENTIFIED BY '%s'"
	if i.account.Server.Engine == testbed.Postgres {
		change = "ALTER ROLE %s PASSWORD '%s'"
	}
	mustExec(i.T, i.account.Witness(i), fmt.Sprintf(change, i.account.User, "new"))
}

func newPassword(i *incident) {
	for range 2 {
		i.later(func(ctx context.Context) {
			conn, err := i.db.Conn(ctx)
			if err != nil {
				return
			}
			defer conn.Close()
			for ctx.Err() == nil {
				_, _ = conn.ExecContext(ctx, sleeps[i.account.Server.Engine])
			}
		})
	}
	require.Eventually(i, func() bool { return i.connector.Stats().Pool.Lent == 2 }, slowMachine, 10*time.Millisecond)
	i.changePassword()
	i.each(6, "GET /cart", i.waits("SELECT 1"))
}

func newPasswordOnly(i *incident) {
	i.changePassword()
	i.connector.Flush()
	i.each(6, "GET /cart", i.waits("SELECT 1"))
}

func tooSmall(i *incident) {
	i.usual(sleeps[i.account.Server.Engine])
	i.each(8, "GET /cart", i.run(sleeps[i.account.Server.Engine]))
}

func idleInTransaction(i *incident) {
	tx, err := i.db.BeginTx(i.label("POST /orders"), nil)
	require.NoError(i, err)
	i.Cleanup(func() { _ = tx.Rollback() })
	_, err = tx.Exec("UPDATE stock SET n = 1 WHERE id = 1")
	require.NoError(i, err)
	i.each(1, "GET /cart", i.waits("SELECT 1"))
}

func viaDoor(t *testing.T, account testbed.Account) testbed.Account {
	d := newDoor(t, account.Addr)
	between.Store(d.addr(), d)
	return account.Via(d.addr())
}

func restart(i *incident) {
	i.each(3, "GET /cart", i.waits("SELECT 1"))
	i.door().close(true)
}

// taskOf is the key of a goroutine's task, where the program has them.
type taskOf struct{}

func nestedStatements(i *incident) {
	meet := together(4)
	for n := range 4 {
		i.later(func(ctx context.Context) {
			ctx = context.WithValue(pooldriver.Label(ctx, "POST /orders"), taskOf{}, n+1)
			tx, err := i.db.BeginTx(ctx, nil)
			if err != nil {
				return
			}
			defer func() { _ = tx.Rollback() }()
			meet() // each has begun
			_, _ = tx.ExecContext(ctx, fmt.Sprintf("UPDATE stock SET n = 1 WHERE id = %d", 10+n))
			_, _ = i.db.ExecContext(ctx, "INSERT INTO stock VALUES (9, 9)") // by mistake not in tx
		})
	}
}

// noName: a resolver that answers nobody takes the place of the real one.
func noName(i *incident) {
	i.names.Store(true)
	i.connector.Flush()
	i.each(3, "GET /cart", i.waits("SELECT 1"))
}

// nameless dials as net.Dialer does, until names is set: then no name is known.
func nameless(names *atomic.Bool) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		d := net.Dialer{}
		if names.Load() {
			d.Resolver = &net.Resolver{PreferGo: true, Dial: func(context.Context, string, string) (net.Conn, error) {
				return nil, &net.OpError{Op: "dial", Err: net.UnknownNetworkError("none")}
			}}
			address = "db.shop.example:5432"
		}
		return d.DialContext(ctx, network, address)
	}
}

var manyRows = map[testbed.Engine]string{
	testbed.Postgres: "SELECT n FROM generate_series(1, 900) AS n",
	testbed.MySQL:    "WITH RECURSIVE s(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM s WHERE n < 900) SELECT n FROM s",
}

func slowReader(i *incident) {
	i.each(2, "GET /export", func(ctx context.Context) {
		rows, err := i.db.QueryContext(ctx, manyRows[i.account.Server.Engine])
		if err != nil {
			return
		}
		defer rows.Close()
		for rows.Next() && ctx.Err() == nil {
			time.Sleep(50 * time.Millisecond)
		}
	})
}

func slowReaderAndOthers(i *incident) {
	slowReader(i)
	time.Sleep(100 * time.Millisecond)
	i.each(2, "GET /cart", i.waits("SELECT 1"))
}

func callersQueue(i *incident) { i.each(20, "GET /cart", i.run(sleeps[i.account.Server.Engine])) }
