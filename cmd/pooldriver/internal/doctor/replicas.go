package doctor

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
)

// replicas looks whether the replicas can be reached, whether they are replicas, and whether the account may write there. Each has a
// pool of its own, and one connection more that watches how far it is behind.
func (e *exam) replicas(ctx context.Context, dsn string) {
	list := e.plan.settings["pool_replicas"]
	if list == "" || list == "auto" {
		return
	}
	for host := range strings.SplitSeq(list, ",") {
		f := Finding{Level: OK, Check: "replica", Found: host + " can be reached, and replays the primary's writes",
			Follows: "the program has up to " + e.plan.settings["pool_replica_max_conns"] + " connections to it, and one of each process that watches it"}
		if why := e.replica(ctx, dsn, host); why != "" {
			f = Finding{Level: Bad, Check: "replica", Found: host + why, Follows: "the primary serves its reads or, with pool_replica_fallback=off, they fail"}
		}
		e.Add(f)
	}
}

// replica says why a host does not serve as a replica; empty: it serves.
func (e *exam) replica(ctx context.Context, dsn, host string) (why string) {
	c := open(dsn, 1, func(c *pooldriver.Config) { c.Replicas, c.ReplicaReads = []string{host}, pooldriver.ReadsAuto })
	db := sql.OpenDB(c)
	defer func() { _ = db.Close() }()
	var one int
	err := db.QueryRowContext(pooldriver.Replica(ctx), "SELECT 1").Scan(&one)
	s := c.Stats().Replica
	switch {
	case err != nil:
		return ": " + err.Error()
	case s.Reads[pooldriver.ReplicaServed] > 0 || len(s.Pools) != 1:
		if e.dialect == "mysql" && e.ignoresReadOnly(ctx, db) {
			e.writable = append(e.writable, host)
		}
		return ""
	case takesWrites(ctx, dsn, host):
		e.writable = append(e.writable, host)
		return " does not serve: it is no standby, but a server that takes writes"
	}
	return " does not serve: " + strings.ReplaceAll(string(s.Pools[0].State), "_", " ")
}

// takesWrites asks a host as a replica is asked: it refuses the role of one that is not in recovery, or not read-only.
func takesWrites(ctx context.Context, dsn, host string) bool {
	d, err := dialects.Find(dsn)
	if err != nil {
		return false
	}
	t, err := d.Parse(dsn)
	if err != nil {
		return false
	}
	defer func() { _ = t.Close() }()
	of, ok := t.(dialects.ReplicaTemplate)
	if !ok {
		return false
	}
	standby, err := of.Replica(host)
	if err != nil {
		return false
	}
	defer func() { _ = standby.Close() }()
	s, err := standby.Dial(ctx, nil)
	if err == nil {
		_ = s.Conn().Close()
	}
	return errors.Is(err, dialects.ErrWrongRole)
}

// ignoresReadOnly reports whether the account has a privilege with which it may write on a replica although that is read_only.
func (e *exam) ignoresReadOnly(ctx context.Context, db *sql.DB) (may bool) {
	with := "(NOT @@super_read_only AND privilege_type IN ('SUPER', 'CONNECTION_ADMIN'))"
	if strings.Contains(e.set["version"], "MariaDB") {
		with = "privilege_type LIKE 'READ%ONLY%ADMIN'"
	}
	err := db.QueryRowContext(pooldriver.Replica(ctx), `SELECT count(*) > 0 FROM information_schema.user_privileges
		WHERE grantee = concat('\'', replace(current_user(), '@', '\'@\''), '\'') AND `+with).Scan(&may)
	if err != nil {
		e.unknown("replica_writes", "what the account may do on a replica", err)
	}
	return may
}
