package testbed

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"testing"
)

var postgresReplicas = replicaWords{
	hold:     "SELECT pg_wal_replay_pause()",
	release:  "SELECT pg_wal_replay_resume()",
	position: "SELECT pg_current_wal_insert_lsn()",
	reached:  "SELECT coalesce(pg_last_wal_replay_lsn() >= $1::pg_lsn, false)",
}

// Newest returns the replica that has received most from the primary, which is gone, when it has replayed that. Both are
// of PostgreSQL, and not held.
func (r *Replicas) Newest(t testing.TB) *Replica {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	received := map[*Replica]int64{}
	for _, s := range r.Replicas {
		admin, err := s.Admin()
		if err != nil {
			t.Fatal(err)
		}
		var lsn int64
		if err := admin.QueryRowContext(ctx, "SELECT pg_last_wal_receive_lsn() - '0/0'::pg_lsn").Scan(&lsn); err != nil {
			t.Fatalf("testbed: what %s has received: %v", s.name, err)
		}
		received[s] = lsn
	}
	newest := slices.MaxFunc(r.Replicas[:], func(a, b *Replica) int { return cmp.Compare(received[a], received[b]) })
	admin, err := newest.Admin()
	if err != nil {
		t.Fatal(err)
	}
	err = newest.waitFor(ctx, "having replayed everything", "true", func(ctx context.Context) (string, error) {
		var replayed bool
		err := admin.QueryRowContext(ctx, "SELECT pg_last_wal_replay_lsn() >= pg_last_wal_receive_lsn()").Scan(&replayed)
		return fmt.Sprint(replayed), err
	})
	if err != nil {
		t.Fatal(err)
	}
	return newest
}

// Promote makes a replica of PostgreSQL the primary, which the other one follows from then on.
func (r *Replicas) Promote(t testing.TB, to *Replica) {
	t.Helper()
	promote(t, to.Server)
	r.Primary = to.Server
	for _, s := range r.Replicas {
		if s == to {
			continue
		}
		s.administer(t,
			fmt.Sprintf("ALTER SYSTEM SET primary_conninfo = 'host=%s user=postgres password=%s'", to.name, postgresPassword),
			"SELECT pg_reload_conf()")
	}
}
