package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// postgres examines PostgreSQL and servers that speak its protocol.
func (e *exam) postgres(ctx context.Context) {
	pid, err := e.readPostgres(ctx)
	if err != nil {
		e.unknown("server", "what the server says of itself", err)
		return
	}
	e.Add(Finding{Level: OK, Check: "server", Found: "PostgreSQL " + e.set["server_version"]})
	other, name := e.pid != 0 && e.pid != pid, e.poolerByName()
	if e.pooled = other || name != ""; e.pooled {
		e.encrypted = false // what the server says is of the pooler's connection
		e.pooler(ctx, name, other)
	} else {
		e.postgresLimits()
		if _, known := e.set["idle_session_timeout"]; known { // since 14
			e.Add(e.plan.idleTimeout("idle_session_timeout", "idle_session_timeout of the server", e.milliseconds("idle_session_timeout")))
		}
	}
	e.tellSessions(&e.clients)
	e.busy(ctx)
}

func (e *exam) readPostgres(ctx context.Context) (pid uint64, err error) {
	if e.set, err = values(ctx, e.conn, `SELECT name, setting FROM pg_settings WHERE name IN ('server_version', 'max_connections',
		'superuser_reserved_connections', 'reserved_connections', 'idle_session_timeout', 'idle_in_transaction_session_timeout',
		'statement_timeout', 'default_transaction_read_only', 'application_name')`); err != nil {
		return 0, err
	}
	e.program = e.set["application_name"]
	if err = e.conn.QueryRowContext(ctx, `SELECT session_user, current_database(), pg_backend_pid(), pg_is_in_recovery(), rolsuper,
			rolconnlimit, (SELECT datconnlimit FROM pg_database WHERE datname = current_database()),
			coalesce((SELECT pg_has_role(session_user, oid, 'member') FROM pg_roles WHERE rolname = 'pg_use_reserved_connections'), false),
			coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false)
		FROM pg_roles WHERE rolname = session_user`).Scan(&e.user, &e.database, &pid, &e.standby, &e.superuser, &e.perRole,
		&e.perDatabase, &e.privileged, &e.encrypted); err != nil {
		return 0, err
	}
	// Of other users' sessions only some columns are shown. What has a database and a user is a client, or
	// one of its parallel workers.
	return pid, e.list(ctx, e.conn, `SELECT usename, datname, coalesce(application_name, ''), count(*),
			count(*) FILTER (WHERE state = 'active'), count(*) FILTER (WHERE state LIKE 'idle in transaction%')
		FROM pg_stat_activity WHERE usename IS NOT NULL AND datname IS NOT NULL AND pid <> pg_backend_pid()
			AND coalesce(backend_type, 'client backend') = 'client backend'
		GROUP BY 1, 2, 3`)
}

// postgresLimits judges the limits of the server, the role and the database.
func (e *exam) postgresLimits() {
	reserved := number(e.set, "superuser_reserved_connections")
	if e.superuser {
		reserved = 0
	} else if !e.privileged {
		reserved += number(e.set, "reserved_connections")
	}
	for _, l := range []limit{
		{check: "max_connections", name: "max_connections of the server is", max: number(e.set, "max_connections"), reserved: reserved, others: e.count(anyone),
			raise: "ALTER SYSTEM SET max_connections = %d (and restart the server)"},
		{check: "rolconnlimit", name: "the limit of the role " + e.user + " is", max: e.perRole, others: e.count(e.ofUser),
			raise: "ALTER ROLE " + quoted(e.user) + " CONNECTION LIMIT %d"},
		{check: "datconnlimit", name: "the limit of the database " + e.database + " is", max: e.perDatabase, others: e.count(e.ofDatabase),
			raise: "ALTER DATABASE " + quoted(e.database) + " CONNECTION LIMIT %d"},
	} {
		if l.check == "max_connections" || l.max >= 0 && !e.superuser {
			e.Add(l.judge(e.plan))
		}
	}
}

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// leastKnown is the time of sessions from which their shares say something.
const leastKnown = time.Minute

// busy says which share of their time the database's sessions worked, by the server's own statistics.
func (e *exam) busy(ctx context.Context) {
	if major, _, _ := strings.Cut(e.set["server_version"], "."); len(major) < 2 || major < "14" {
		e.Add(Finding{Level: Note, Check: "busy", Found: "the server keeps no statistics of sessions: they came with PostgreSQL 14"})
		return
	}
	var open, active, inTx float64
	var since sql.NullTime
	if err := e.conn.QueryRowContext(ctx, `SELECT session_time, active_time, idle_in_transaction_time, stats_reset
		FROM pg_stat_database WHERE datname = current_database()`).Scan(&open, &active, &inTx, &since); err != nil {
		e.unknown("busy", "pg_stat_database", err)
		return
	}
	e.Add(busyRatio(e.database, open, active, inTx, since.Time))
}

// busyRatio judges how sessions have spent their time, in milliseconds. since may be zero.
func busyRatio(database string, open, active, inTx float64, since time.Time) Finding {
	f := Finding{Level: Note, Check: "busy"}
	if open < float64(leastKnown/time.Millisecond) {
		f.Found = "the sessions of " + database + " were open for less than a minute since the statistics begin: nothing is known yet"
		return f
	}
	f.Found = fmt.Sprintf("sessions of %s ran statements for %s of their time, and lay idle in a transaction for %s", database, percent(active/open), percent(inTx/open))
	if !since.IsZero() {
		f.Found += ", since " + since.UTC().Format(time.DateOnly)
	}
	switch {
	case inTx > active:
		f.Level = Warn
		f.Follows = "transactions wait for their programs longer than they work: shorten what the programs do inside of transactions, before any pool gets larger"
		f.Type = "pooldriver top URL, for who does"
	case active+inTx < open/2:
		f.Follows = "on average more than half of the open connections have nothing to do; the average says nothing of peaks"
		f.Type = "pooldriver top URL, for the peak of one program"
	default:
		f.Follows = "the open connections are used"
	}
	return f
}

// percent prints a share.
func percent(share float64) string {
	if share > 0 && share < 0.001 {
		return "less than 0.1 %"
	}
	return strconv.FormatFloat(100*share, 'g', 3, 64) + " %"
}
