package integration

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/byteproxy"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestIncidentsOnTheWayToTheServerAreNamed: the network, logins, replicas, the connection that listens.
func TestIncidentsOnTheWayToTheServerAreNamed(t *testing.T) {
	t.Parallel()
	playAll(t, onTheWay)
}

const (
	noAnswer  = "no answer|silence|silence of one statement|no login answered"
	ofAnswers = `does not answer`
	full      = "server full|server full for us"
)

var onTheWay = map[string]staged{
	"all replicas are dead, and the primary may not read for them": {
		long: true, stage: replicated("pool_replica_fallback=off"), begin: replicasGone,
		right: "reads fail", culprit: `\d+ reads have failed.*Replica \S+ does not serve \(dead\) for \S+: \S`,
	},
	"all replicas are silent": {
		long: true, stage: replicated(), begin: replicasSilent,
		right: "replicas away", culprit: `Replica \S+ does not serve`,
	},
	"all replicas are too late": {
		long: true, stage: replicated("pool_replica_max_lag=1s"), begin: replicasHeld,
		right: "replicas away", culprit: `Replica \S+ does not serve \(late\).* behind`,
	},
	"the replicas have too few connections": {
		long: true, stage: replicated("pool_replica_max_conns=2"), begin: replicasBusy,
		right: "replica full", culprit: `\d+ statements wait for a connection to the replica`,
	},
	"the network takes 400 ms longer": {
		long: true, stage: on(testbed.Postgres, far), begin: latency(400 * time.Millisecond),
		right: "slower than usual", culprit: `stock`,
	},
	"the network of MariaDB takes 400 ms longer": {
		long: true, stage: on(testbed.MariaDB, far), begin: latency(400 * time.Millisecond),
		right: "slower than usual", culprit: `stock`,
	},
	"a failover to another region: 110 ms for 10 ms": {
		long: true, stage: on(testbed.Postgres, region), begin: latency(110 * time.Millisecond),
		right: "slower than usual", culprit: `stock`,
	},
	"a black hole, and deadlines of 2 s": {
		long: true, stage: on(testbed.Postgres, impatient), begin: unplug,
		right: noAnswer, culprit: ofAnswers,
	},
	"a black hole before MariaDB, and deadlines of 2 s": {
		long: true, stage: on(testbed.MariaDB, impatient), begin: unplug,
		right: noAnswer, culprit: ofAnswers,
	},
	"a black hole, and connections are being closed": { // a look is 200 ms after the deadline
		long: true, stage: on(testbed.Postgres, lessImpatient), begin: unplug,
		right: noAnswer + "|closing", culprit: ofAnswers + `|are being closed`,
	},
	"a black hole on idle connections": {
		long: true, stage: on(testbed.Postgres, impatient), begin: unplugIdle,
		right: noAnswer, culprit: ofAnswers,
	},
	"a new password": {
		long: true, stage: on(testbed.Postgres, calmly), begin: newPasswordOnly,
		right: "login refused", culprit: `refuses our login.*password authentication failed`,
	},
	"a restart, and the herd after it": {
		long: true, stage: viaDoorOf(20), begin: restartOnce,
		right: "unreachable|recovering|failed|failed before|connections lost", culprit: `refused|reset|EOF|dial failed|lost`,
		end: "well",
	},
	"a failover beside a batch that is idle in its transaction": {
		long: true, stage: viaDoorOf(6), begin: besideBatch,
		right: "unreachable", culprit: `cannot be reached.*(refused|reset|EOF)`,
	},
	"a full server": {
		long: true, stage: on(testbed.Postgres, roomy), begin: serverFills,
		right: full, culprit: `server is full`,
	},
	"a full MariaDB": {
		long: true, stage: on(testbed.MariaDB, roomy), begin: serverFills,
		right: full, culprit: `server is full`,
	},
	"a server that was full, and has room again": {
		long: true, unknown: true, stage: on(testbed.Postgres, crowded), begin: roomAgain,
		calm: true, right: "recovering|waited|was full|well", end: "was full|well",
	},
	"connections are killed": {
		stage: on(testbed.Postgres, busied), begin: kills,
		right: "connections lost|statements fail", culprit: `\d+ connections were lost.*57|57.*\d+ connections were lost`,
	},
	"connections of MariaDB are killed": {
		long: true, stage: on(testbed.MariaDB, busied), begin: kills,
		right: "connections lost|statements fail|slower than usual", culprit: `\d+ connections were lost`,
	},
	"connections are reset": {
		long: true, stage: on(testbed.Postgres, busiedByProxy), begin: resets, // of dials, too
		right: "connections lost|statements fail|slower than usual|recovering", culprit: `\d+ connections were lost`,
	},
	"the listener's connection is lost": {
		long: true, stage: listenerOf(nil), begin: func(i *incident) { i.proxy().Refuse() },
		right: "nobody hears", culprit: `hears? nothing.*(refused|reset|EOF)`,
	},
	"the listener is not let in": {
		stage: listenerOf(nil), begin: listenerDenied,
		right: "nobody hears", culprit: `hears? nothing.*not permitted to log in`,
	},
	"the listener's connection is silent": {
		long: true, stage: listenerOf(nil, "pool_listen_ping=1s", "pool_ping_timeout=1s"), begin: unplug,
		right: "nobody hears", culprit: `hears? nothing`,
	},
	"a listener is slow": {
		long: true, stage: listenerOf(func() { time.Sleep(time.Second) }), begin: notifications,
		right: "notifications dropped", culprit: `listener is too slow`,
	},
	"another program fills the queue of PgBouncer": {
		long: true, stage: bounced, begin: bouncerFills,
		right: "slower than usual", culprit: `stock`,
	},
}

// calmly, impatient and lessImpatient are services with different deadlines.
func calmly(t *testing.T, account testbed.Account) *incident {
	return usually(t, account, endless, 6, 10)
}

func impatient(t *testing.T, account testbed.Account) *incident {
	return usually(t, viaStall(t, account), 2*time.Second, 6, 4)
}

func lessImpatient(t *testing.T, account testbed.Account) *incident {
	return usually(t, viaStall(t, account), 2800*time.Millisecond, 6, 4)
}

func region(t *testing.T, account testbed.Account) *incident {
	i := usually(t, viaStall(t, account), endless, 10, 4)
	latency(10 * time.Millisecond)(i)
	return i
}

// replicated is a service with two replicas, which it reaches through proxies.
func replicated(parameters ...string) func(*testing.T) *incident {
	return func(t *testing.T) *incident {
		set := testbed.StartReplicaSet(t, testbed.Postgres)
		var proxies []*byteproxy.Proxy
		for _, replica := range set.Replicas {
			proxy, err := byteproxy.Listen(replica.Addr)
			require.NoError(t, err)
			t.Cleanup(func() { _ = proxy.Close() })
			proxies = append(proxies, proxy)
		}
		i := shopOn(t, set.NewAccount(t), append(parameters, "pool_replicas="+proxies[0].Addr()+","+proxies[1].Addr())...)
		set.CatchUp(t)
		i.each(4, "GET /list", i.reads("SELECT n FROM stock"))
		i.set, i.replicas = set, proxies
		return i
	}
}

func replicasGone(i *incident) {
	for _, proxy := range i.replicas {
		proxy.Refuse()
	}
}

func replicasSilent(i *incident) {
	for _, proxy := range i.replicas {
		proxy.Unplug()
		i.Cleanup(func() { _ = proxy.Close() })
	}
}

func replicasHeld(i *incident) {
	for _, replica := range i.set.Replicas {
		require.NoError(i, replica.Hold(i.Context()))
		i.Cleanup(func() { _ = replica.Release(context.Background()) })
	}
}

func replicasBusy(i *incident) {
	i.each(20, "GET /report", func(ctx context.Context) { i.run("SELECT pg_sleep(0.5)")(pooldriver.Replica(ctx)) })
}

func unplugIdle(i *incident) {
	i.paused.Store(true)
	require.Eventually(i, func() bool { return i.connector.Stats().Pool.Lent == 0 }, slowMachine, 10*time.Millisecond)
	time.Sleep(2 * time.Second) // a connection is tried before its use if it was idle for long
	unplug(i)
	i.each(1, "GET /late", func(ctx context.Context) {
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		_, _ = i.db.ExecContext(ctx, "SELECT 1")
	})
}

// viaDoorOf is a service that reaches the server through a door.
func viaDoorOf(clients int) func(*testing.T) *incident {
	return on(testbed.Postgres, func(t *testing.T, account testbed.Account) *incident {
		return usually(t, viaDoor(t, account), endless, clients, 10)
	})
}

// restartOnce has the server away for six seconds.
func restartOnce(i *incident) {
	i.door().close(true)
	i.later(func(ctx context.Context) {
		select {
		case <-ctx.Done():
		case <-time.After(6 * time.Second):
			i.door().close(false)
		}
	})
}

func besideBatch(i *incident) {
	tx, err := i.db.BeginTx(i.label("POST /batch"), nil)
	require.NoError(i, err)
	i.Cleanup(func() { _ = tx.Rollback() })
	_, err = tx.Exec("UPDATE stock SET n = 1 WHERE id = 2")
	require.NoError(i, err)
	time.Sleep(2 * time.Second) // it computes
	i.door().close(true)
}

func roomy(t *testing.T, account testbed.Account) *incident {
	return usually(t, account, endless, 2, 20)
}

// crowded is a service that the server allows too little.
func crowded(t *testing.T, account testbed.Account) *incident {
	account.LimitConnections(t, 2)
	i := newIncident(t, account, "pool_max_conns=20")
	i.each(1, "GET /cart", i.waits("SELECT 1"))
	i.each(8, "GET /list", i.unlessPaused(i.run(sleeps[account.Server.Engine])))
	require.Eventually(t, func() bool { return i.connector.Stats().Pool.Allowed == 2 }, slowMachine, 10*time.Millisecond)
	return i
}

func roomAgain(i *incident) {
	i.paused.Store(true)
	i.watch(time.Now().Add(12 * time.Second)) // until the page shows no refusal any more
	i.account.LimitConnections(i, 100)
}

// unlessPaused does work while the service is not paused.
func (i *incident) unlessPaused(work func(context.Context)) func(context.Context) {
	return func(ctx context.Context) {
		if i.paused.Load() {
			time.Sleep(20 * time.Millisecond)
			return
		}
		work(ctx)
	}
}

// busied is a service whose connections run statements most of the time.
func busied(t *testing.T, account testbed.Account) *incident {
	i := newIncident(t, account, "pool_max_conns=10")
	i.each(6, "GET /list", i.run(sleeps[account.Server.Engine]))
	return i
}

func busiedByProxy(t *testing.T, account testbed.Account) *incident {
	return busied(t, viaStall(t, account))
}

// kills ends a running statement's connection some times a second.
func kills(i *incident) {
	find, kill := "SELECT pid FROM pg_stat_activity WHERE usename = $1 AND wait_event = 'PgSleep' LIMIT 1", "SELECT pg_terminate_backend(%d)"
	if i.account.Server.Engine != testbed.Postgres {
		find, kill = "SELECT id FROM information_schema.processlist WHERE user = ? AND state = 'User sleep' LIMIT 1", "KILL %d"
	}
	witness := i.account.Witness(i)
	i.later(func(ctx context.Context) {
		for ctx.Err() == nil {
			var process int64
			if witness.QueryRowContext(ctx, find, i.account.User).Scan(&process) == nil {
				_, _ = witness.ExecContext(ctx, fmt.Sprintf(kill, process))
			}
			time.Sleep(100 * time.Millisecond)
		}
	})
}

func resets(i *incident) {
	i.later(func(ctx context.Context) {
		for ctx.Err() == nil {
			i.proxy().Arm(byteproxy.Fault{Direction: byteproxy.ToClient, Cut: byteproxy.Reset})
			time.Sleep(300 * time.Millisecond)
		}
	})
}

// listenerOf is a service that listens on a connection with a login and a way of its own. hears is what it does with a notification.
func listenerOf(hears func(), parameters ...string) func(*testing.T) *incident {
	return on(testbed.Postgres, func(t *testing.T, account testbed.Account) *incident {
		i := &incident{T: t, account: account}
		witness := account.Witness(t)
		own := viaStall(t, account)
		own.User += "_listens"
		mustExec(t, witness, fmt.Sprintf("CREATE ROLE %s LOGIN PASSWORD '%s'", own.User, own.Password))
		t.Cleanup(func() { mustExec(t, account.Witness(t), "DROP ROLE "+own.User) })
		i.connect(func(c *pooldriver.Config) { c.ListenDSN = own.URL() }, append(parameters, "pool_max_conns=10")...)
		i.account.Addr = own.Addr // of the proxy
		i.exec("CREATE TABLE stock (id INT PRIMARY KEY, n INT)")
		i.each(4, "GET /stock", i.waits("SELECT n FROM stock"))
		i.later(func(ctx context.Context) {
			_ = i.connector.Listen(pooldriver.Label(ctx, "news"), "news", func(context.Context, pooldriver.Notification) {
				if hears != nil {
					hears()
				}
			})
		})
		listens := func() bool { return i.connector.Stats().Listen.State == pooldriver.ListenListening }
		require.Eventually(t, listens, slowMachine, 10*time.Millisecond)
		return i
	})
}

func listenerDenied(i *incident) {
	witness := i.account.Witness(i)
	mustExec(i.T, witness, "ALTER ROLE "+i.account.User+"_listens NOLOGIN")
	mustExec(i.T, witness, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", i.account.User+"_listens")
}

// notifications come faster than anybody takes them.
func notifications(i *incident) {
	witness := i.account.Witness(i)
	i.later(func(ctx context.Context) {
		for ctx.Err() == nil {
			_, _ = witness.ExecContext(ctx, "SELECT pg_notify('news', g::text) FROM generate_series(1, 2000) g")
			time.Sleep(time.Second)
		}
	})
}

// bounced is a service behind a PgBouncer that has two connections to the server.
func bounced(t *testing.T) *incident {
	account := testbed.Start(t, testbed.Postgres, testbed.WithNetwork(testbed.NewNetwork(t), "db")).NewAccount(t)
	bouncer := testbed.StartPgBouncer(t, account, "default_pool_size=2")
	between.Store(bouncer.Addr, bouncer)
	return usually(t, account.Via(bouncer.Addr), endless, 4, 10, "pool_reset=off", "default_query_exec_mode=exec")
}

func bouncerFills(i *incident) {
	other := i.account.OpenBare(i, "default_query_exec_mode=exec")
	for range 8 {
		i.later(func(ctx context.Context) {
			for ctx.Err() == nil {
				_, _ = other.ExecContext(ctx, "SELECT pg_sleep(0.3)")
			}
		})
	}
}
