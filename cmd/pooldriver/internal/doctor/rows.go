package doctor

import (
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/inspect"
)

// row is one check: it compares what a server says, and the DSN, with what the program needs.
type row struct {
	dialect string // empty: any
	check   string
	level   Level
	applies func(*exam) bool
	found   func(*exam) string
	follows string
	do      string // what to type
}

// finding is what the row says.
func (r *row) finding(e *exam) Finding {
	return Finding{Level: r.level, Check: r.check, Found: r.found(e), Follows: r.follows, Type: strings.NewReplacer("USER", quoted(e.user), "HALF", (e.plan.setting("pool_acquire_timeout") / 2).String()).Replace(r.do)}
}

// rows are the checks of settings. All that apply are said, in this order.
var rows = []row{
	{"postgres", "standby", Warn, func(e *exam) bool { return e.standby && e.plan.params["target_session_attrs"] == "" },
		says("the server is a standby: it refuses to write"), "each write of the program fails", "target_session_attrs=read-write"},
	{"postgres", "read_only", Warn, func(e *exam) bool { return !e.standby && e.set["default_transaction_read_only"] == "on" },
		says("default_transaction_read_only is on for this user"), "each write of the program fails", "ALTER ROLE USER RESET default_transaction_read_only"},
	{"mysql", "read_only", Warn, func(e *exam) bool { return e.set["read_only"] == "ON" || e.set["innodb_read_only"] == "ON" },
		says("the server is read-only: it refuses to write"), "each write of the program fails", ""},
	{"", "replica_writes", Warn, func(e *exam) bool { return len(e.writable) > 0 },
		func(e *exam) string { return "the account may write on " + strings.Join(e.writable, ", ") },
		"a write that reaches a replica by mistake is on no other server, and may end the replication", "a standby (PostgreSQL); super_read_only=ON, or an account without READ_ONLY ADMIN, CONNECTION_ADMIN and SUPER (MySQL, MariaDB)"},
	{"", "tls", OK, func(e *exam) bool { return e.encrypted && e.verified() }, says("the connection is encrypted, and the server's certificate is checked"), "", ""},
	{"", "tls", Note, func(e *exam) bool { return e.encrypted && !e.verified() },
		says("the connection is encrypted, and nobody checks the server's certificate"), "whoever can redirect the network can read the rows", "sslmode=verify-full (PostgreSQL), tls=true (MySQL)"},
	{"", "tls", Warn, func(e *exam) bool { return e.tells() && !e.encrypted && e.remote() },
		says("the connection is not encrypted"), "whoever is on the network can read the rows", "sslmode=verify-full (PostgreSQL), tls=true (MySQL)"},
	{"", "tls", OK, func(e *exam) bool { return e.tells() && !e.encrypted && !e.remote() }, says("the connection is not encrypted, and stays on this machine"), "", ""},
	{"postgres", "role", Warn, func(e *exam) bool { return e.superuser },
		func(e *exam) string { return "the user " + e.user + " is a superuser" },
		"the program may take the connections that are reserved for administrators, and no limit of a role or a database holds for it", "CREATE ROLE app LOGIN PASSWORD '…'"},
	{"postgres", "application_name", Note, func(e *exam) bool { return !e.pooled && e.plan.params["application_name"] == "" },
		says("the DSN has no application_name"), "nobody can tell this program's sessions from those of other programs of the same user", "application_name=NAME"},
	{"postgres", "statement_timeout", Note, func(e *exam) bool { return e.set["statement_timeout"] == "0" },
		says("the server ends no statement by itself"), "a statement without a deadline of the program's may run for ever", "ALTER ROLE USER SET statement_timeout = '60s'"},
	{"postgres", "idle_in_transaction_session_timeout", Note, func(e *exam) bool { return e.set["idle_in_transaction_session_timeout"] == "0" },
		says("the server ends no idle transaction by itself"), "a transaction that a program forgets keeps its locks and its connection until the program ends", "ALTER ROLE USER SET idle_in_transaction_session_timeout = '60s'"},
	{"postgres", "idle_in_transaction_session_timeout", Warn, func(e *exam) bool {
		d := e.milliseconds("idle_in_transaction_session_timeout")
		return d > 0 && d < time.Second
	}, func(e *exam) string {
		return "the server ends idle transactions after " + inspect.Brief(e.milliseconds("idle_in_transaction_session_timeout"))
	}, "a pause of the program between two statements loses the transaction", "ALTER ROLE USER SET idle_in_transaction_session_timeout = '60s'"},
	{"postgres", "pool_reset", Warn, func(e *exam) bool { return e.shared && e.plan.settings["pool_reset"] != "off" },
		func(e *exam) string { return "pool_reset is " + e.plan.settings["pool_reset"] },
		"our cleaning reaches any of the pooler's sessions, costs a round trip, and removes what the DSN has set in it", "pool_reset=off"},
	{"", "pool_reset", Warn, func(e *exam) bool { return !e.pooled && e.plan.settings["pool_reset"] == "off" },
		says("pool_reset is off, and no pooler was found"), "session state reaches the next borrower", "pool_reset=auto"},
	{"mysql", "refused_connections", Warn, func(e *exam) bool { return number(e.set, "Connection_errors_max_connections") > 0 },
		func(e *exam) string {
			return "the server has refused " + counted(number(e.set, "Connection_errors_max_connections"), "connection") + " since it started, because it was full"
		},
		"max_connections was reached", "SHOW GLOBAL STATUS LIKE 'Connection_errors_max_connections', again after the next peak"},
	{"sqlite", "journal_mode", OK, func(e *exam) bool { return !e.locksReaders() }, (*exam).journal, "", ""},
	{"sqlite", "journal_mode", Warn, (*exam).locksReaders, (*exam).journal, "whoever writes waits for everybody who reads, and the other way round", "_pragma=journal_mode(WAL)"},
	{"sqlite", "busy_timeout", OK, func(e *exam) bool { return e.set["busy_timeout"] != "0" },
		func(e *exam) string { return "busy_timeout is " + inspect.Brief(e.milliseconds("busy_timeout")) }, "", ""},
	{"sqlite", "busy_timeout", Warn, func(e *exam) bool { return e.set["busy_timeout"] == "0" }, says("busy_timeout is 0"),
		"a statement that meets a lock fails at once, with \"database is locked\"", "_pragma=busy_timeout(5000)"},
	{"sqlite", "memory", Bad, func(e *exam) bool { return e.plan.processes() > 1 && strings.Contains(e.Target, ":memory:") },
		says("the database is in memory"), "each process has a database of its own", "sqlite:FILE"},
	{"", "hosts", Warn, func(e *exam) bool { return len(e.c.Hosts()) > 1 && e.plan.params["target_session_attrs"] == "" },
		func(e *exam) string {
			return fmt.Sprintf("the DSN has %d servers, and no target_session_attrs", len(e.c.Hosts()))
		},
		"the pool takes any server that accepts the login, also a standby, which refuses to write", "target_session_attrs=read-write"},
	{"", "pool_acquire_timeout", Warn, func(e *exam) bool { return e.plan.setting("pool_acquire_timeout") == 0 },
		says("pool_acquire_timeout is 0"), "a statement without a deadline waits for ever for a connection", "pool_acquire_timeout=30s"},
	{"", "pool_connect_timeout", Warn, longer("pool_connect_timeout", "pool_acquire_timeout"), compared("pool_connect_timeout", "pool_acquire_timeout"),
		"statements give up before a dial can", "pool_connect_timeout=HALF"},
	{"", "pool_queue_target", Warn, longer("pool_queue_target", "pool_acquire_timeout"), compared("pool_queue_target", "pool_acquire_timeout"),
		"nobody is refused before the timeout ends the wait", "pool_queue_target=HALF"},
	{"", "pool_max_conn_idle_time", Note, longer("pool_max_conn_idle_time", "pool_max_conn_lifetime"), compared("pool_max_conn_idle_time", "pool_max_conn_lifetime"),
		"no connection is ever idle for so long", ""},
}

// check adds what the rows say.
func (e *exam) check() {
	for i := range rows {
		if r := &rows[i]; (r.dialect == "" || r.dialect == e.dialect) && r.applies(e) {
			e.Add(r.finding(e))
		}
	}
}

func says(text string) func(*exam) string { return func(*exam) string { return text } }

// longer reports whether a setting is longer than another one that is not 0.
func longer(a, b string) func(*exam) bool {
	return func(e *exam) bool { return e.plan.setting(b) > 0 && e.plan.setting(a) > e.plan.setting(b) }
}

func compared(a, b string) func(*exam) string {
	return func(e *exam) string {
		return fmt.Sprintf("%s is %s, and %s is %s", a, inspect.Brief(e.plan.setting(a)), b, inspect.Brief(e.plan.setting(b)))
	}
}

// journal says which journal a file of SQLite has.
func (e *exam) journal() string {
	text := "journal_mode of the file is " + e.set["journal_mode"]
	if set := setsJournal.FindString(e.dsn); set != "" {
		text += ", and the DSN sets it: " + strings.TrimSuffix(set, "&")
	}
	return text
}

// locksReaders reports whether writers of SQLite wait for readers.
func (e *exam) locksReaders() bool {
	mode := e.set["journal_mode"]
	return setsJournal.FindString(e.dsn) == "" && mode != "wal" && mode != "memory" && e.plan.Need() > 1
}

// tells reports whether the database says if the connection is encrypted.
func (e *exam) tells() bool { return !e.pooled && (e.dialect == "postgres" || e.dialect == "mysql") }

// verified reports whether the driver checks the server's certificate.
func (e *exam) verified() bool {
	return strings.HasPrefix(e.plan.params["sslmode"], "verify-") || e.plan.params["tls"] == "true"
}

// remote reports whether a server is on another machine.
func (e *exam) remote() (remote bool) {
	for _, h := range e.c.Hosts() {
		host, _, err := net.SplitHostPort(h)
		remote = remote || err == nil && host != "localhost" && !net.ParseIP(host).IsLoopback()
	}
	return remote
}
