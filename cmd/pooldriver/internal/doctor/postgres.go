package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/inspect"
)

// postgresFacts are what a session of PostgreSQL can see.
type postgresFacts struct {
	clients                       // program: application_name
	set         map[string]string // pg_settings, in their base units
	pid         uint64
	standby     bool
	superuser   bool // may use the connections that are reserved for superusers
	privileged  bool // may use reserved_connections
	perRole     int  // negative: no limit
	perDatabase int
	encrypted   bool
}

func (f *postgresFacts) milliseconds(name string) time.Duration {
	return time.Duration(number(f.set, name)) * time.Millisecond
}

// postgres examines PostgreSQL and servers that speak its protocol.
func (e *exam) postgres(ctx context.Context) {
	var f postgresFacts
	if err := f.read(ctx, e); err != nil {
		e.unknown("server", "what the server says of itself", err)
		return
	}
	e.Add(Finding{Level: OK, Check: "server", Found: "PostgreSQL " + f.set["server_version"] + standing(f.standby)})
	pooled := e.pid != 0 && e.pid != f.pid
	if pooled {
		e.pooler(ctx)
	} else {
		e.encryption(f.encrypted)
		e.postgresLimits(&f)
	}
	e.tellSessions(&f.clients)
	if !pooled && e.plan.params["application_name"] == "" {
		e.Add(Finding{
			Level: Note, Check: "application_name", Found: "the DSN has no application_name",
			Follows: "nobody can tell this program's sessions from those of other programs of the same user",
			Type:    "application_name=NAME",
		})
	}
	e.busy(ctx, &f)
	if !pooled {
		if _, known := f.set["idle_session_timeout"]; known { // since 14
			e.Add(e.plan.idleTimeout("idle_session_timeout", "idle_session_timeout of the server", f.milliseconds("idle_session_timeout")))
		}
	}
	e.statementLimits(&f)
}

func standing(standby bool) string {
	if standby {
		return ", a standby: it refuses to write"
	}
	return ""
}

func (f *postgresFacts) read(ctx context.Context, e *exam) (err error) {
	if f.set, err = values(ctx, e.conn, `SELECT name, setting FROM pg_settings WHERE name IN ('server_version', 'max_connections',
		'superuser_reserved_connections', 'reserved_connections', 'idle_session_timeout', 'idle_in_transaction_session_timeout',
		'statement_timeout', 'transaction_timeout', 'lock_timeout', 'application_name')`); err != nil {
		return err
	}
	f.program = f.set["application_name"]
	if err = e.conn.QueryRowContext(ctx, `SELECT session_user, current_database(), pg_backend_pid(), pg_is_in_recovery(), rolsuper,
			rolconnlimit, (SELECT datconnlimit FROM pg_database WHERE datname = current_database()),
			coalesce((SELECT pg_has_role(session_user, oid, 'member') FROM pg_roles WHERE rolname = 'pg_use_reserved_connections'), false),
			coalesce((SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()), false)
		FROM pg_roles WHERE rolname = session_user`).Scan(&f.user, &f.database, &f.pid, &f.standby, &f.superuser, &f.perRole,
		&f.perDatabase, &f.privileged, &f.encrypted); err != nil {
		return err
	}
	// Of other users' sessions only some columns are shown. What has a database and a user is a client, or
	// one of its parallel workers.
	return f.list(ctx, e.conn, `SELECT usename, datname, coalesce(application_name, ''), count(*),
			count(*) FILTER (WHERE state = 'active'), count(*) FILTER (WHERE state LIKE 'idle in transaction%')
		FROM pg_stat_activity WHERE usename IS NOT NULL AND datname IS NOT NULL AND pid <> pg_backend_pid()
			AND coalesce(backend_type, 'client backend') = 'client backend'
		GROUP BY 1, 2, 3`)
}

// postgresLimits judges the limits of the server, the role and the database.
func (e *exam) postgresLimits(f *postgresFacts) {
	reserved := number(f.set, "superuser_reserved_connections")
	switch {
	case f.superuser:
		reserved = 0
		e.Add(Finding{
			Level: Warn, Check: "role", Found: "the user " + f.user + " is a superuser",
			Follows: "the program may take the connections that are reserved for administrators, and no limit of a role or a database holds for it",
			Type:    "CREATE ROLE app LOGIN PASSWORD '…'",
		})
	case !f.privileged:
		reserved += number(f.set, "reserved_connections")
	}
	ofDatabase := func(s sessions) bool { return s.database == f.database }
	e.limit(limit{
		check: "max_connections", name: "max_connections of the server is", max: number(f.set, "max_connections"), reserved: reserved,
		others: f.count(false, anyone), ours: f.count(true, anyone),
		raise: fmt.Sprintf("ALTER SYSTEM SET max_connections = %d (and restart the server)", number(f.set, "max_connections")+e.plan.Need()),
	})
	if f.perRole >= 0 && !f.superuser {
		e.limit(limit{
			check: "rolconnlimit", name: "the limit of the role " + f.user + " is", max: f.perRole,
			others: f.count(false, f.ofUser), ours: f.count(true, f.ofUser),
			raise: fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT %d", quoted(f.user), f.count(false, f.ofUser)+e.plan.Need()),
		})
	}
	if f.perDatabase >= 0 && !f.superuser {
		e.limit(limit{
			check: "datconnlimit", name: "the limit of the database " + f.database + " is", max: f.perDatabase,
			others: f.count(false, ofDatabase), ours: f.count(true, ofDatabase),
			raise: fmt.Sprintf("ALTER DATABASE %s CONNECTION LIMIT %d", quoted(f.database), f.count(false, ofDatabase)+e.plan.Need()),
		})
	}
}

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// leastKnown is the time of sessions from which their shares say something.
const leastKnown = time.Minute

// busy says which share of their time the database's sessions worked, by the server's own statistics.
func (e *exam) busy(ctx context.Context, f *postgresFacts) {
	if major, _, _ := strings.Cut(f.set["server_version"], "."); len(major) < 2 || major < "14" {
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
	e.Add(busyRatio(f.database, open, active, inTx, since.Time))
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
		f.Type = "pooldriver doctor http://…/debug/pool, for who does"
	case active+inTx < open/2:
		f.Follows = "on average more than half of the open connections have nothing to do; the average says nothing of peaks"
		f.Type = "pooldriver doctor http://…/debug/pool, for the peaks of one program"
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

// statementLimits lists the times after which the server ends statements and transactions.
func (e *exam) statementLimits(f *postgresFacts) {
	var on []string
	for _, name := range []string{"statement_timeout", "lock_timeout", "transaction_timeout", "idle_in_transaction_session_timeout"} {
		if d := f.milliseconds(name); d > 0 {
			on = append(on, name+" "+inspect.Brief(d))
		}
	}
	line := Finding{Level: Note, Check: "timeouts", Found: "the server ends statements and transactions by " + strings.Join(on, ", ")}
	if len(on) == 0 {
		line.Found = "the server ends no statement and no transaction by itself"
	}
	if f.milliseconds("idle_in_transaction_session_timeout") == 0 {
		line.Follows = "a transaction that a program forgets keeps its locks and its connection until the program ends"
		line.Type = "ALTER ROLE " + quoted(f.user) + " SET idle_in_transaction_session_timeout = '60s'"
	}
	e.Add(line)
}

// encryption says whether passwords and rows are to be read on the network.
func (e *exam) encryption(encrypted bool) {
	remote := false
	for _, h := range e.c.Hosts() {
		host, _, err := net.SplitHostPort(h)
		remote = remote || err == nil && host != "localhost" && !net.ParseIP(host).IsLoopback()
	}
	switch {
	case encrypted:
		e.Add(Finding{Level: OK, Check: "tls", Found: "the connection is encrypted"})
	case remote:
		f := Finding{Level: Warn, Check: "tls", Found: "the connection is not encrypted", Follows: "whoever is on the network can read the rows", Type: "sslmode=verify-full"}
		if e.dialect == "mysql" {
			f.Type = "tls=true"
		}
		e.Add(f)
	default:
		e.Add(Finding{Level: OK, Check: "tls", Found: "the connection is not encrypted, and stays on this machine"})
	}
}
