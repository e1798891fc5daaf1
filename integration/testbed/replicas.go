package testbed

import (
	"context"
	"fmt"
	"net"
	"testing"
)

// ReplicaSet is a primary with two replicas that follow it. A commit is acknowledged when the
// primary has it: what a replica has not received when the primary is lost is lost with it.
type ReplicaSet struct {
	Primary  *Server
	Replicas [2]*Server
}

var replicaNames = [3]string{"one", "two", "three"} // the primary's comes first

// replication are an engine's statements about its replicas.
type replication struct {
	start    func(t testing.TB, n *Network, i int, primary *Server) *Server // number 0 is the primary
	hold     string                                                         // has a replica receive, and replay nothing
	held     string                                                         // is it so? Empty where hold has waited for it.
	release  string
	position string // what the primary has committed
	reached  string // takes a position: has the replica replayed it?
}

// StartReplicaSet starts a set that ends with the test.
func StartReplicaSet(t testing.TB, engine Engine) *ReplicaSet {
	t.Helper()
	var n *Network
	if !hostNetwork() {
		n = NewNetwork(t)
	}
	start := engine.replication().start
	r := &ReplicaSet{Primary: start(t, n, 0, nil)}
	for i := range r.Replicas {
		r.Replicas[i] = start(t, n, i+1, r.Primary)
	}
	r.CatchUp(t)
	return r
}

// peer is where other servers of its set find the server.
func (s *Server) peer() (host, port string) {
	if s.options.network != nil {
		return s.options.alias, s.Engine.port()
	}
	host, port, _ = net.SplitHostPort(s.Addr)
	return host, port
}

// NewAccount makes an account on the primary, and returns when the replicas have it, too.
func (r *ReplicaSet) NewAccount(t testing.TB) Account {
	t.Helper()
	a := r.Primary.makeAccount(t)
	r.CatchUp(t)
	return a
}

// CatchUp returns when the replicas have everything that the primary has. None is held.
func (r *ReplicaSet) CatchUp(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	admin, err := r.Primary.Admin()
	if err != nil {
		t.Fatal(err)
	}
	q := r.Primary.Engine.replication()
	var position string
	if err := admin.QueryRowContext(ctx, q.position).Scan(&position); err != nil {
		t.Fatalf("testbed: the primary's position: %v", err)
	}
	for i, s := range r.Replicas {
		if err := s.waitTrue(ctx, q.reached, position); err != nil {
			t.Fatalf("testbed: replica %s follows: %v; log: %s", replicaNames[i+1], err, lastLog(ctx, s.container))
		}
	}
}

// Hold has a replica show what it has now, and nothing newer, until Release.
func (s *Server) Hold(ctx context.Context) error {
	q := s.Engine.replication()
	admin, err := s.Admin()
	if err == nil {
		_, err = admin.ExecContext(ctx, q.hold)
	}
	if err == nil && q.held != "" {
		err = s.waitTrue(ctx, q.held)
	}
	if err != nil {
		return fmt.Errorf("testbed: hold the replica: %w", err)
	}
	return nil
}

// Release ends Hold. It does nothing on a replica that is not held.
func (s *Server) Release(ctx context.Context) error {
	admin, err := s.Admin()
	if err == nil {
		_, err = admin.ExecContext(ctx, s.Engine.replication().release)
	}
	if err != nil {
		return fmt.Errorf("testbed: release the replica: %w", err)
	}
	return nil
}

// waitTrue returns when a server answers a query with true.
func (s *Server) waitTrue(ctx context.Context, query string, args ...any) error {
	admin, err := s.Admin()
	if err != nil {
		return err
	}
	return s.waitFor(ctx, query, "true", func(ctx context.Context) (string, error) {
		var answer bool
		err := admin.QueryRowContext(ctx, query, args...).Scan(&answer)
		return fmt.Sprint(answer), err
	})
}

// Foremost returns the replica that has received the most from a primary that is lost, when it
// has replayed all of it. Replicas of PostgreSQL only.
func (r *ReplicaSet) Foremost(t testing.TB) *Server {
	t.Helper()
	var received [2]uint64
	for i, s := range r.Replicas {
		if err := s.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.waitTrue(t.Context(), "SELECT pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()"); err != nil {
			t.Fatal(err)
		}
		admin, err := s.Admin()
		if err == nil {
			err = admin.QueryRowContext(t.Context(), "SELECT (pg_last_wal_receive_lsn() - '0/0')::bigint").Scan(&received[i])
		}
		if err != nil {
			t.Fatalf("testbed: what replica %s has received: %v", replicaNames[i+1], err)
		}
	}
	if received[1] > received[0] {
		return r.Replicas[1]
	}
	return r.Replicas[0]
}

// Promote makes a replica of PostgreSQL the primary, and returns when the other one follows it.
// The former primary, which is lost, takes its place in Replicas. It must be the Foremost.
func (r *ReplicaSet) Promote(t testing.TB, s *Server) {
	t.Helper()
	promoted := 0
	if s == r.Replicas[1] {
		promoted = 1
	}
	admin, err := s.Admin()
	if err != nil {
		t.Fatal(err)
	}
	var done bool
	if err := admin.QueryRowContext(t.Context(), "SELECT pg_promote(true, 60)").Scan(&done); err != nil || !done {
		t.Fatalf("testbed: promote: %t, %v", done, err)
	}
	other, err := r.Replicas[1-promoted].Admin()
	if err != nil {
		t.Fatal(err)
	}
	err = each(t.Context(), other,
		fmt.Sprintf("ALTER SYSTEM SET primary_conninfo = '%s user=postgres password=%s'", conninfo(s.peer()), postgresPassword),
		"SELECT pg_reload_conf()")
	if err != nil {
		t.Fatalf("testbed: follow the new primary: %v", err)
	}
	r.Primary, r.Replicas[promoted] = s, r.Primary
}

func (postgres) replication() replication {
	return replication{
		start: func(t testing.TB, n *Network, i int, primary *Server) *Server {
			other := "" // a primary that is lost never returns
			if primary != nil {
				other = conninfo(primary.peer())
			}
			return startPostgresNode(t, n, replicaNames[i], other, primary != nil)
		},
		hold:     "SELECT pg_wal_replay_pause()",
		held:     "SELECT pg_get_wal_replay_pause_state() = 'paused'",
		release:  "SELECT pg_wal_replay_resume()",
		position: "SELECT pg_current_wal_flush_lsn()",
		reached:  "SELECT pg_last_wal_replay_lsn() >= $1::pg_lsn",
	}
}

func (m mySQL) replication() replication {
	r := replication{
		start:    m.startReplicating,
		hold:     "STOP REPLICA SQL_THREAD", // returns when the thread has stopped
		release:  "START REPLICA SQL_THREAD",
		position: "SELECT @@gtid_executed",
		reached:  "SELECT GTID_SUBSET(?, @@gtid_executed)",
	}
	if m == MariaDB {
		r.position, r.reached = "SELECT @@gtid_binlog_pos", "SELECT MASTER_GTID_WAIT(?, 0.01) = 0"
	}
	return r
}

// startReplicating starts a server with GTIDs. What its set-up has written is no part of the set's log.
func (m mySQL) startReplicating(t testing.TB, n *Network, i int, primary *Server) *Server {
	t.Helper()
	var host, port string
	if primary != nil {
		host, port = primary.peer()
	}
	arguments := []string{"--log-bin=binlog", "--log-slave-updates=ON", fmt.Sprintf("--server-id=%d", i+1)}
	statements := []string{"RESET MASTER"}
	follow := fmt.Sprintf("CHANGE MASTER TO MASTER_HOST = '%s', MASTER_PORT = %s, MASTER_USER = 'root', MASTER_PASSWORD = '%s', MASTER_USE_GTID = slave_pos",
		host, port, mysqlPassword)
	if m != MariaDB {
		arguments = append(arguments[:1:1], arguments[2], "--gtid-mode=ON", "--enforce-gtid-consistency=ON")
		statements = []string{"RESET BINARY LOGS AND GTIDS"}
		follow = fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST = '%s', SOURCE_PORT = %s, SOURCE_USER = 'root', SOURCE_PASSWORD = '%s', SOURCE_AUTO_POSITION = 1, GET_SOURCE_PUBLIC_KEY = 1",
			host, port, mysqlPassword)
	}
	s := Start(t, m, WithNetwork(n, replicaNames[i]), WithArguments(arguments...))
	if primary != nil {
		statements = append(statements, follow, "START REPLICA", "SET GLOBAL read_only = ON")
	}
	admin, err := s.Admin()
	if err != nil {
		t.Fatal(err)
	}
	for _, statement := range statements {
		if _, err := admin.ExecContext(t.Context(), statement); err != nil {
			t.Fatalf("testbed: %.40s: %v; log: %s", statement, err, lastLog(t.Context(), s.container))
		}
	}
	return s
}
