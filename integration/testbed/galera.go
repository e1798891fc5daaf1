package testbed

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
)

// Galera is a cluster of three nodes of MariaDB. All of them take writes, and a
// commit is acknowledged when the others have the transaction.
type Galera struct {
	Nodes [3]*Server
}

var galeraNames = [3]string{"a", "b", "c"}

// bootstrapMark: a node that has this file when it starts begins the cluster.
const bootstrapMark = "/bootstrap"

// galeraNode starts a node as its image would. One that joins needs no database
// of its own first, which the directory says it has: all comes from another node.
const galeraNode = `#!/bin/sh
set -eu
if [ -e ` + bootstrapMark + ` ]; then
    rm ` + bootstrapMark + `
    exec docker-entrypoint.sh mariadbd --wsrep-new-cluster "$@"
fi
mkdir -p /var/lib/mysql/mysql
exec docker-entrypoint.sh mariadbd "$@"
`

// galeraConfig is node i's. The last node gives newcomers what they need, for a
// node that does stands still meanwhile. The plugin would make the provider's
// options constants. The times after which a node is given up are the defaults:
// with shorter ones two nodes of a busy machine were seen to give up each other.
func galeraConfig(i int) string {
	donor := galeraNames[2]
	if i == 2 {
		donor = galeraNames[1]
	}
	return fmt.Sprintf(`[mariadbd]
bind-address = *
wsrep_on = ON
loose-plugin-wsrep-provider = OFF
wsrep_provider = /usr/lib/galera/libgalera_smm.so
wsrep_provider_options = "gcache.size=32M"
wsrep_cluster_name = testbed
wsrep_cluster_address = gcomm://%s
wsrep_node_name = %s
wsrep_sst_method = rsync
wsrep_sst_donor = "%s,"
binlog_format = ROW
default_storage_engine = InnoDB
innodb_autoinc_lock_mode = 2
innodb_flush_log_at_trx_commit = 2
`, strings.Join(galeraNames[:], ","), galeraNames[i], donor)
}

// StartGalera starts a cluster that ends with the test.
func StartGalera(t testing.TB) *Galera {
	t.Helper()
	n := NewNetwork(t)
	g := &Galera{}
	var errs [3]error
	g.Nodes[0], errs[0] = startGaleraNode(t, n, 0)
	if errs[0] == nil {
		var joining sync.WaitGroup
		for i := 1; i < len(g.Nodes); i++ {
			joining.Go(func() { g.Nodes[i], errs[i] = startGaleraNode(t, n, i) })
		}
		joining.Wait()
	}
	for i, s := range g.Nodes {
		if s != nil {
			t.Cleanup(func() {
				if err := s.Terminate(); err != nil {
					t.Errorf("terminate node %s: %v", galeraNames[i], err)
				}
			})
		}
	}
	for i, err := range errs {
		if err != nil {
			t.Fatalf("testbed: Galera node %s: %v", galeraNames[i], err)
		}
	}
	g.WaitSize(t, g.Nodes[0], len(g.Nodes))
	return g
}

func startGaleraNode(t testing.TB, n *Network, i int) (*Server, error) {
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	name := galeraNames[i]
	s := &Server{Engine: MySQL, options: options{restartable: true, network: n, alias: name}}
	file := func(path, content string, mode int64) testcontainers.ContainerFile {
		return testcontainers.ContainerFile{Reader: strings.NewReader(content), ContainerFilePath: path, FileMode: mode}
	}
	env, _ := s.Engine.environment()
	b := boxed{
		title: "Galera node " + name, image: image("POOLDRIVER_GALERA_IMAGE", "mariadb:11.8"), port: s.Engine.port(), env: env,
		files:      []testcontainers.ContainerFile{file("/node.sh", galeraNode, 0o755), file("/etc/mysql/conf.d/testbed.cnf", galeraConfig(i), 0o644)},
		entrypoint: []string{"sh", "/node.sh"}, network: n, alias: name,
	}
	if i == 0 {
		b.files = append(b.files, file(bootstrapMark, "", 0o644))
	}
	var err error
	if s.container, s.Addr, err = b.run(ctx); err != nil {
		return nil, err
	}
	if err := s.waitSynced(ctx); err != nil {
		return s, fmt.Errorf("%w; log: %s", err, lastLog(ctx, s.container))
	}
	return s, nil
}

// status is one of a node's own words about itself.
func (s *Server) status(ctx context.Context, variable string) (string, error) {
	admin, err := s.Admin()
	if err != nil {
		return "", err
	}
	var name, value string
	err = admin.QueryRowContext(ctx, "SHOW GLOBAL STATUS LIKE '"+variable+"'").Scan(&name, &value)
	return value, err
}

// waitStatus returns when a node says what it should.
func (s *Server) waitStatus(ctx context.Context, variable, want string) error {
	return s.waitFor(ctx, variable, want, func(ctx context.Context) (string, error) { return s.status(ctx, variable) })
}

// waitFor returns when a server answers a question as it should.
func (s *Server) waitFor(ctx context.Context, question, want string, ask func(context.Context) (string, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		attempt, cancel := context.WithTimeout(ctx, 5*time.Second)
		got, err := ask(attempt)
		cancel()
		if err == nil && got == want {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("testbed: %s on %s is %q, not %q: %w", question, s.Addr, got, want, err)
		case <-tick.C:
		}
	}
}

func (s *Server) waitSynced(ctx context.Context) error {
	if err := s.waitReady(ctx); err != nil {
		return err
	}
	return s.waitStatus(ctx, "wsrep_local_state_comment", "Synced")
}

// NewAccount makes an account on the cluster, whose DSNs name all nodes.
func (g *Galera) NewAccount(t testing.TB) Account {
	t.Helper()
	var list []string
	for _, s := range g.Nodes {
		list = append(list, s.Addr)
	}
	return g.Nodes[0].makeAccount(t).Via(strings.Join(list, ","))
}

// WaitSize returns when a node that takes writes counts as many in its cluster.
func (g *Galera) WaitSize(t testing.TB, s *Server, size int) {
	t.Helper()
	g.wait(t, s, "wsrep_cluster_size", fmt.Sprint(size))
	g.wait(t, s, "wsrep_ready", "ON")
}

func (g *Galera) wait(t testing.TB, s *Server, variable, want string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := s.waitStatus(ctx, variable, want); err != nil {
		t.Fatalf("%v; log: %s", err, lastLog(ctx, s.container))
	}
}

// Return starts a node that was killed, and returns when it takes writes again.
func (g *Galera) Return(t testing.TB, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	err := s.container.Start(ctx)
	if err == nil {
		err = s.waitSynced(ctx)
	}
	if err != nil {
		t.Fatalf("testbed: return: %v; log: %s", err, lastLog(ctx, s.container))
	}
}

// Isolate cuts a node off from the others, not from its clients, and returns when
// it refuses statements. Reunite takes that back.
func (g *Galera) Isolate(t testing.TB, s *Server) {
	t.Helper()
	g.option(t, s, "gmcast.isolate=1")
	g.wait(t, s, "wsrep_ready", "OFF")
}

// Reunite returns when an isolated node takes writes again.
func (g *Galera) Reunite(t testing.TB, s *Server) {
	t.Helper()
	g.option(t, s, "gmcast.isolate=0")
	g.wait(t, s, "wsrep_ready", "ON")
	g.wait(t, s, "wsrep_local_state_comment", "Synced")
}

// WaitRefusing returns when a node has found out that it is alone, and refuses
// statements. GoOnAlone makes it a cluster of its own, as an administrator would
// who knows that the others are gone.
func (g *Galera) WaitRefusing(t testing.TB, s *Server) {
	t.Helper()
	g.wait(t, s, "wsrep_ready", "OFF")
}

// GoOnAlone returns when the node takes writes.
func (g *Galera) GoOnAlone(t testing.TB, s *Server) {
	t.Helper()
	g.option(t, s, "pc.bootstrap=YES")
	g.wait(t, s, "wsrep_ready", "ON")
}

func (g *Galera) option(t testing.TB, s *Server, option string) {
	t.Helper()
	admin, err := s.Admin()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := admin.ExecContext(t.Context(), "SET GLOBAL wsrep_provider_options = '"+option+"'"); err != nil {
		t.Fatalf("testbed: %s: %v", option, err)
	}
}
