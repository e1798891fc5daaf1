package testbed

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/testcontainers/testcontainers-go"
)

// Patroni is a cluster of three PostgreSQL servers, of which Patroni makes one the leader. A commit is
// acknowledged when the leader and one other have it (synchronous_mode).
type Patroni struct {
	Nodes [3]*Server
	Proxy string // HAProxy's address; it leads to the leader, by Patroni's health checks
}

var patroniNames = [3]string{"one", "two", "three"}

const patroniImage = "POOLDRIVER_PATRONI_IMAGE"

// HasPatroni reports whether an image was given, or could be built.
func HasPatroni() bool { return os.Getenv(patroniImage) != "" || chosen(patroniImage) != "" }

// patroniConfig is the configuration of the node of that name. Patroni reaches etcd through a proxy of the
// node's own: see Fence. Patroni gives up a leader after ttl; ttl and retry_timeout are Patroni's defaults, for with
// shorter ones leaders of a busy machine were seen to give up themselves.
func patroniConfig(name string) string {
	return fmt.Sprintf(`
scope: testbed
name: %[1]s
restapi: {listen: "0.0.0.0:8008", connect_address: "%[1]s:8008"}
etcd3: {hosts: "127.0.0.1:2379"}
bootstrap:
  dcs:
    ttl: 30
    loop_wait: 1
    retry_timeout: 10
    synchronous_mode: true
    postgresql:
      use_pg_rewind: true
      parameters: {max_connections: 200, superuser_reserved_connections: 8, wal_keep_size: 512MB}
  initdb: [{encoding: UTF8}, data-checksums, no-sync]
postgresql:
  listen: "0.0.0.0:5432"
  connect_address: "%[1]s:5432"
  data_dir: %[2]s
  bin_dir: /usr/lib/postgresql/bin
  pgpass: /tmp/pgpass
  authentication:
    superuser: {username: postgres, password: %[3]s}
    replication: {username: replicator, password: %[3]s}
  parameters: {fsync: "off", unix_socket_directories: /tmp, scram_iterations: 1}
  basebackup: [{checkpoint: fast}, no-sync]
  remove_data_directory_on_rewind_failure: true
  remove_data_directory_on_diverged_timelines: true
  pg_hba: ["local all all trust", "host replication replicator all scram-sha-256", "host all all all scram-sha-256"]
`, name, pairData, postgresPassword)
}

// patroniNode starts a node. The process whose lock it removes was killed with the container.
const patroniNode = `#!/bin/sh
set -eu
rm -f ` + pairData + `/postmaster.pid
haproxy -D -p ` + etcdProxyPID + ` -f /etcd.cfg
exec patroni /patroni.yml
`

const etcdProxyPID = "/tmp/etcd-proxy.pid"

// haproxyDefaults let HAProxy find a container that has another address after its restart.
const haproxyDefaults = `
global
    maxconn 1000
resolvers docker
    nameserver docker 127.0.0.11:53
    hold valid 1s
defaults
    mode tcp
    timeout connect 2s
    timeout client 30m
    timeout server 30m
    timeout check 2s
    default-server init-addr last,libc,none resolvers docker resolve-prefer ipv4
`

const etcdProxy = haproxyDefaults + `
listen etcd
    bind 127.0.0.1:2379
    server etcd etcd:2379
`

// patroniProxy is the configuration of Patroni's manual, with a check each second.
const patroniProxy = haproxyDefaults + `
listen primary
    bind *:5000
    option httpchk OPTIONS /primary
    http-check expect status 200
    default-server inter 1s fall 3 rise 1 on-marked-down shutdown-sessions
    server one one:5432 check port 8008
    server two two:5432 check port 8008
    server three three:5432 check port 8008
`

// StartPatroni starts a cluster that ends with the test.
func StartPatroni(t testing.TB) *Patroni {
	t.Helper()
	n := NewNetwork(t)
	boxedTo(t, boxed{title: "etcd", port: "2379", network: n, alias: "etcd", user: "postgres", entrypoint: []string{"etcd"}, command: []string{
		"--data-dir=/tmp/etcd", "--listen-client-urls=http://0.0.0.0:2379", "--advertise-client-urls=http://127.0.0.1:2379", "--unsafe-no-fsync",
	}})
	p := &Patroni{}
	for i, name := range patroniNames {
		s := &Server{Engine: Postgres, options: options{restartable: true, network: n, alias: name}}
		s.container, s.Addr = boxedTo(t, boxed{
			title: "Patroni " + name, port: s.Engine.port(), network: n, alias: name, user: "postgres", entrypoint: []string{"sh", "/node.sh"},
			files: []testcontainers.ContainerFile{textFile("/node.sh", patroniNode), textFile("/patroni.yml", patroniConfig(name)), textFile("/etcd.cfg", etcdProxy)},
		})
		t.Cleanup(s.closeAdmin)
		p.Nodes[i] = s
	}
	for _, s := range p.Nodes {
		p.waitReady(t, s)
	}
	_, p.Proxy = boxedTo(t, boxed{
		title: "HAProxy", port: "5000", network: n, alias: "haproxy", user: "postgres", entrypoint: []string{"haproxy"}, command: []string{"-db", "-f", "/haproxy.cfg"},
		files: []testcontainers.ContainerFile{textFile("/haproxy.cfg", patroniProxy)},
	})
	p.WaitStandbys(t)
	return p
}

func textFile(path, content string) testcontainers.ContainerFile {
	return testcontainers.ContainerFile{Reader: strings.NewReader(content), ContainerFilePath: path, FileMode: 0o644}
}

// boxedTo runs a container of Patroni's image until the test ends.
func boxedTo(t testing.TB, b boxed) (*testcontainers.DockerContainer, string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	b.image = image(patroniImage, "pooldriver-test-patroni")
	c, addr, err := b.run(ctx)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s: %s", b.title, lastLog(context.Background(), c))
		}
		if err := c.Terminate(context.Background(), testcontainers.StopTimeout(0)); err != nil {
			t.Errorf("testbed: terminate %s: %v", b.title, err)
		}
	})
	return c, addr
}

func (p *Patroni) waitReady(t testing.TB, s *Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	if err := s.waitReady(ctx); err != nil {
		t.Fatalf("%v; log: %s", err, lastLog(ctx, s.container))
	}
}

// NewAccount makes an account on the cluster, whose DSNs name all servers.
func (p *Patroni) NewAccount(t testing.TB) Account {
	t.Helper()
	var list []string
	for _, s := range p.Nodes {
		list = append(list, s.Addr)
	}
	return p.Leader(t).makeAccount(t).Via(strings.Join(list, ","))
}

// standsBy asks a server what it is.
func standsBy(s *Server) (standby bool, err error) {
	admin, err := s.Admin()
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	err = admin.QueryRowContext(ctx, "SELECT pg_is_in_recovery()").Scan(&standby)
	return standby, err
}

// Leader is the first server that says that it is none of the standbys, but for those of no interest.
func (p *Patroni) Leader(t testing.TB, but ...*Server) *Server {
	t.Helper()
	said := map[string]string{}
	for begun := time.Now(); time.Since(begun) < startTimeout; time.Sleep(10 * time.Millisecond) {
		for _, s := range p.Nodes {
			if len(but) > 0 && s == but[0] {
				continue
			}
			standby, err := standsBy(s)
			if err == nil && !standby {
				return s
			}
			said[s.Addr] = fmt.Sprintf("standby %v, %v", standby, err)
		}
	}
	t.Fatalf("testbed: the cluster has no leader: %v", said)
	return nil
}

// WaitStandbys returns when a standby follows the leader synchronously, Patroni knows it as the one that may
// become the leader, and the other one follows, too. It does not wait for long for the other: Patroni may
// have to copy its data anew.
func (p *Patroni) WaitStandbys(t testing.TB) {
	t.Helper()
	const patience = 30 * time.Second
	for begun := time.Now(); time.Since(begun) < startTimeout; time.Sleep(20 * time.Millisecond) {
		leader := p.Leader(t)
		following, synchronous := p.standbys(t.Context(), leader)
		if synchronous && (following == 2 || time.Since(begun) > patience) && p.hasHeir(t.Context(), leader) {
			return
		}
	}
	t.Fatal("testbed: no standby follows the leader synchronously")
}

// standbys asks the leader who follows it.
func (p *Patroni) standbys(ctx context.Context, leader *Server) (following int, synchronous bool) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if admin, err := leader.Admin(); err == nil {
		_ = admin.QueryRowContext(ctx, `SELECT count(*), coalesce(bool_or(sync_state IN ('sync', 'quorum')), false)
			FROM pg_stat_replication WHERE state = 'streaming'`).Scan(&following, &synchronous) // it may be gone: then none follows it
	}
	return following, synchronous
}

// hasHeir asks Patroni, which names a synchronous standby a moment after the leader has one, and until then chooses
// no other leader.
func (p *Patroni) hasHeir(ctx context.Context, leader *Server) bool {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return execute(ctx, leader.container, "sh", "-c", "curl -sf http://"+leader.options.alias+":8008/cluster | grep -q sync_standby") == nil
}

// SwitchOver asks Patroni to make another server the leader.
func (p *Patroni) SwitchOver(t testing.TB, leader *Server) {
	t.Helper()
	name := leader.options.alias
	// It answers when it is done, or after a while with an error, and may be done later. It refuses while no standby is in step.
	for begun := time.Now(); ; time.Sleep(time.Second) {
		err := execute(t.Context(), leader.container, "curl", "-sSf", "-XPOST", "-d", `{"leader":"`+name+`"}`, "http://"+name+":8008/switchover")
		if standby, told := standsBy(leader); err == nil || told != nil || standby {
			return
		}
		if time.Since(begun) > startTimeout {
			t.Fatal(err)
		}
	}
}

// Fence cuts a node off from etcd, not from its clients, until the returned function is called.
func (p *Patroni) Fence(t testing.TB, s *Server) (reunite func()) {
	t.Helper()
	signal := func(name string) {
		if err := execute(context.Background(), s.container, "sh", "-c", "kill -"+name+" $(cat "+etcdProxyPID+")"); err != nil {
			t.Error(err)
		}
	}
	signal("STOP")
	return func() { signal("CONT") }
}
