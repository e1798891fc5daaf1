package inspect

import (
	"fmt"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/pool"
)

// connectRules judge the way to the server.
var connectRules = []rule{
	{"breaker", bad,
		func(f *facts) bool { return f.Stats.Pool.State == pool.Inactive },
		func(f *facts) string {
			return "The circuit breaker is open: statements fail at once, because connecting failed." + after(f.dials())
		},
		"Look at the database and the network; the breaker closes by itself."},
	{"login refused", hurts, refused(pooldriver.DialLoginRefused), says("The server refuses our login"),
		"Look at user and password of the DSN, and at the server's rules for logins (pg_hba.conf)."},
	{"certificate", hurts, refused(pooldriver.DialCertificate), says("The server's certificate is not accepted"),
		"Renew the server's certificate, or look at sslrootcert or the name in the DSN, and at the clocks."},
	{"no such name", hurts, refused(pooldriver.DialNoSuchName), says("The server's name is not found (DNS)"),
		"Look at the host in the DSN, and at the resolver."},
	{"no login answered", hurts, refused(pooldriver.DialNoAnswer), says("The server does not answer when we connect"),
		"Look whether the server runs, and at the network in between."},
	{"server full for us", hurts, refused(pooldriver.DialServerFull), says("The server is full"),
		"Look who else has connections to it (pg_stat_activity, SHOW PROCESSLIST); then give fewer to some, or raise max_connections."},
	{"unreachable", hurts, func(f *facts) bool { return f.dialsFail },
		says("The database cannot be reached, or refuses us"), "Look whether the server runs and listens."},
	{"no answer", bad,
		func(f *facts) bool { return f.opensInVain() },
		func(f *facts) string {
			return fmt.Sprintf("The database or the network does not answer: nothing has come back for %s, and a new connection is being opened for %s. %s%s.%s",
				Brief(f.Window.Silent), Brief(f.Stats.Pool.CreatingFor), f.use, f.alsoWait(), f.lost())
		},
		"Look whether the server answers others, and at the network in between."},
	{"no answer", bad,
		func(f *facts) bool { return f.unseen > 0 && f.running+f.idle == 0 && f.Window.Silent >= still },
		func(f *facts) string {
			return fmt.Sprintf("The database or the network does not answer: nothing has come back for %s, and %s being tried before a statement gets it%s.%s",
				Brief(f.Window.Silent), counted(f.unseen, "1 connection is", "%d connections are"), f.alsoWait(), f.lost())
		},
		"Look whether the server answers others, and at the network in between."},
	{"first connection", calm,
		func(f *facts) bool { return f.first },
		func(f *facts) string {
			return f.theyWait() + " for a first connection, which is being opened."
		}, ""},
	{"was full", calm,
		func(f *facts) bool {
			return f.full && f.Stats.Pool.Waiting == 0 && f.failedBefore == "" && f.Window.DialErrors == 0 && !f.dialsFailed
		},
		func(f *facts) string {
			return fmt.Sprintf("The server had no room for more than %d of %d connections. Nobody has needed one more since, so that nobody knows whether it has room again. %s.", f.Stats.Pool.Allowed, f.Stats.Pool.Max, f.inUse())
		}, ""},
	{"server full", hurts, func(f *facts) bool { return f.full },
		func(f *facts) string { return f.use + ", and " + f.nobody + "." },
		"Look who else has connections to it (pg_stat_activity, SHOW PROCESSLIST); then give fewer to some, or raise max_connections."},
	{"dials failed", busy, func(f *facts) bool { return f.dialsFailed },
		func(f *facts) string { return f.use + ", and " + f.nobody + ", but " + lowerFirst(f.dials()) }, ""},
}

// refused reports whether dials fail for this reason, and that matters.
func refused(cause pooldriver.DialFailure) func(*facts) bool {
	return func(f *facts) bool { return f.dialsFail && f.Stats.DialsFailing.Cause == cause }
}

// says begins with what the error of the dials means.
func says(cause string) func(*facts) string {
	return func(f *facts) string {
		text := cause + ": " + f.dials()
		if f.open == 0 {
			return text + f.lostConnections() + " No connection is open."
		}
		return fmt.Sprintf("%s Connections that are open still work: %s%s.%s", text, lowerFirst(f.use), f.alsoWait(), f.lostStatements())
	}
}

// replicaRules judge the replicas.
var replicaRules = []rule{
	{"reads fail", bad,
		func(f *facts) bool { return f.noFallback && f.readsAway > 0 },
		func(f *facts) string {
			return fmt.Sprintf("No replica serves: in the last %s %s with ErrNoReplica. %s The primary serves the rest: %s, and %s.", Brief(window),
				counted(f.readsAway, "1 read has failed", "%d reads have failed"), f.replicas(), lowerFirst(f.use), f.nobody)
		},
		"Look at the replicas; pool_replica_fallback=on lets the primary serve meanwhile."},
	{"replicas away", busy,
		func(f *facts) bool { return f.away > 0 && f.away == len(f.Stats.Replica.Pools) },
		func(f *facts) string {
			return fmt.Sprintf("No replica serves: in the last %s %s to the primary. %s", Brief(window),
				counted(f.readsAway, "1 read went", "%d reads went"), f.replicas())
		},
		"Look at the replicas. If statements wait, the primary is too small for their reads."},
	{"replica away", busy, func(f *facts) bool { return f.away > 0 },
		func(f *facts) string { return f.replicas() }, "Look at this replica; the others serve its reads."},
	{"replica full", busy, func(f *facts) bool { return f.busiest.Host != "" },
		func(f *facts) string {
			p := f.busiest
			return fmt.Sprintf("%s for a connection to the replica %s, for %s. %d of %d are in use.",
				waiting(p.Pool.Waiting), p.Host, Brief(f.replicaWait), p.Pool.Lent, p.Pool.Max)
		},
		"Make the statements on the replica faster, or raise pool_replica_max_conns."},
	{"reads too early", busy, func(f *facts) bool { return f.Window.Reads[pooldriver.ReplicaBehind] > 0 },
		func(f *facts) string {
			return fmt.Sprintf("In the last %s %s to the primary, because no replica had replayed the writes of their context in time. %s", Brief(window),
				counted(int(f.Window.Reads[pooldriver.ReplicaBehind]), "1 read went", "%d reads went"), f.replicas())
		},
		"Look why the replica is behind, or raise pool_replica_wait."},
	{"replica behind", busy,
		func(f *facts) bool { return f.lag >= lagging },
		func(f *facts) string { return f.replicas() }, "Look why it is behind; pool_replica_max_lag keeps reads from it."},
}

// listenRules judge the connection that listens.
var listenRules = []rule{
	{"nobody hears", bad,
		func(f *facts) bool {
			l := f.Stats.Listen
			return l.Listeners > 0 && l.State == pooldriver.ListenConnecting && (l.Failing.Failed > 0 || f.At.Sub(l.Since) >= long)
		},
		func(f *facts) string {
			l := f.Stats.Listen
			text := fmt.Sprintf("%s nothing: the connection that listens is lost for %s", counted(l.Listeners, "1 listener hears", "%d listeners hear"), Brief(f.At.Sub(l.Since)))
			if l.Failing.Failed > 0 {
				text += ", and " + failing(l.Failing)
			}
			return text + "."
		},
		"Look at the server's log, and at the way of this connection (Config.ListenDSN)."},
	{"notifications dropped", busy, func(f *facts) bool { return f.Window.Dropped > 0 },
		func(f *facts) string {
			return fmt.Sprintf("In the last %s %s, because a listener is too slow to take them.", Brief(window),
				counted(int(f.Window.Dropped), "1 notification was dropped", "%d notifications were dropped"))
		},
		"Make the function of Listen faster, or let it hand over its work."},
}

const (
	// window is the length of Window.
	window = 10 * time.Second
	// lagging: a replica that is so far behind is worth a word.
	lagging = 5 * time.Second
)
