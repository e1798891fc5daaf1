package doctor

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/inspect"
)

// mysqlFacts are what a session of MySQL or MariaDB can see.
type mysqlFacts struct {
	clients
	set, status map[string]string
	pid         uint64
}

// mysql examines MySQL and MariaDB.
func (e *exam) mysql(ctx context.Context) {
	var f mysqlFacts
	if err := f.read(ctx, e); err != nil {
		e.unknown("server", "what the server says of itself", err)
		return
	}
	product := "MySQL "
	if strings.Contains(f.set["version"], "MariaDB") {
		product = ""
	}
	line := Finding{Level: OK, Check: "server", Found: product + f.set["version"]}
	if f.set["read_only"] == "ON" || f.set["innodb_read_only"] == "ON" {
		line.Found += ", read-only: it refuses to write"
	}
	e.Add(line)
	if e.pid != 0 && e.pid != f.pid || strings.Contains(strings.ToLower(f.set["version_comment"]), "proxysql") {
		e.Add(Finding{
			Level: Note, Check: "pooler", Found: "a proxy is between the program and the server: the session has another number than the login told",
			Follows: "the proxy's own limits bound this program, too; session state may not stay with a connection",
			Type:    "ask the proxy: SHOW MYSQL STATUS (ProxySQL), maxctrl list services (MaxScale)",
		})
	} else {
		e.encryption(f.status["Ssl_cipher"] != "")
	}
	e.mysqlLimits(&f)
	e.tellSessions(&f.clients)
	e.Add(Finding{Level: Note, Check: "busy", Found: fmt.Sprintf("%s of %d sessions run a statement now; the most sessions at a time, since the server started, were %s",
		f.status["Threads_running"], number(f.status, "Threads_connected"), f.status["Max_used_connections"])})
	wait := time.Duration(number(f.set, "wait_timeout")) * time.Second
	e.Add(e.plan.idleTimeout("wait_timeout", "wait_timeout of the session", wait))
	e.mysqlPrepared(&f)
	e.mysqlTimeouts(&f)
}

func (f *mysqlFacts) read(ctx context.Context, e *exam) (err error) {
	if f.set, err = values(ctx, e.conn, `SHOW SESSION VARIABLES WHERE Variable_name IN ('version', 'version_comment', 'read_only', 'innodb_read_only',
		'max_connections', 'max_user_connections', 'wait_timeout', 'max_prepared_stmt_count', 'max_execution_time',
		'max_statement_time', 'innodb_lock_wait_timeout')`); err != nil {
		return err
	}
	if f.status, err = values(ctx, e.conn, `SHOW GLOBAL STATUS WHERE Variable_name IN ('Threads_connected', 'Threads_running',
		'Max_used_connections', 'Connection_errors_max_connections', 'Prepared_stmt_count')`); err != nil {
		return err
	}
	ssl, err := values(ctx, e.conn, "SHOW SESSION STATUS LIKE 'Ssl_cipher'")
	if err != nil {
		return err
	}
	f.status["Ssl_cipher"] = ssl["Ssl_cipher"]
	if err := e.conn.QueryRowContext(ctx, "SELECT substring_index(user(), '@', 1), coalesce(database(), ''), connection_id()").Scan(&f.user, &f.database, &f.pid); err != nil {
		return err
	}
	list := "information_schema.processlist"
	if !strings.Contains(f.set["version"], "MariaDB") {
		list = "performance_schema.processlist" // the other will be removed
	}
	err = f.list(ctx, e.conn, `SELECT user, coalesce(db, ''), '', count(*), sum(command NOT IN ('Sleep', 'Daemon')), 0 FROM `+list+`
		WHERE id <> connection_id() AND command NOT IN ('Daemon', 'Binlog Dump') AND user NOT IN ('system user', 'event_scheduler') GROUP BY 1, 2`)
	visible := 1 + f.count(true, anyone) + f.count(false, anyone) // 1: doctor's own
	f.hidden = max(0, number(f.status, "Threads_connected")-visible)
	return err
}

// mysqlLimits judges the limits of the server and the account.
func (e *exam) mysqlLimits(f *mysqlFacts) {
	ours, ofUser := f.count(true, anyone), f.count(false, f.ofUser)
	most := number(f.set, "max_connections")
	e.limit(limit{
		check: "max_connections", name: "max_connections of the server is", max: most,
		others: f.hidden + f.count(false, anyone), ours: ours,
		raise: fmt.Sprintf("SET GLOBAL max_connections = %d", most+e.plan.Need()),
	})
	if n := number(f.set, "max_user_connections"); n > 0 { // the session's value is that of the account, if the account has one
		e.limit(limit{
			check: "max_user_connections", name: "max_user_connections of " + f.user + " is", max: n, others: ofUser, ours: ours,
			raise: fmt.Sprintf("ALTER USER '%s'@'HOST' WITH MAX_USER_CONNECTIONS %d", f.user, ofUser+e.plan.Need()),
		})
	}
	if n := number(f.status, "Connection_errors_max_connections"); n > 0 {
		e.Add(Finding{
			Level: Warn, Check: "refused_connections", Found: "the server has refused " + counted(n, "connection") + " since it started, because it was full",
			Follows: "max_connections was reached", Type: "SHOW GLOBAL STATUS LIKE 'Connection_errors_max_connections', again after the next peak",
		})
	}
}

// mysqlPrepared compares the prepared statements that all pools may keep with the server's limit.
func (e *exam) mysqlPrepared(f *mysqlFacts) {
	budget, most := number(e.plan.settings, "pool_stmt_budget"), number(f.set, "max_prepared_stmt_count")
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

func (e *exam) mysqlTimeouts(f *mysqlFacts) {
	statement := time.Duration(number(f.set, "max_execution_time")) * time.Millisecond
	if seconds, err := strconv.ParseFloat(f.set["max_statement_time"], 64); err == nil { // MariaDB
		statement = time.Duration(seconds * float64(time.Second))
	}
	line := Finding{Level: Note, Check: "timeouts", Found: "the server ends no statement by itself"}
	if statement > 0 {
		line.Found = "the server ends a statement after " + inspect.Brief(statement)
	}
	line.Found += ", and a wait for a row's lock after " + inspect.Brief(time.Duration(number(f.set, "innodb_lock_wait_timeout"))*time.Second)
	e.Add(line)
}
