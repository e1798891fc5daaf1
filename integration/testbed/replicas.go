package testbed

import (
	"context"
	"fmt"
	"testing"

	"github.com/pooldriver/pooldriver/integration/byteproxy"
)

// Replicas is a primary with two replicas that follow it. No commit waits for them.
type Replicas struct {
	Primary  *Server
	Replicas [2]*Replica
}

// Replica is a read-only copy of a primary. Clients reach it through a proxy, and its administrator does not.
type Replica struct {
	*Server
	Proxy *byteproxy.Proxy
	name  string // in the network of the servers
	words *replicaWords
}

// replicaWords are the statements that an engine has for replicas.
type replicaWords struct {
	hold, release string
	position      string // on the primary: how far its log has come
	reached       string // on a replica: whether it has come to the position $1
}

// StartReplicas starts a primary with its replicas, which end with the test. engine is Postgres or MariaDB.
func StartReplicas(t testing.TB, engine Engine) *Replicas {
	t.Helper()
	r := &Replicas{}
	n := NewNetwork(t)
	words := &postgresReplicas
	if engine == Postgres {
		r.Primary = startPostgresNode(t, n, "one", "two")
	} else {
		words = &mariaDBReplicas
		r.Primary = startMariaDBPrimary(t, n, "one")
	}
	for i, name := range []string{"two", "three"} {
		s := &Replica{name: name, words: words}
		if engine == Postgres {
			s.Server = startStandby(t, n, name, "one")
		} else {
			s.Server = startMariaDBReplica(t, n, name, "one", 2+i)
		}
		var err error
		if s.Proxy, err = byteproxy.Listen(s.Addr); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Proxy.Close() })
		r.Replicas[i] = s
	}
	r.CatchUp(t)
	return r
}

// Hosts are the replicas as clients reach them, with a comma between them.
func (r *Replicas) Hosts() string {
	return r.Replicas[0].Proxy.Addr() + "," + r.Replicas[1].Proxy.Addr()
}

// NewAccount makes an account on the primary, and returns when the replicas have it.
func (r *Replicas) NewAccount(t testing.TB) Account {
	t.Helper()
	a := r.Primary.makeAccount(t)
	r.CatchUp(t)
	return a
}

// CatchUp returns when the replicas have everything that is committed on the primary.
func (r *Replicas) CatchUp(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for _, s := range r.Replicas {
		if s.Server == r.Primary {
			continue // It was promoted.
		}
		if err := s.catchUp(ctx, r.Primary); err != nil {
			t.Fatalf("testbed: the replica %s does not follow: %v; log: %s", s.name, err, lastLog(ctx, s.container))
		}
	}
}

func (r *Replica) catchUp(ctx context.Context, primary *Server) error {
	admin, err := primary.Admin()
	if err != nil {
		return err
	}
	var position string
	if err := admin.QueryRowContext(ctx, r.words.position).Scan(&position); err != nil {
		return err
	}
	own, err := r.Admin()
	if err != nil {
		return err
	}
	return r.waitFor(ctx, "reaching "+position, "true", func(ctx context.Context) (string, error) {
		var reached bool
		err := own.QueryRowContext(ctx, r.words.reached, position).Scan(&reached)
		return fmt.Sprint(reached), err
	})
}

// Hold has the replica receive what the primary commits, and not show it, until Release.
func (r *Replica) Hold(ctx context.Context) error { return r.execute(ctx, r.words.hold) }

// Release ends Hold.
func (r *Replica) Release(ctx context.Context) error { return r.execute(ctx, r.words.release) }

func (r *Replica) execute(ctx context.Context, statement string) error {
	admin, err := r.Admin()
	if err == nil {
		_, err = admin.ExecContext(ctx, statement)
	}
	if err != nil {
		return fmt.Errorf("testbed: %s on the replica %s: %w", statement, r.name, err)
	}
	return nil
}
