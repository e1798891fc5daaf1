package doctor

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/inspect"
)

// mysql examines MySQL and MariaDB.
func (e *exam) mysql(ctx context.Context) {
	pid, err := e.readMySQL(ctx)
	if err != nil {
		e.unknown("server", "what the server says of itself", err)
		return
	}
	product := "MySQL "
	if strings.Contains(e.set["version"], "MariaDB") {
		product = ""
	}
	e.Add(Finding{Level: OK, Check: "server", Found: product + e.set["version"]})
	other, proxy := e.pid != 0 && e.pid != pid, e.mysqlProxy(ctx, e.set["version"])
	if e.pooled = other || proxy != ""; e.pooled {
		e.Add(Finding{
			Level: Note, Check: "pooler", Found: between(proxy, "a proxy", other),
			Follows: "the proxy's own limits bound this program, too; session state may not stay with a connection: docs/servers.md, Poolers of clouds",
			Type:    "ask the proxy: SELECT * FROM stats_mysql_connection_pool (ProxySQL's admin port), maxctrl list services (MaxScale)",
		})
	}
	e.encrypted = !e.pooled && e.set["Ssl_cipher"] != ""
	e.Add((&limit{check: "max_connections", name: "max_connections of the server is", max: number(e.set, "max_connections"),
		others: e.hidden + e.count(anyone), raise: "SET GLOBAL max_connections = %d"}).judge(e.plan))
	if n := number(e.set, "max_user_connections"); n > 0 { // the session's value is that of the account, if the account has one
		e.Add((&limit{check: "max_user_connections", name: "max_user_connections of " + e.user + " is", max: n,
			others: e.count(e.ofUser), raise: "ALTER USER '" + e.user + "'@'HOST' WITH MAX_USER_CONNECTIONS %d"}).judge(e.plan))
	}
	e.tellSessions(&e.clients)
	e.Add(Finding{Level: Note, Check: "busy", Found: fmt.Sprintf("%s of %d sessions run a statement now; the most sessions at a time, since the server started, were %s",
		e.set["Threads_running"], number(e.set, "Threads_connected"), e.set["Max_used_connections"])})
	e.Add(e.plan.idleTimeout("wait_timeout", "wait_timeout of the session", time.Duration(number(e.set, "wait_timeout"))*time.Second))
	e.mysqlPrepared()
	e.mysqlTimeouts()
}

func (e *exam) readMySQL(ctx context.Context) (pid uint64, err error) {
	e.set = map[string]string{}
	for _, query := range []string{
		`SHOW SESSION VARIABLES WHERE Variable_name IN ('version', 'version_comment', 'read_only', 'innodb_read_only',
			'max_connections', 'max_user_connections', 'wait_timeout', 'max_prepared_stmt_count', 'max_execution_time',
			'max_statement_time', 'innodb_lock_wait_timeout')`,
		`SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_connected', 'Threads_running',
			'Max_used_connections', 'Connection_errors_max_connections')`,
		"SHOW SESSION STATUS LIKE 'Ssl_cipher'",
	} {
		some, err := values(ctx, e.conn, query)
		if err != nil {
			return 0, err
		}
		maps.Copy(e.set, some)
	}
	if err := e.conn.QueryRowContext(ctx, "SELECT substring_index(user(), '@', 1), coalesce(database(), ''), connection_id()").Scan(&e.user, &e.database, &pid); err != nil {
		return 0, err
	}
	list := "information_schema.processlist"
	if !strings.Contains(e.set["version"], "MariaDB") {
		list = "performance_schema.processlist" // the other will be removed
	}
	err = e.list(ctx, e.conn, `SELECT user, coalesce(db, ''), '', count(*), sum(command NOT IN ('Sleep', 'Daemon')), 0 FROM `+list+`
		WHERE id <> connection_id() AND command NOT IN ('Daemon', 'Binlog Dump') AND user NOT IN ('system user', 'event_scheduler') GROUP BY 1, 2`)
	visible := 1 // doctor's own
	for _, s := range e.sessions {
		visible += s.count
	}
	e.hidden = max(0, number(e.set, "Threads_connected")-visible)
	return pid, err
}

// mysqlPrepared compares the prepared statements that all pools may keep with the server's limit.
func (e *exam) mysqlPrepared() {
	budget, most := number(e.plan.settings, "pool_stmt_budget"), number(e.set, "max_prepared_stmt_count")
	perConn := number(e.plan.settings, "pool_stmt_cache")
	if all := perConn * e.plan.MaxConns; budget == 0 || all < budget {
		budget = all
	}
	need := budget * e.plan.processes()
	line := Finding{Level: OK, Check: "max_prepared_stmt_count", Found: fmt.Sprintf("max_prepared_stmt_count is %d, and the program's pools keep up to %d prepared statements", most, need)}
	if need > most {
		line.Level = Warn
		line.Follows = "at the limit no program of the server can prepare a statement"
		line.Type = fmt.Sprintf("pool_stmt_budget=%d", most/2/e.plan.processes())
	}
	e.Add(line)
}

func (e *exam) mysqlTimeouts() {
	statement := time.Duration(number(e.set, "max_execution_time")) * time.Millisecond
	if seconds, err := strconv.ParseFloat(e.set["max_statement_time"], 64); err == nil { // MariaDB
		statement = time.Duration(seconds * float64(time.Second))
	}
	line := Finding{Level: Note, Check: "timeouts", Found: "the server ends no statement by itself"}
	if statement > 0 {
		line.Found = "the server ends a statement after " + inspect.Brief(statement)
	}
	line.Found += ", and a wait for a row's lock after " + inspect.Brief(time.Duration(number(e.set, "innodb_lock_wait_timeout"))*time.Second)
	e.Add(line)
}
