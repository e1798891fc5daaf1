package testbed

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strconv"

	_ "github.com/jackc/pgx/v5/stdlib" // The bare driver, registered as "pgx".
)

// Postgres is PostgreSQL 13 or newer.
var Postgres Engine = postgres{}

type postgres struct{}

const (
	postgresPassword = "postgres-administrator"
	// postgresAuth: a client of this machine tells its password, too.
	postgresAuth = "--auth-host=scram-sha-256"
	// postgresData is none of the images' volumes: those moved in version 18.
	postgresData = "/testbed"
)

func (postgres) String() string { return "postgres" }

func (postgres) image() (variable, official string) {
	return "POOLDRIVER_POSTGRES_IMAGE", "postgres:18"
}

func (postgres) port() string { return "5432" }

func (postgres) environment() (env map[string]string, dataDir string) {
	return map[string]string{
		"POSTGRES_PASSWORD":    postgresPassword,
		"POSTGRES_INITDB_ARGS": "--no-sync " + postgresAuth,
		"PGDATA":               postgresData,
	}, postgresData
}

func (postgres) command(o options) []string {
	const reserved = 8
	limit := 400 // of many tests at once
	if o.maxConnections > 0 {
		limit = o.maxConnections
	}
	// A commit reaches the operating system, which survives Kill, but no disk.
	command := []string{
		"postgres", "-c", "fsync=off", "-c", "full_page_writes=off",
		"-c", "max_connections=" + strconv.Itoa(limit+reserved),
		"-c", "superuser_reserved_connections=" + strconv.Itoa(reserved),
	}
	return append(command, o.arguments...)
}

func (postgres) listen(port string) []string {
	return []string{"-c", "listen_addresses=127.0.0.1", "-c", "port=" + port}
}

// openAdmin uses TLS if the server may offer it: a server learns TLS while it
// runs, and the administrator asks questions before and after.
func (postgres) openAdmin(s *Server, database string) (*sql.DB, error) {
	if database == "" {
		database = "postgres"
	}
	mode := "disable"
	if s.options.tlsOnly {
		mode = "prefer"
	}
	return sql.Open("pgx", fmt.Sprintf("postgres://postgres:%s@%s/%s?sslmode=%s&connect_timeout=60&application_name=witness",
		postgresPassword, s.Addr, database, mode))
}

func (postgres) openAccount(a Account, parameters []string) (*sql.DB, error) {
	return sql.Open("pgx", a.URL(parameters...))
}

func (postgres) transport(s *Server) string {
	if s.authority == nil {
		return "sslmode=disable"
	}
	return "sslmode=verify-full&sslrootcert=" + url.QueryEscape(s.authority.file)
}

func (postgres) create(ctx context.Context, admin *sql.DB, a Account) error {
	return each(ctx, admin,
		fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", a.User, verifier(a.Password)),
		fmt.Sprintf("CREATE ROLE %s", a.Role),
		fmt.Sprintf("GRANT %s TO %s", a.Role, a.User),
		fmt.Sprintf("CREATE DATABASE %s OWNER %s", a.Database, a.User),
	)
}

func (postgres) drop(ctx context.Context, admin *sql.DB, a Account) error {
	return each(ctx, admin,
		fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", a.Database),
		fmt.Sprintf("DROP ROLE %s", a.User),
		fmt.Sprintf("DROP ROLE %s", a.Role),
	)
}

func (postgres) limit(ctx context.Context, admin *sql.DB, a Account, connections int) error {
	return each(ctx, admin, fmt.Sprintf("ALTER ROLE %s CONNECTION LIMIT %d", a.User, connections))
}

func (postgres) enableTLS(ctx context.Context, s *Server) error {
	rules := "local all all trust\nhostssl all all all scram-sha-256\n"
	if err := execute(ctx, s.container, "sh", "-c", fmt.Sprintf("printf '%s' > %s/pg_hba.conf", rules, postgresData)); err != nil {
		return err
	}
	admin, err := s.Admin()
	if err != nil {
		return err
	}
	if err := each(ctx, admin, "ALTER SYSTEM SET ssl = on"); err != nil {
		return err
	}
	return s.useCertificate(ctx, Good)
}

func (postgres) requireCertificate(ctx context.Context, a Account) error {
	rule := fmt.Sprintf("sed -i '1i hostssl all %s all cert' %s/pg_hba.conf", a.User, postgresData)
	if err := execute(ctx, a.Server.container, "sh", "-c", rule); err != nil {
		return err
	}
	admin, err := a.Server.Admin()
	if err != nil {
		return err
	}
	err = each(ctx, admin, fmt.Sprintf("ALTER SYSTEM SET ssl_ca_file = '%s/ca.crt'", certificateDir), "SELECT pg_reload_conf()")
	if err != nil {
		return err
	}
	return a.Server.waitTrue(ctx, "SELECT current_setting('ssl_ca_file') <> '' AND EXISTS (SELECT FROM pg_hba_file_rules WHERE auth_method = 'cert' AND error IS NULL)")
}

func (postgres) reloadTLS(ctx context.Context, s *Server, certificate []byte) error {
	// The server refuses a key that others may read.
	if err := execute(ctx, s.container, "sh", "-c", fmt.Sprintf(
		"install -o postgres -g postgres -m 600 %[1]s/server.key %[1]s/server.crt %[2]s/",
		certificateDir, postgresData)); err != nil {
		return err
	}
	admin, err := s.Admin()
	if err != nil {
		return err
	}
	return waitPresented(ctx, s.Addr, certificate, func(ctx context.Context) error {
		return each(ctx, admin, "SELECT pg_reload_conf()")
	})
}

func (postgres) transactions(ctx context.Context, admin *sql.DB, a Account) (list []Transaction, err error) {
	rows, err := admin.QueryContext(ctx, `SELECT pid, coalesce(wait_event_type = 'Lock', false) FROM pg_stat_activity
		WHERE usename = $1 AND xact_start IS NOT NULL`, a.User)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var t Transaction
		if err := rows.Scan(&t.Connection, &t.Waits); err != nil {
			return nil, err
		}
		list = append(list, t)
	}
	return list, rows.Err()
}

func (postgres) queries() queries {
	return queries{
		// The view is read row by row: without the last condition a look could count a
		// backend that ended meanwhile, and the one that came after it.
		backends: `SELECT count(*), 0, 0 FROM pg_stat_activity
			WHERE usename = $1 AND backend_type = 'client backend' AND backend_start < statement_timestamp()`,
		idle: `SELECT pid FROM pg_stat_activity
			WHERE usename = $1 AND backend_type = 'client backend' AND state = 'idle'`,
		kill:     "SELECT pg_terminate_backend(%d)",
		sleeping: "SELECT count(*) FROM pg_stat_activity WHERE usename = $1 AND wait_event = 'PgSleep'",
		lockHolder: `SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
			AND database = (SELECT oid FROM pg_database WHERE datname = $1)
			AND (classid::bigint << 32) | objid::bigint = $2::bigint`,
	}
}

// each executes statements one after the other.
func each(ctx context.Context, db *sql.DB, statements ...string) error {
	for _, statement := range statements {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	return nil
}
