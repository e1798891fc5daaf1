package pooldriver

import (
	"context"
	"database/sql/driver"
	"fmt"
	"log/slog"
	"net"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/credential"
	"github.com/pooldriver/pooldriver/internal/optiontable"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/redact"
	"github.com/pooldriver/pooldriver/internal/repeated"
	"github.com/pooldriver/pooldriver/internal/task"
)

// Config is how a Connector pools. A program sets it by the DSN's pool_
// parameters, by Options, or both; Options are applied last. The fields'
// meanings, defaults and parameter names are listed in one table (options.go),
// from which the parser and the documentation are made.
//
// A Config prints as its parameters; it never prints a credential.
type Config struct {
	// MaxConns is the most real connections at a time, as the server counts
	// them. Default 10.
	MaxConns int
	// MinConns is how many real connections are kept open, from the first
	// use on. Default 0.
	MinConns int
	// MinIdleConns is how many idle real connections are kept ready. Default 0.
	MinIdleConns int

	// MaxConnLifetime is the age at which a real connection is replaced when
	// it comes back or lies idle: 1s at least, or 0, which is never. Default 1h.
	MaxConnLifetime time.Duration
	// MaxConnLifetimeJitter is the most by which a connection's lifetime is lengthened at random,
	// so that not all connections end at once. A negative value, the default, is a tenth of
	// MaxConnLifetime.
	MaxConnLifetimeJitter time.Duration
	// MaxConnIdleTime is how long a connection may lie idle; 0 is for ever.
	// Default 30m.
	MaxConnIdleTime time.Duration
	// HealthCheckPeriod is the pause between two looks at the idle
	// connections; 0 is never. Default 1m. While nobody uses the pool, no server is asked, so that a
	// database that scales to zero can sleep, unless the DSN asks for a role of the server.
	HealthCheckPeriod time.Duration
	// PingTimeout bounds the ping of a health check. Default 5s.
	PingTimeout time.Duration

	// AcquireTimeout bounds the wait for a real connection, next to the
	// caller's context; 0 is no bound. Default 30s.
	AcquireTimeout time.Duration
	// ConnectTimeout bounds one dial with everything it takes until the
	// connection can be used. Default 10s.
	ConnectTimeout time.Duration
	// CleanTimeout bounds rollback and cleaning at a connection's return; a
	// connection that takes longer is closed. Default 5s.
	CleanTimeout time.Duration
	// MaxWaiters is how many callers may wait for a connection; one more
	// gets an error at once. 0 is no bound. Default 0.
	MaxWaiters int
	// QueueTarget is how long statements should wait for a connection at most, under overload: a fifth of the
	// deadlines of requests is a good value. If waits have been longer all the time for QueueInterval,
	// statements that would have to wait for more than one and a half QueueTarget get ErrOverloaded at
	// once. Statements of PriorityLow get it from half of QueueTarget on, and a statement whose context
	// ends before it would be done gets it in any case. Never refused is a statement while a connection is
	// idle or can be dialled, or one whose task holds a connection or has rows open: see docs/overload.md. 0: no statement
	// is refused. Default 0.
	QueueTarget time.Duration
	// QueueInterval is how long waits must be above QueueTarget until that is an overload and no burst.
	// Default 500ms.
	QueueInterval time.Duration
	// QueueDry lets QueueTarget only count, in Stats.WouldRefuse, whom it would refuse. Default false.
	QueueDry bool

	// Reset says when a connection is cleaned before it is lent again.
	// Default ResetAuto.
	Reset ResetMode
	// Pipeline is how many queries that only read, and wait for a connection, may be in one pipeline
	// with the one that gets it, which counts (PostgreSQL). If nobody waits, nothing is different. If the
	// connection is lost, they are executed again. docs/settings.md says which queries may. Default 0:
	// none. 16 is a good value.
	Pipeline int
	// StmtCache is how many prepared statements each real connection keeps. These are the
	// statements of db.Prepare and, if the driver would prepare a query with arguments each time
	// (MySQL, MariaDB, SQLite), the statements of such queries; 0 keeps none after their use. On
	// PostgreSQL pgx itself keeps the statements of queries with arguments: 512 on each
	// connection, unless the DSN's statement_cache_capacity says otherwise. Default 128.
	StmtCache int
	// StmtBudget bounds how many of StmtCache's statements all connections together keep on the
	// server: each of the MaxConns connections has an equal share, less one for the statement
	// that it is just preparing. MySQL's own bound, max_prepared_stmt_count, is 16382 for all its
	// clients together. 0 is no bound. Default 4096.
	StmtBudget int

	// LazyBegin lets BeginTx send nothing: the transaction begins with its first statement.
	// Without a task the transaction takes its connection only then. On PostgreSQL BEGIN and that
	// statement are one round trip. The first statement gets the error that BeginTx would have
	// got. Default true by New on PostgreSQL, else false.
	LazyBegin bool
	// Ambient says what happens to a task's statements while a transaction of the task is open.
	// Default AmbientAuto.
	Ambient AmbientMode
	// NestedBuffer bounds, in bytes, how much of a query's open rows is read into memory, because
	// another statement needs their connection. Default 16 MiB.
	NestedBuffer int64
	// NestedBufferTotal bounds, in bytes, how much of the rows of all statements of the Connector
	// is in memory. A value below NestedBuffer counts as NestedBuffer. Rows that are read ahead
	// for waiting statements, and not for a statement of the rows' own task, fill at most half of
	// NestedBufferTotal, or NestedBuffer if that is more. Default 64 MiB.
	NestedBufferTotal int64
	// DeadlockAfter bounds the wait when every connection is held by a task that waits for one
	// more. If nothing moves for so long (no connection is lent or given back, no task that holds
	// a connection runs a statement), the statement that came last gets ErrDeadlock. That is a
	// guess: a task may be busy elsewhere for as long, while its waiting statement is in another
	// goroutine. 0 is never. Statements of implicit tasks (TaskKey, httptask.Separate) never get
	// ErrDeadlock. Default 5s.
	DeadlockAfter time.Duration
	// TaskTimeout is how long after its first statement a task is ended; 0 is never. Default 0.
	TaskTimeout time.Duration

	// BreakerFailures is how many dials may fail before the circuit breaker opens and callers get
	// an error at once; 0 is no breaker. The count begins anew whenever a connection is made or
	// given back, because the server is there then. Default 0.
	BreakerFailures int
	// BreakerCooldown is how long the breaker stays open before one dial is
	// tried. Default 10s.
	BreakerCooldown time.Duration

	// SampleStacks is N if one of N checkouts has its call stack recorded, for Holders,
	// CallSites, the leak warning and errors; 1 is each, 0 is none. If it is more than 1, each
	// connection also has its first checkout in every 10 ms recorded, and up to three checkouts
	// that are transactions, change the session or have waited for more than 1 ms. Default 1000.
	SampleStacks int
	// LeakAfter is how long a connection may be held before the log warns once. The warning says
	// who has the connection, with the call stacks if they were sampled. 0 is never. Default 0.
	LeakAfter time.Duration
	// LeakExempt lists the labels (see the function Label) for which LeakAfter logs no warning,
	// such as a leader that has a *sql.Conn for as long as the program runs, or a report that takes an
	// hour. In a DSN commas separate the labels. Default none.
	LeakExempt []string

	// SlowQuery is how long a statement may take before the log has a warning. The warning has the
	// statement's text without literals, its label, its wait for a connection, its time, and the
	// number of rows that it has read or affected. The time of a query ends when its rows are
	// closed; the warning also has the part in which the program did not read. Times are exact to
	// 10 ms. A text is logged at most once in 10 s. 0 is never. Default 0.
	SlowQuery time.Duration

	// ListenPing is the time between two pings of the connection of Connector.Listen. A network that has
	// lost this connection and does not say so is found by the next ping, which may take PingTimeout.
	// Default 30s.
	ListenPing time.Duration
	// ListenDSN, if set, is the DSN of the connection of Connector.Listen: of the server itself, where
	// the Connector's DSN leads to a pooler in transaction mode, which passes no notifications on. It
	// has no pool_ parameters. Like the Connector's DSN it is a secret, which is never printed. Credentials
	// and Dial apply to it, too. Default: the Connector's DSN.
	ListenDSN string

	// Replicas are read-only replicas of the database, each as host:port, or the one word auto: then they are
	// the standbys among the hosts of the DSN, which must ask for target_session_attrs=read-write or primary.
	// They have the DSN's user, database and parameters. Default: none. See Replica.
	Replicas []string
	// ReplicaMaxConns is MaxConns for each replica. Default 10.
	ReplicaMaxConns int
	// ReplicaReads says which reads go to a replica. Default ReadsExplicit.
	ReplicaReads ReadsMode
	// ReplicaMaxLag is how far a replica may be behind the primary before it gets no more reads; 0 is any
	// time. Default 0.
	ReplicaMaxLag time.Duration
	// ReplicaWait is how long a read waits at most for a replica that does not have the writes of its context
	// yet. Then the primary serves the read. Default 50ms.
	ReplicaWait time.Duration
	// ReplicaFallback says whether the primary serves the reads that no replica can serve. Default ReplicaFallbackOn.
	ReplicaFallback ReplicaFallback

	// Credentials, if set, is asked for user and password of each dial; the
	// DSN's are not used. See CredentialSource.
	Credentials CredentialSource
	// Dial, if set, opens every network connection to the servers: through an SSH tunnel, a SOCKS
	// proxy or the connector of a cloud. It works on PostgreSQL and MySQL by New. With Wrap and
	// other databases it is an error. network and addr are as the DSN has them, mostly "tcp" and
	// "host:port"; no name is looked up before. Dial is also called to end a statement on the
	// server, with the same addr, which must lead to the same server. Several goroutines may call
	// Dial at once. ctx ends with ConnectTimeout at the latest. A Dial that does not return then
	// is given up, and a connection that comes late is closed. If Dial returns an error or no
	// connection, or panics, the dial fails. The connection needs Read, Write and Close, but no
	// deadlines: see docs/dialing.md.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
	// AfterConnect, if set, is called with each new real connection before its first use, but not
	// with that of Connector.Listen. It is called again after every cleaning, because the cleaning
	// removes what the hook has set. A dial ends with ConnectTimeout, even if AfterConnect does not
	// return: the connection is closed when AfterConnect returns, and is one of Stats.Orphans. conn
	// is the driver's own connection. Over ODBC, and on a SQLite database in memory, it is our
	// connection around the driver's. If Wrap was given a library's connector, it is the library's
	// connection. ctx ends with ConnectTimeout or CleanTimeout. AfterConnect must not keep the
	// connection, leave a transaction open or switch autocommit off. An error closes the connection.
	// Two goroutines never call AfterConnect for the same connection, but they may call it for
	// several connections at once.
	AfterConnect func(ctx context.Context, conn driver.Conn) error
	// TaskKey, if set, finds tasks in the program's own contexts. Contexts for which it returns
	// the same key belong to one task. The task begins with its first statement and ends when
	// lifetime ends. lifetime is for example the request's context, and not the context of one
	// query with its timeout. If TaskTimeout ends the task earlier, statements with its key get
	// ErrTaskEnded until the lifetime ends. If the lifetime never ends, they get a new task. A
	// nil key means no task. In a context that carries a task of WithTask, or was made by
	// Outside, the key only tells who waits for whom.
	//
	// The task is implicit: the program may know nothing of it, so its statements share nothing,
	// as without a task, unless Ambient says otherwise. The end of the task rolls back, cleans
	// and gives back everything that its statements have left. Every checkout calls TaskKey once
	// or several times, so it must be quick. The key must be comparable.
	TaskKey func(ctx context.Context) (key any, lifetime context.Context)
	// Observer, if set, has functions that are called when something happens to real connections.
	// It must not change afterwards.
	Observer *Observer
	// Logger gets the events that somebody should look at, without SQL
	// literals and without secrets. Default slog.Default().
	Logger *slog.Logger
}

// An Option changes a Config:
//
//	pooldriver.New(dsn, func(c *pooldriver.Config) { c.MaxConns = 4 })
type Option func(*Config)

// ResetMode says when a real connection is cleaned before its next borrower
// gets it. Open transactions are rolled back in every mode.
type ResetMode uint8

const (
	// ResetAuto cleans a connection when a statement has changed its session
	// or may have.
	ResetAuto ResetMode = iota
	// ResetAlways cleans after every checkout. It is for programs whose triggers or functions
	// change the session although no statement's text shows it. If a session cannot be cleaned in
	// place, each cleaning costs a new connection: on SQLite, with the generic dialect, over ODBC
	// on all databases but PostgreSQL, and on MySQL under TLS, with compression, with
	// init_connect, or by Wrap.
	ResetAlways
	// ResetOff never cleans; for programs that keep state on connections on
	// purpose.
	ResetOff
)

var resetModes = [...]string{"auto", "always", "off"}

// String is the mode as a DSN spells it.
func (m ResetMode) String() string { return optiontable.WordOf(resetModes[:], m) }

// defaultConfig is that of New with a DSN of dialect; "": of Wrap.
func defaultConfig(dialect string) Config { return options.Default(dialect) }

// apply sets the fields that a DSN's pool_ parameters name.
func (c *Config) apply(params []dialects.Param) error { return options.Apply(c, params) }

// check reports the first field whose value makes no sense.
func (c *Config) check() error {
	if err := options.Check(c); err != nil {
		return err
	}
	if c.MinConns > c.MaxConns {
		return fmt.Errorf("pool_min_conns is %d, more than pool_max_conns, which is %d", c.MinConns, c.MaxConns)
	}
	if c.MinIdleConns > c.MaxConns {
		return fmt.Errorf("pool_min_idle_conns is %d, more than pool_max_conns, which is %d", c.MinIdleConns, c.MaxConns)
	}
	if c.Pipeline > 0 && c.StmtCache == 0 {
		return fmt.Errorf("pool_pipeline is %d, and pool_stmt_cache is 0: a pipeline needs prepared statements; set pool_pipeline=0, or leave pool_stmt_cache out", c.Pipeline)
	}
	return nil
}

// resolve returns c for the internal packages, with what follows from the values of several fields. d is
// the dialect of the template, and key is TaskKey with a guard.
func (c *Config) resolve(d dialects.Dialect, key task.KeyFunc) config.Config {
	to := config.Config{
		Dialect:  d,
		MaxConns: c.MaxConns, MinConns: c.MinConns, MinIdleConns: c.MinIdleConns, MaxWaiters: c.MaxWaiters,
		MaxConnLifetime: c.MaxConnLifetime, MaxConnLifetimeJitter: c.jitter(),
		MaxConnIdleTime: c.MaxConnIdleTime, HealthCheckPeriod: c.HealthCheckPeriod,
		AcquireTimeout: c.AcquireTimeout, ConnectTimeout: c.ConnectTimeout,
		PingTimeout: c.PingTimeout, CleanTimeout: c.CleanTimeout, IdleTimeout: c.PingTimeout,
		BreakerFailures: c.BreakerFailures, BreakerCooldown: c.BreakerCooldown,
		QueueTarget: c.QueueTarget, QueueInterval: c.QueueInterval, QueueDry: c.QueueDry,
		AfterConnect: c.AfterConnect, Credentials: credential.InTurn(credential.Source(c.Credentials)),
		Reset: pinning.Mode(c.Reset), StmtCache: c.stmtsPerConn(), Pipeline: c.Pipeline, LazyBegin: c.LazyBegin,
		Ambient: config.Ambient(c.Ambient), TaskKey: key, TaskTimeout: c.TaskTimeout, DeadlockAfter: c.DeadlockAfter,
		NestedBuffer: c.NestedBuffer, NestedBufferTotal: max(c.NestedBufferTotal, c.NestedBuffer),
		// Rows that are read ahead for waiting statements may not help. They must not use up the
		// memory that tasks need for their own statements: without room a task's own statement
		// gets an error, but a waiting statement only waits longer.
		NestedBufferOthers: max(c.NestedBufferTotal/2, c.NestedBuffer),
		ReplicaReads:       config.Reads(c.ReplicaReads), ReplicaFallback: c.ReplicaFallback == ReplicaFallbackOn,
		ReplicaWait: c.ReplicaWait, ReplicaMaxLag: c.ReplicaMaxLag,
		ListenPing: c.ListenPing, SampleStacks: c.SampleStacks, SlowQuery: c.SlowQuery,
	}
	if c.AcquireTimeout > 0 { // if an idle connection does not answer, time is left for a dial
		to.IdleTimeout = min(c.PingTimeout, c.AcquireTimeout/2)
	}
	return to
}

// jitter resolves the default of MaxConnLifetimeJitter.
func (c *Config) jitter() time.Duration {
	if c.MaxConnLifetimeJitter < 0 {
		return c.MaxConnLifetime / 10
	}
	return c.MaxConnLifetimeJitter
}

func (c *Config) logger() *slog.Logger {
	if c.Logger != nil {
		return repeated.Guard(c.Logger)
	}
	return slog.Default()
}

// String lists the pool's parameters as a DSN would, without credentials.
func (c Config) String() string { return options.Text(&c) }

func (c Config) label() redact.Label { return redact.Label(c.String()) }

// Format prints String for every verb: %#v would reach what Credentials holds.
func (c Config) Format(f fmt.State, verb rune) { c.label().Format(f, verb) }

// MarshalText is String, for encoding/json.
func (c Config) MarshalText() ([]byte, error) { return c.label().MarshalText() }

// LogValue is String, for log/slog.
func (c Config) LogValue() slog.Value { return c.label().LogValue() }

// stmtsPerConn is how many prepared statements a connection may keep.
func (c *Config) stmtsPerConn() int {
	if c.StmtBudget == 0 {
		return c.StmtCache
	}
	return min(c.StmtCache, max(0, c.StmtBudget/c.MaxConns-1))
}

// Credential is a user and a password, with the time until which they are valid. It prints
// without the password. But fmt prints the password of a Credential in an unexported field of
// another struct.
type Credential = dialects.Credential

// CredentialSource supplies user and password for new connections: from a
// vault or a file, or tokens that it makes itself (IAM).
//
// A credential with an expiry (Credential.Expires) serves all dials until then. Shortly before
// the expiry the source is asked for the next credential, if connections were made with the
// present one; dials still use the present one meanwhile. A credential without an expiry serves
// the dials that are waiting for it. Each later dial asks the source again, because nothing else
// shows that the password has changed.
//
// If the server refuses the credential, the dial asks the source once more and tries once more.
// Calls of the source never overlap. An error of the source fails the dials that wait for the
// answer. Open connections stay, and credentials that have not expired stay, too. When the source
// gives another user or password than before, the connections made with the old ones are replaced
// as they come back. If the credentials have no expiry, connections are replaced at most once a
// minute, because the source may give another token each time. Config.ConnectTimeout bounds the
// context.
type CredentialSource func(ctx context.Context) (Credential, error)
