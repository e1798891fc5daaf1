package doctor

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// pooler examines what stands between us and PostgreSQL. It was found because the session's number is not
// the one that the login told (other), or by its name.
func (e *exam) pooler(ctx context.Context, name string, other bool) {
	console := e.console(ctx)
	if console != nil {
		name = "PgBouncer"
	}
	e.shared = e.isShared(ctx)
	f := Finding{Level: Note, Check: "pooler", Found: between(name, "a pooler", other)}
	if e.shared {
		f.Found += "; it works in transaction mode: two of our connections had the same session"
		f.Follows = "session state (SET, LISTEN, advisory locks of sessions) does not stay with a connection: docs/servers.md, PgBouncer in transaction mode and Poolers of clouds"
	} else {
		f.Follows = "each of our connections seems to have a session of its own"
	}
	e.Add(f)
	if e.shared {
		e.poolerSettings(ctx)
	}
	if console == nil {
		limits := Finding{
			Level: Note, Check: "pooler_limits",
			Found:   "the pooler's limits are not shown to this user; those of the server bound the pooler, and not this program",
			Follows: fmt.Sprintf("the pooler must accept %s clients, with all other programs", e.plan.Product()),
		}
		if name == "" || name == "PgBouncer" {
			limits.Type = "psql -p PORT pgbouncer -c 'SHOW CONFIG' -c 'SHOW DATABASES', as a user of stats_users or admin_users"
		}
		e.Add(limits)
		return
	}
	e.poolerLimits(console)
}

// isShared reports whether two of our connections, both open, have had the same session of the server.
func (e *exam) isShared(ctx context.Context) bool {
	second, err := e.db.Conn(ctx)
	if err != nil {
		return false
	}
	defer func() { _ = second.Close() }()
	seen := map[uint64]int{}
	for range 5 {
		for i, conn := range []*sql.Conn{e.conn, second} {
			var pid uint64
			if err := conn.QueryRowContext(ctx, "SELECT pg_backend_pid()").Scan(&pid); err != nil {
				return false
			}
			if seen[pid] |= 1 << i; seen[pid] == 3 {
				return true
			}
		}
	}
	return false
}

// poolerSettings looks whether statements can be prepared behind a pooler in transaction mode.
func (e *exam) poolerSettings(ctx context.Context) {
	f := Finding{Level: OK, Check: "prepared", Found: "prepared statements work through the pooler"}
	if mode := e.plan.params[execMode]; mode == "exec" || mode == "simple_protocol" || mode == "cache_describe" {
		f.Found = execMode + " is " + mode + ": no statement is prepared by name"
	} else if err := e.prepares(ctx); err != nil {
		f = Finding{
			Level: Bad, Check: "prepared", Found: "two connections that run the same statement disturb each other: " + err.Error(),
			Follows: "statements fail, as soon as there are two connections",
			Type:    execMode + "=exec in the DSN, or max_prepared_statements = 200 in PgBouncer's configuration",
		}
	}
	e.Add(f)
}

// prepares runs the same statement on two connections, as the program would. The statement is like no
// other: a pooler may know those of others.
func (e *exam) prepares(ctx context.Context) error {
	db := sql.OpenDB(open(e.dsn, 2))
	defer func() { _ = db.Close() }()
	text := fmt.Sprintf("SELECT $1::int AS pooldriver_doctor_%d", time.Now().UnixNano())
	var conns []*sql.Conn
	for range 2 {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		if err := conn.PingContext(ctx); err != nil {
			return err
		}
		conns = append(conns, conn)
	}
	for range 2 {
		for _, conn := range conns {
			var one int // without an argument nothing is prepared
			if err := conn.QueryRowContext(ctx, text, 1).Scan(&one); err != nil {
				return err
			}
		}
	}
	return nil
}

// console asks PgBouncer for its configuration, in its own database; nil: it is another pooler, or this
// user may not ask.
func (e *exam) console(ctx context.Context) map[string]string {
	dsn := e.dsn
	if strings.Contains(dsn, "://") {
		u, err := url.Parse(dsn)
		if err != nil {
			return nil
		}
		q := u.Query()
		q.Del("dbname")
		q.Del("database")
		q.Set(execMode, "simple_protocol") // it knows no other
		u.Path, u.RawQuery = "/pgbouncer", q.Encode()
		dsn = u.String()
	} else {
		dsn += " dbname=pgbouncer " + execMode + "=simple_protocol"
	}
	db := sql.OpenDB(open(dsn, 1))
	defer func() { _ = db.Close() }()
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil
	}
	defer func() { _ = conn.Close() }()
	config, err := values(ctx, conn, "SHOW CONFIG")
	if err != nil {
		return nil
	}
	return config
}

// poolerLimits judges PgBouncer's configuration.
func (e *exam) poolerLimits(config map[string]string) {
	e.Add((&limit{check: "max_client_conn", name: "max_client_conn of PgBouncer is", max: number(config, "max_client_conn"),
		raise: "max_client_conn = %d in PgBouncer's configuration"}).judge(e.plan))
	e.Add(Finding{
		Level: Note, Check: "default_pool_size", Found: fmt.Sprintf("default_pool_size of PgBouncer is %s: so many sessions of the server serve all clients of a user and a database", config["default_pool_size"]),
		Follows: "more statements at a time wait in PgBouncer, where pooldriver does not see them",
	})
	seconds, _ := strconv.ParseFloat(config["client_idle_timeout"], 64)
	e.Add(e.plan.idleTimeout("client_idle_timeout", "client_idle_timeout of PgBouncer", time.Duration(seconds*float64(time.Second))))
}
