package testbed

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
)

// PostgresPair is a primary with a standby that follows it. A commit is
// acknowledged when both have it.
type PostgresPair struct {
	Primary, Standby *Server // Promote makes the standby the primary.
	names            map[*Server]string
}

const (
	// pairData is a directory of the images' volume, which postgres may make.
	pairData = "/var/lib/postgresql/data/testbed"
	// followMark: a node that has this file when it starts becomes a standby.
	followMark = "/follow"
)

// pairNode starts a node as its image would, or makes it a standby of the other
// one first: from its own data, which may have what the other has not, or from
// none. The process whose lock it removes was killed with the container.
const pairNode = `#!/bin/sh
set -eu
other=$1; shift
if [ ! -e ` + followMark + ` ]; then exec docker-entrypoint.sh postgres "$@"; fi
if [ -s "$PGDATA/PG_VERSION" ]; then
    rm -f "$PGDATA/postmaster.pid"
    pg_rewind --target-pgdata="$PGDATA" --source-server="$other user=postgres dbname=postgres" --write-recovery-conf --no-sync
    echo "primary_conninfo = '$other user=postgres password=$PGPASSWORD'" >> "$PGDATA/postgresql.auto.conf"
else
    pg_basebackup --dbname="$other user=postgres" --pgdata="$PGDATA" --write-recovery-conf --checkpoint=fast --no-sync
fi
exec postgres "$@"
`

// pairInit is for pg_rewind's server, too, which knows no command line. A commit
// reaches the operating systems, which survive Kill, but no disk.
const pairInit = `
echo "host replication all all scram-sha-256" >> "$PGDATA/pg_hba.conf"
printf 'fsync = off\nwal_keep_size = 512MB\n' >> "$PGDATA/postgresql.conf"
`

// StartPostgresPair starts a pair that ends with the test.
func StartPostgresPair(t testing.TB) *PostgresPair {
	t.Helper()
	n := NewNetwork(t)
	p := &PostgresPair{names: map[*Server]string{}}
	p.Primary = startPostgresNode(t, n, "one", conninfo("two", Postgres.port()), false)
	p.Standby = startPostgresNode(t, n, "two", conninfo(p.Primary.peer()), true)
	p.names[p.Primary], p.names[p.Standby] = "one", "two"
	p.Synchronise(t)
	return p
}

// conninfo is an address in libpq's words.
func conninfo(host, port string) string { return "host=" + host + " port=" + port }

// startPostgresNode starts a server that can follow the other one, and does if follow. Without a network it is in that of
// this machine.
func startPostgresNode(t testing.TB, n *Network, name, other string, follow bool) *Server {
	t.Helper()
	files := []testcontainers.ContainerFile{
		{Reader: strings.NewReader(pairNode), ContainerFilePath: "/node.sh", FileMode: 0o755},
		{Reader: strings.NewReader(pairInit), ContainerFilePath: "/docker-entrypoint-initdb.d/replication.sh", FileMode: 0o644},
	}
	if follow {
		files = append(files, testcontainers.ContainerFile{
			Reader: strings.NewReader(""), ContainerFilePath: followMark, FileMode: 0o644})
	}
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	s := &Server{Engine: Postgres, options: options{restartable: true, network: n, alias: name}}
	variable, official := s.Engine.image()
	b := boxed{
		title: "postgres " + name, image: image(variable, official), port: s.Engine.port(), user: "postgres", network: n, alias: name,
		env: map[string]string{
			"POSTGRES_PASSWORD": postgresPassword, "PGPASSWORD": postgresPassword,
			"POSTGRES_INITDB_ARGS": "--no-sync --data-checksums " + postgresAuth, "PGDATA": pairData, // pg_rewind wants checksums
		},
		files:      files,
		entrypoint: []string{"sh", "/node.sh"},
		command:    []string{other, "-c", "max_connections=208", "-c", "superuser_reserved_connections=8"},
	}
	if n == nil {
		b.listen = s.Engine.listen
	}
	var err error
	if s.container, s.Addr, err = b.run(ctx); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Terminate(); err != nil {
			t.Errorf("terminate postgres %s: %v", name, err)
		}
	})
	if err := s.waitReady(ctx); err != nil {
		t.Fatalf("%v; log: %s", err, lastLog(ctx, s.container))
	}
	return s
}

// NewAccount makes an account on the pair, whose DSNs name both servers, the
// present primary first.
func (p *PostgresPair) NewAccount(t testing.TB) Account {
	t.Helper()
	return p.Primary.makeAccount(t).Via(p.Primary.Addr + "," + p.Standby.Addr)
}

// Synchronise makes commits wait for the standby, and returns when it follows.
func (p *PostgresPair) Synchronise(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	admin, err := p.Primary.Admin()
	if err != nil {
		t.Fatal(err)
	}
	if err := each(ctx, admin, "ALTER SYSTEM SET synchronous_standby_names = '*'", "SELECT pg_reload_conf()"); err != nil {
		t.Fatalf("testbed: synchronise: %v", err)
	}
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var following int
		err := admin.QueryRowContext(ctx, "SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'sync'").Scan(&following)
		if err == nil && following > 0 {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("testbed: the standby does not follow: %v; log: %s", err, lastLog(ctx, p.Standby.container))
		case <-tick.C:
		}
	}
}

// Promote makes the standby the primary, and returns when it is.
func (p *PostgresPair) Promote(t testing.TB) {
	t.Helper()
	admin, err := p.Standby.Admin()
	if err != nil {
		t.Fatal(err)
	}
	var promoted bool
	if err := admin.QueryRowContext(t.Context(), "SELECT pg_promote(true, 60)").Scan(&promoted); err != nil || !promoted {
		t.Fatalf("testbed: promote: %t, %v", promoted, err)
	}
	p.Primary, p.Standby = p.Standby, p.Primary
}

// Return starts the former primary, which was killed, as the standby of the
// present one: what it had and the present one has not is undone.
func (p *PostgresPair) Return(t testing.TB) {
	t.Helper()
	if err := p.Standby.container.CopyToContainer(t.Context(), nil, followMark, 0o644); err != nil {
		t.Fatalf("testbed: %s: %v", p.names[p.Standby], err)
	}
	p.Standby.Start(t)
	p.Synchronise(t)
}

// Role says what a node is, for logs.
func (p *PostgresPair) Role(s *Server) string {
	role := "standby"
	if s == p.Primary {
		role = "primary"
	}
	return fmt.Sprintf("%s (%s, %s)", p.names[s], role, strconv.Quote(s.Addr))
}
