package pooldriver

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/internal/optiontable"
)

// options is the table of the pool_ parameters. Parsing, defaults, checks and the
// documentation follow from the table. Where pgxpool has a parameter, the name is pgxpool's.
var options = optiontable.Table[Config]{
	optiontable.Number("pool_max_conns", "10", 1, "most real connections at a time, as the server counts them", func(c *Config) *int { return &c.MaxConns }),
	optiontable.Number("pool_min_conns", "0", 0, "real connections kept open from the first use on", func(c *Config) *int { return &c.MinConns }),
	optiontable.Number("pool_min_idle_conns", "0", 0, "idle real connections kept ready", func(c *Config) *int { return &c.MinIdleConns }),
	lifetime(),
	lifetimeJitter(),
	optiontable.Duration("pool_max_conn_idle_time", "30m0s", 0, "how long a connection may lie idle; 0 is for ever", func(c *Config) *time.Duration { return &c.MaxConnIdleTime }),
	optiontable.Duration("pool_health_check_period", "1m0s", 0, "pause between looks at the idle connections, if any was used meanwhile; 0 is never", func(c *Config) *time.Duration { return &c.HealthCheckPeriod }),
	optiontable.Duration("pool_ping_timeout", "5s", 1, "bound of one health check's ping", func(c *Config) *time.Duration { return &c.PingTimeout }),
	optiontable.Duration("pool_acquire_timeout", "30s", 0, "bound of the wait for a connection, next to the caller's context; 0 is none", func(c *Config) *time.Duration { return &c.AcquireTimeout }),
	optiontable.Duration("pool_connect_timeout", "10s", 1, "bound of one dial", func(c *Config) *time.Duration { return &c.ConnectTimeout }),
	optiontable.Duration("pool_clean_timeout", "5s", 1, "bound of rollback and cleaning; a connection that takes longer is closed", func(c *Config) *time.Duration { return &c.CleanTimeout }),
	optiontable.Number("pool_max_waiters", "0", 0, "how many callers may wait; one more gets an error at once; 0 is no bound", func(c *Config) *int { return &c.MaxWaiters }),
	optiontable.Duration("pool_queue_target", "0s", 0, "how long statements should wait for a connection at most; under overload those that would wait longer are refused; 0: none is", func(c *Config) *time.Duration { return &c.QueueTarget }),
	optiontable.Duration("pool_queue_interval", "500ms", 1, "how long waits must be above pool_queue_target until that is an overload and no burst", func(c *Config) *time.Duration { return &c.QueueInterval }),
	optiontable.Flag("pool_queue_dry", "false", "pool_queue_target refuses nobody, and only counts whom it would refuse", func(c *Config) *bool { return &c.QueueDry }),
	optiontable.Word("pool_reset", "auto", "when a connection is cleaned before it is lent again", resetModes[:], func(c *Config) *uint8 { return (*uint8)(&c.Reset) }),
	optiontable.Number("pool_pipeline", "0", 0, "most queries in one pipeline when connections are scarce; 0: none", func(c *Config) *int { return &c.Pipeline }),
	optiontable.Number("pool_stmt_cache", "128", 0, "prepared statements kept on each real connection", func(c *Config) *int { return &c.StmtCache }),
	optiontable.Number("pool_stmt_budget", "4096", 0, "prepared statements kept on all connections together; 0 is no bound", func(c *Config) *int { return &c.StmtBudget }),
	lazyBegin(),
	withoutSeparate(optiontable.Word("pool_ambient", "auto", "what happens to a task's statements while it has a transaction open", ambientModes[:], func(c *Config) *uint8 { return (*uint8)(&c.Ambient) })),
	optiontable.Bytes("pool_nested_buffer", "16MiB", "most memory for the rows of one statement whose connection another statement needs", func(c *Config) *int64 { return &c.NestedBuffer }),
	optiontable.Bytes("pool_nested_buffer_total", "64MiB", "most memory for such rows of all statements together; at least pool_nested_buffer", func(c *Config) *int64 { return &c.NestedBufferTotal }),
	optiontable.Duration("pool_deadlock_after", "5s", 0, "ErrDeadlock comes when every connection is held by a task that waits for one more, and nothing has moved for this time; 0 is never", func(c *Config) *time.Duration { return &c.DeadlockAfter }),
	optiontable.Duration("pool_task_timeout", "0s", 0, "how long after its first statement a task is ended; 0 is never", func(c *Config) *time.Duration { return &c.TaskTimeout }),
	optiontable.Number("pool_sample_stacks", "1000", 0, "with N, one of N checkouts has its call stack recorded; 1 records each, 0 none", func(c *Config) *int { return &c.SampleStacks }),
	optiontable.Duration("pool_leak_after", "0s", 0, "how long a connection may be held before the log warns; 0 is never", func(c *Config) *time.Duration { return &c.LeakAfter }),
	optiontable.List("pool_leak_exempt", "", "labels that the warning of pool_leak_after leaves out, with commas between them: listeners, long reports", func(c *Config) *[]string { return &c.LeakExempt }),
	optiontable.Duration("pool_listen_ping", "30s", 1, "pause between pings of the connection of Connector.Listen", func(c *Config) *time.Duration { return &c.ListenPing }),
	optiontable.Duration("pool_slow_query", "0s", 0, "how long a statement may take, with the reading of its rows, before the log names it; 0 is for ever", func(c *Config) *time.Duration { return &c.SlowQuery }),
	optiontable.List("pool_replicas", "", "read-only replicas, as host:port with commas between them, or auto: the standbys among the hosts of the DSN", func(c *Config) *[]string { return &c.Replicas }),
	optiontable.Number("pool_replica_max_conns", "10", 1, "most real connections to each replica at a time", func(c *Config) *int { return &c.ReplicaMaxConns }),
	optiontable.Word("pool_replica_reads", "explicit", "which reads go to a replica", readsModes[:], func(c *Config) *uint8 { return (*uint8)(&c.ReplicaReads) }),
	optiontable.Duration("pool_replica_wait", "50ms", 0, "how long a read waits at most for a replica that does not have its context's writes yet", func(c *Config) *time.Duration { return &c.ReplicaWait }),
	optiontable.Duration("pool_replica_max_lag", "0s", 0, "how far a replica may be behind before it gets no more reads; 0: any time", func(c *Config) *time.Duration { return &c.ReplicaMaxLag }),
	optiontable.Word("pool_replica_fallback", "on", "whether the primary serves the reads that no replica can serve", replicaFallbacks[:], func(c *Config) *uint8 { return (*uint8)(&c.ReplicaFallback) }),
	optiontable.Number("pool_breaker_failures", "0", 0, "failed dials that open the circuit breaker, if no connection was made or given back in between; 0 is no breaker", func(c *Config) *int { return &c.BreakerFailures }),
	optiontable.Duration("pool_breaker_cooldown", "10s", 1, "how long an open breaker waits before it lets one dial try", func(c *Config) *time.Duration { return &c.BreakerCooldown }),
}

// Setting is a setting of a Connector, under the name that its parameter has in a DSN.
type Setting struct {
	Name    string
	Value   string // as a DSN writes it
	Default string // likewise
	Meaning string // a sentence without a capital letter and a full stop
	// Idle is why a Value that is not the Default has no effect; "": it has one.
	Idle string
}

// settings lists the options of the table with their values in c.
func settingsOf(c *Connector) []Setting {
	list, config := make([]Setting, len(options)), c.config
	for i, o := range options {
		list[i] = Setting{Name: o.Name, Value: o.Get(&config), Default: o.DefaultOf(c.defaults), Meaning: o.Doc}
		if s := &list[i]; s.Value != s.Default {
			s.Idle = idleOf(c, s.Name)
		}
	}
	return list
}

// idleOf says why a setting that is not the default has no effect; "": it has one. Such a setting stops nobody: in an incident one switch
// is turned off, and what belongs to it stays. What contradicts itself is an error: see fit and check.
func idleOf(c *Connector, name string) string {
	if strings.HasPrefix(name, "pool_replica_") && (len(c.config.Replicas) == 0 || hasNoStandby(c)) {
		return "there are no pool_replicas"
	}
	if s, ok := switches[name]; ok && s.off(c) {
		return s.says
	}
	return ""
}

// switches are the settings that have an effect only with another setting, which may be off.
var switches = map[string]struct {
	says string
	off  func(*Connector) bool
}{
	"pool_queue_interval":           {"pool_queue_target is 0", func(c *Connector) bool { return c.config.QueueTarget == 0 }},
	"pool_queue_dry":                {"pool_queue_target is 0", func(c *Connector) bool { return c.config.QueueTarget == 0 }},
	"pool_replicas":                 {"the DSN has one host", hasNoStandby},
	"pool_breaker_cooldown":         {"pool_breaker_failures is 0", func(c *Connector) bool { return c.config.BreakerFailures == 0 }},
	"pool_leak_exempt":              {"pool_leak_after is 0", func(c *Connector) bool { return c.config.LeakAfter == 0 }},
	"pool_stmt_budget":              {"pool_stmt_cache is 0", func(c *Connector) bool { return c.config.StmtCache == 0 }},
	"pool_max_conn_lifetime_jitter": {"pool_max_conn_lifetime is 0", func(c *Connector) bool { return c.config.MaxConnLifetime == 0 }},
	"pool_listen_ping":              {"this database has no listeners", func(c *Connector) bool { return c.err == nil && c.listens == nil }},
}

// hasNoStandby reports whether pool_replicas=auto finds no other host than the primary.
func hasNoStandby(c *Connector) bool {
	return slices.Equal(c.config.Replicas, []string{"auto"}) && len(c.Hosts()) == 1
}

// lazyBegin is on where the dialect sends BEGIN with the first statement.
func lazyBegin() optiontable.Option[Config] {
	o := optiontable.Flag("pool_lazy_begin", "false", "BeginTx sends nothing, the first statement begins the transaction; `true` by New on PostgreSQL", func(c *Config) *bool { return &c.LazyBegin })
	o.Of = map[string]string{"postgres": "true"}
	return o
}

// lifetime is a duration that is 0 or at least a second.
func lifetime() optiontable.Option[Config] {
	const least = time.Second
	o := optiontable.Duration("pool_max_conn_lifetime", "1h0m0s", 0, "age at which a connection is replaced, 1s at least; 0 is never", func(c *Config) *time.Duration { return &c.MaxConnLifetime })
	check := o.Check
	o.Check = func(c *Config) error {
		if d := c.MaxConnLifetime; d > 0 && d < least {
			return fmt.Errorf("%v is too short: statements would wait for new connections all the time, each of which is dialled only when the server has let go of the one before; the least is %v, and 0 is never", d, least)
		}
		return check(c)
	}
	return o
}

// lifetimeJitter is a duration whose default depends on another row.
func lifetimeJitter() optiontable.Option[Config] {
	const tenth = "10%"
	o := optiontable.Duration("pool_max_conn_lifetime_jitter", tenth, -1, "most by which a lifetime is lengthened at random", func(c *Config) *time.Duration { return &c.MaxConnLifetimeJitter })
	set, get := o.Set, o.Get
	o.Set = func(c *Config, s string) error {
		if s == tenth {
			c.MaxConnLifetimeJitter = -1
			return nil
		}
		if err := set(c, s); err != nil || c.MaxConnLifetimeJitter >= 0 {
			return err
		}
		return errors.New("wants no negative duration")
	}
	o.Get = func(c *Config) string {
		if c.MaxConnLifetimeJitter < 0 {
			return tenth
		}
		return get(c)
	}
	o.Check = func(*Config) error { return nil }
	return o
}

// withoutSeparate gives the removed mode separate an error that names its replacement.
func withoutSeparate(ambient optiontable.Option[Config]) optiontable.Option[Config] {
	set := ambient.Set
	ambient.Set = func(c *Config, mode string) error {
		if mode == "separate" {
			return errors.New("knows separate no longer: take a context of pooldriver.Outside for one statement, of pooldriver.NewTask for a piece of work")
		}
		return set(c, mode)
	}
	return ambient
}
