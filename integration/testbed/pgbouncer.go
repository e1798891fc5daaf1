package testbed

import (
	"context"
	"database/sql"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
)

const (
	pgbouncerPort     = "6432"
	pgbouncerAdmin    = "pgbouncer_administrator"
	pgbouncerPassword = "pgbouncer-administrator"
)

// PgBouncer is a running PgBouncer in front of one account's database.
type PgBouncer struct {
	Addr string // host:port on 127.0.0.1

	console   *sql.DB
	container *testcontainers.DockerContainer
}

// StartPgBouncer starts one in the network of the account's server, in
// transaction mode, that ends with the test. Each setting is "name=value", as in
// pgbouncer.ini; the last one of a name counts.
func StartPgBouncer(t testing.TB, account Account, settings ...string) *PgBouncer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	server := account.Server
	if server.options.network == nil {
		t.Fatal("testbed: PgBouncer finds only a server made WithNetwork")
	}
	file := func(name, content string) testcontainers.ContainerFile {
		return testcontainers.ContainerFile{Reader: strings.NewReader(content), ContainerFilePath: "/etc/pgbouncer/" + name, FileMode: 0o644}
	}
	b := boxed{
		title: "PgBouncer", image: image("POOLDRIVER_PGBOUNCER_IMAGE", "edoburu/pgbouncer:v1.24.1-p1"), port: pgbouncerPort,
		files: []testcontainers.ContainerFile{
			file("testbed.ini", pgbouncerINI(account, settings)),
			file("users.txt", fmt.Sprintf("%q %q\n%q %q\n", account.User, account.Password, pgbouncerAdmin, pgbouncerPassword)),
		},
		// Images differ in what their entrypoints make of their variables. It
		// refuses to run as root.
		entrypoint: []string{"pgbouncer"}, command: []string{"/etc/pgbouncer/testbed.ini"}, user: "postgres",
		network: server.options.network, alias: "pgbouncer",
	}
	c, addr, err := b.run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Terminate(context.Background(), testcontainers.StopTimeout(0)); err != nil {
			t.Errorf("testbed: terminate PgBouncer: %v", err)
		}
	})
	// Its console knows the simple protocol only.
	console, err := sql.Open("pgx", fmt.Sprintf("postgres://%s:%s@%s/pgbouncer?sslmode=disable&default_query_exec_mode=simple_protocol",
		pgbouncerAdmin, pgbouncerPassword, addr))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = console.Close() })
	p := &PgBouncer{Addr: addr, console: console, container: c}
	if err := p.waitReady(ctx, account); err != nil {
		t.Fatalf("%v; log: %s", err, lastLog(ctx, c))
	}
	return p
}

func pgbouncerINI(account Account, settings []string) string {
	lines := []string{
		"[databases]",
		fmt.Sprintf("%s = host=%s port=%s", account.Database, account.Server.options.alias, account.Server.Engine.port()),
		"[pgbouncer]",
		"listen_addr=*", "listen_port=" + pgbouncerPort, "unix_socket_dir=",
		"auth_type=scram-sha-256", "auth_file=/etc/pgbouncer/users.txt", "admin_users=" + pgbouncerAdmin,
		"pool_mode=transaction",
	}
	return strings.Join(append(lines, settings...), "\n") + "\n"
}

// waitReady returns when the account's database is reached through it.
func (p *PgBouncer) waitReady(ctx context.Context, account Account) error {
	db, err := sql.Open("pgx", account.Via(p.Addr).URL("default_query_exec_mode=exec", "application_name="+url.QueryEscape("testbed")))
	if err != nil {
		return err
	}
	defer db.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		last := db.PingContext(ctx)
		if last == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("testbed: PgBouncer on %s reaches no database: %w", p.Addr, last)
		case <-tick.C:
		}
	}
}

// Pause lets no statement pass until the end of the test.
func (p *PgBouncer) Pause(t testing.TB) {
	t.Helper()
	if _, err := p.console.ExecContext(t.Context(), "PAUSE"); err != nil {
		t.Fatalf("testbed: PAUSE: %v", err)
	}
	t.Cleanup(func() {
		if _, err := p.console.ExecContext(context.Background(), "RESUME"); err != nil {
			t.Errorf("testbed: RESUME: %v", err)
		}
	})
}

// Show returns what the console says to SHOW what, a row for each line.
func (p *PgBouncer) Show(t testing.TB, what string) []map[string]string {
	t.Helper()
	rows, err := p.console.QueryContext(t.Context(), "SHOW "+what)
	if err != nil {
		t.Fatalf("testbed: SHOW %s: %v", what, err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var lines []map[string]string
	for rows.Next() {
		values := make([]sql.NullString, len(names))
		into := make([]any, len(names))
		for i := range values {
			into[i] = &values[i]
		}
		if err := rows.Scan(into...); err != nil {
			t.Fatal(err)
		}
		line := map[string]string{}
		for i, name := range names {
			line[name] = values[i].String
		}
		lines = append(lines, line)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return lines
}
