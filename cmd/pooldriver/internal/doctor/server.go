package doctor

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/inspect"
)

// patience bounds all checks of a server together.
const patience = 30 * time.Second

// loginTimeout bounds the first login, and the wait for a connection after it.
const loginTimeout = 10 * time.Second

// exam is the examination of one server.
type exam struct {
	*Report
	plan    *Plan
	dialect string
	dsn     string
	c       *pooldriver.Connector
	db      *sql.DB
	conn    *sql.Conn // all questions use it
	pid     uint64    // the server's number of conn, as its login has told it; 0: not known

	facts
}

// facts are what a session can see of its server.
type facts struct {
	clients
	set         map[string]string // settings of the server and of the session, and its counters
	standby     bool
	superuser   bool // may use the connections that are reserved for superusers
	privileged  bool // may use reserved_connections
	perRole     int  // negative: no limit
	perDatabase int
	writable    []string // hosts of pool_replicas where the account may write
	encrypted   bool
	pooled      bool // a pooler is between the program and the server
	shared      bool // it lends one session to several of our connections
}

func (f *facts) milliseconds(name string) time.Duration {
	return time.Duration(number(f.set, name)) * time.Millisecond
}

// Server connects as the program would, with two connections at most, and adds what it finds to r.
func Server(ctx context.Context, r *Report, dsn string, p *Plan) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	e := &exam{Report: r, plan: p, dsn: dsn}
	if d, err := dialects.Find(dsn); err == nil {
		e.dialect = d.Name()
	}
	if e.dialect == "postgres" && p.params[execMode] == "" {
		// The questions must not leave prepared statements behind in a pooler's connections.
		dsn = withParam(dsn, execMode, "exec")
	}
	if e.dialect == "sqlite" {
		dsn = setsJournal.ReplaceAllString(dsn, "") // it would change the file
	}
	if e.fileIsMissing() {
		return
	}
	e.c = open(dsn, 2, func(c *pooldriver.Config) {
		c.Reset = pooldriver.ResetOff // behind a pooler it would reach the sessions of others
		c.Replicas = nil              // each is examined by itself
	})
	e.db = sql.OpenDB(e.c)
	defer func() { _ = e.db.Close() }()
	if !e.login(ctx) {
		return
	}
	defer func() { _ = e.conn.Close() }()
	switch e.dialect {
	case "postgres":
		e.postgres(ctx)
	case "mysql":
		e.mysql(ctx)
	case "sqlite":
		e.sqlite(ctx)
	default:
		e.Add(Finding{Level: Note, Check: "server", Found: "doctor does not know the limits of " + e.dialect})
	}
	e.replicas(ctx, dsn)
	e.check()
}

// execMode is pgx's parameter that says how statements are sent.
const execMode = "default_query_exec_mode"

// setsJournal finds the parameter of SQLite's DSN that changes the journal of the file.
var setsJournal = regexp.MustCompile(`(?i)_pragma=journal_mode[^&]*&?`)

// withParam returns the DSN with one parameter more.
func withParam(dsn, name, value string) string {
	d, err := dialects.Find(dsn)
	switch {
	case err == nil && d.Name() == "postgres" && !strings.Contains(dsn, "://"):
		return dsn + " " + name + "=" + value
	case strings.Contains(dsn, "?"):
		return dsn + "&" + name + "=" + value
	}
	return dsn + "?" + name + "=" + value
}

// open returns a Connector that has so many connections at most, and logs nothing.
func open(dsn string, most int, options ...pooldriver.Option) *pooldriver.Connector {
	return pooldriver.New(dsn, append(options, func(c *pooldriver.Config) {
		c.MaxConns, c.MinConns, c.MinIdleConns = most, 0, 0
		c.ConnectTimeout = min(c.ConnectTimeout, loginTimeout)
		c.AcquireTimeout = loginTimeout
		c.BreakerFailures, c.LeakAfter, c.SlowQuery, c.TaskTimeout = 0, 0, 0, 0
		c.Logger = slog.New(slog.DiscardHandler)
	})...)
}

// fileIsMissing reports whether the DSN names a file of SQLite that does not exist: SQLite would make it.
func (e *exam) fileIsMissing() bool {
	file, isFile := strings.CutPrefix(e.Target, "sqlite ")
	if !isFile || file == "" || strings.Contains(file, ":memory:") || slices.Contains([]string{e.plan.params["mode"], e.plan.params["vfs"]}, "memory") {
		return false
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) {
		return false
	}
	e.Add(Finding{
		Level: Bad, Check: "login", Found: "there is no file " + file,
		Follows: "the program would begin with an empty database; doctor makes no file",
		Type:    e.dial(),
	})
	return true
}

// login opens the first connection, measures round trips, and reports why it cannot.
func (e *exam) login(ctx context.Context) (ok bool) {
	begun := time.Now()
	limited, cancel := context.WithTimeout(ctx, loginTimeout)
	defer cancel()
	conn, err := e.db.Conn(limited)
	if err == nil {
		err = conn.PingContext(limited)
	}
	if err != nil {
		e.Add(e.refused(err))
		return false
	}
	e.conn = conn
	took := time.Since(begun)
	var trips []time.Duration
	for range 9 {
		begun := time.Now()
		if _, err := e.conn.ExecContext(ctx, "SELECT 1"); err != nil {
			e.Add(e.refused(err))
			return false
		}
		trips = append(trips, time.Since(begun))
	}
	slices.Sort(trips)
	for _, h := range e.c.Holders() {
		e.pid = max(e.pid, h.ProcessID)
	}
	f := Finding{
		Level: OK, Check: "login",
		Found: fmt.Sprintf("a new connection took %s, and a round trip takes %s", inspect.Brief(took), inspect.Brief(trips[len(trips)/2])),
	}
	if took > time.Second {
		f.Level, f.Follows = Warn, "statements wait for it whenever the pool grows or replaces a connection"
		f.Type = "pool_min_idle_conns=2"
	}
	e.Add(f)
	return true
}

// refused says why there is no connection.
func (e *exam) refused(err error) Finding {
	f := Finding{Level: Bad, Check: "login", Found: err.Error(), Follows: "the program gets no connection", Type: e.dial()}
	full := false
	if d, known := dialects.Find(e.dsn); known == nil {
		full = d.Diagnose(err)&dialects.ServerFull != 0
	}
	switch cause := e.c.Stats().DialsFailing.Cause; {
	case full:
		f.Follows = "the server, or a pooler before it, is full for this user: a process that has no connection yet fails"
		f.Type = "as administrator: SELECT usename, application_name, count(*) FROM pg_stat_activity GROUP BY 1, 2"
		if e.dialect == "mysql" {
			f.Type = "as administrator: SELECT user, db, count(*) FROM information_schema.processlist GROUP BY 1, 2"
		}
	case cause == pooldriver.DialLoginRefused:
		f.Follows = "the server answers, and refuses the user or the password: the program gets no connection"
		f.Type = "pooldriver explain - (and the DSN at its standard input), to see user, hosts and database without the password"
	case cause == pooldriver.DialNoSuchName:
		f.Follows = "DNS does not know the host, from here"
		f.Type = "getent hosts " + hostOf(e.c.Hosts())
	case cause == pooldriver.DialNoAnswer:
		f.Follows = "nothing answers: a firewall, a wrong address, or a server that hangs"
	case answered.MatchString(err.Error()):
		f.Follows, f.Type = "the server answers, and refuses us: the program gets no connection", ""
	}
	return f
}

// answered finds the error of a server that was reached: the network needs no look.
var answered = regexp.MustCompile(`SQLSTATE|Error [0-9]+ \(|x509|certificate|target_session_attrs|read.only`)

// dial is a command that tries to reach the first server, or the file.
func (e *exam) dial() string {
	if file, isFile := strings.CutPrefix(e.Target, "sqlite "); isFile {
		return "ls -ld " + file
	}
	hosts := e.c.Hosts()
	if len(hosts) == 0 {
		return ""
	}
	host, port, err := net.SplitHostPort(hosts[0])
	if err != nil {
		return "ls -l " + hosts[0]
	}
	return "nc -vz " + host + " " + port
}

func hostOf(hosts []string) string {
	if len(hosts) == 0 {
		return "HOST"
	}
	if host, _, err := net.SplitHostPort(hosts[0]); err == nil {
		return host
	}
	return hosts[0]
}

// values asks for rows of a name and a value.
func values(ctx context.Context, conn *sql.Conn, query string) (map[string]string, error) {
	rows, err := conn.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	all := map[string]string{}
	for rows.Next() {
		var name, value sql.NullString
		into := []any{&name, &value}
		for range len(columns) - len(into) { // PgBouncer's have more
			into = append(into, new(sql.RawBytes))
		}
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		all[name.String] = value.String
	}
	return all, rows.Err()
}

func number(values map[string]string, name string) int {
	n, _ := strconv.Atoi(values[name])
	return n
}
