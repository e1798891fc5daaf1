package pooldriver

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"sync/atomic"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/listen"
	"github.com/pooldriver/pooldriver/internal/observe/history"
	"github.com/pooldriver/pooldriver/internal/observe/report"
	"github.com/pooldriver/pooldriver/internal/observe/usage"
	"github.com/pooldriver/pooldriver/internal/redact"
	"github.com/pooldriver/pooldriver/internal/replica"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/virtual"
)

// Connector is a driver.Connector whose connections are virtual: they share a pool of at most
// Config.MaxConns real ones. Give it to sql.OpenDB. Several *sql.DB may share one Connector and
// so its pool. If one *sql.DB is closed, the pool is closed for all.
//
// A Connector is safe for concurrent use. It prints without its secrets.
type Connector struct {
	err          error // the mistake that New or Wrap has found; every use returns it
	config       Config
	defaults     string        // the dialect whose defaults hold; "": of Wrap
	settings     config.Config // config, for the internal packages
	template     dialects.Template
	pool         *connpool.Pool
	engine       *binding.Engine
	source       virtual.Source
	report       report.Report
	usage        usage.Env
	leaks        leakWatch
	closed       atomic.Bool
	history      history.Recorder[Moment]
	verdicts     verdicts
	listens      *listen.Hub             // nil: the database sends no notifications
	checkChannel func(name string) error // checks a channel's name; nil: listens is nil, too
	replicas     *replica.Set            // nil: there are none
}

var (
	_ driver.Connector = (*Connector)(nil)
	_ io.Closer        = (*Connector)(nil)
)

// New returns a connector for dsn. It opens no connection: the first statement or Warm does so.
// Err and the first use report a mistake in the DSN or the options.
//
// The DSN is the driver's own (postgres://…, key=value; mysql://… or
// user:password@tcp(host)/db; sqlite:FILE, file:…, :memory:; odbc:DSN=…), with pool_ parameters
// for the pool, which the driver does not get. New finds the dialect by the DSN. The program must
// link the dialect by a blank import. Without any options, every default of docs/settings.md
// holds.
func New(dsn string, options ...Option) *Connector {
	c := &Connector{config: defaultConfig("")}
	d, t, err := c.config.parse(dsn)
	if err == nil {
		c.defaults = d.Name()
		err = c.init(d, t, options)
	}
	c.err = err
	return c
}

// Wrap returns a connector that pools the connections of inner, for any driver. If a linked
// dialect knows the driver, or if it is a driver of SQLite, everything works as with New, except
// features that need our own socket: see docs/how-it-works.md. Other drivers get the generic
// dialect: a connection on which a statement may have left state, or whose transaction is in doubt,
// is closed instead of cleaned. Wrap refuses a connector that pools itself. Config.Credentials and Config.Dial are
// errors, too, because they could not reach inner.
func Wrap(inner driver.Connector, options ...Option) *Connector {
	c := &Connector{config: defaultConfig("")}
	d, t, err := wrapped(inner)
	if err == nil {
		err = c.init(d, t, options)
	}
	c.err = err
	return c
}

// init completes the connector. Nothing is opened.
func (c *Connector) init(d dialects.Dialect, t dialects.Template, options []Option) error {
	for i, o := range options {
		if o == nil {
			return fmt.Errorf("pooldriver: option %d is nil", i+1)
		}
		o(&c.config)
	}
	c.config.LeakExempt = slices.Clone(c.config.LeakExempt)
	if err := c.config.check(); err != nil {
		return fmt.Errorf("pooldriver: %w", err)
	}
	if err := c.config.fit(d, t); err != nil {
		return err
	}
	if own, ok := t.(dialects.OwnDialect); ok {
		d = own.Dialect()
	}
	c.template = t
	c.report.Init(c.config.logger(), t.Target(), c.config.MaxConns, c.config.Observer.listener())
	c.settings = c.config.resolve(d, c.guardedKey())
	c.usage.Config, c.usage.Clock = &c.settings, usage.NewClock()
	c.usage.Observed, c.usage.TellSlow = c.report.HearsReleased(), c.tellSlow
	e, err := binding.New(&c.settings, t, &c.usage, &c.report)
	if err != nil {
		return err
	}
	c.engine, c.pool = e, e.Pool()
	c.pool.HeldBy = func() string { return heldBy(e, &c.config) }
	c.history.Init(historyOf(c))
	c.usage.Clock.Started, c.report.DialEnded = c.history.Wake, c.history.Wake
	c.leaks.connector = c
	c.source.Init(&c.settings, t.Traits(), e, &c.report)
	c.source.Inside = inside{c}
	if err := initReplicas(c, d); err != nil {
		return err
	}
	if c.config.LeakAfter > 0 {
		for _, e := range enginesOf(c) {
			e.OnTaken = c.leaks.watch
		}
	}
	if err := initListen(c, d); err != nil {
		return err
	}
	for _, s := range c.Settings() {
		if s.Idle != "" {
			c.report.SettingIdle(s.Name, s.Value, s.Idle)
		}
	}
	return nil
}

// tellSlow logs a slow statement. It uses a goroutine: the caller has locked the connection, and a
// handler of the log may use the database.
func (c *Connector) tellSlow(q usage.SlowQuery) {
	go c.report.Slow(report.SlowQuery{
		Statement: c.engine.Outline(q.Text), Label: usage.Text(q.Label), Waited: q.Waited, Took: q.Took, Idle: q.Idle, Rows: q.Rows,
	})
}

// guardedKey is Config.TaskKey with a guard. A statement whose task is not known is refused.
func (c *Connector) guardedKey() task.KeyFunc {
	of := c.config.TaskKey
	if of == nil {
		return nil
	}
	return func(ctx context.Context) (key any, lifetime context.Context) {
		var err error
		defer func() {
			if err != nil {
				key, lifetime = task.NoKey{Why: err}, ctx
			}
		}()
		defer c.report.Guarded("Config.TaskKey", nil, &err)
		return of(ctx)
	}
}

// Open is New, sql.OpenDB and a ping: it returns an error at once if the DSN is wrong or the
// database cannot be reached. It waits for Config.ConnectTimeout at most, and for up to a second
// more while it closes the pool. Virtual connections cost next to nothing, so the *sql.DB keeps
// more of them idle than its default, which is two. If the program sets a limit on the *sql.DB that
// undoes nesting (SetMaxOpenConns), the log warns a second after Open.
func Open(dsn string, options ...Option) (*sql.DB, error) {
	c := New(dsn, options...)
	if c.err != nil {
		return nil, c.err
	}
	db := sql.OpenDB(c)
	db.SetMaxIdleConns(idleVirtual)
	ctx, cancel := context.WithTimeout(context.Background(), c.config.ConnectTimeout)
	defer cancel()
	if err := db.PingContext(ctx); err != nil {
		_ = db.Close()
		return nil, err
	}
	lookAtLimit(c, db)
	return db, nil
}

// idleVirtual is how many idle virtual connections Open lets a *sql.DB keep. That is more than
// goroutines are likely to use at once. Each costs some hundred bytes.
const idleVirtual = 1000

// Err is the mistake that New or Wrap has found in the DSN or the options, nil if there is none.
// The error holds no secret. Err opens no connection: call it where the program starts.
func (c *Connector) Err() error { return c.err }

// Connect returns a virtual connection. It opens no real connection. It fails only if New or Wrap
// has found a mistake.
func (c *Connector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.err != nil {
		return nil, c.err
	}
	return c.source.Conn(ctx, nil), nil
}

// Driver returns the real driver: some programs look at its type to learn their database's
// dialect. If the DSN is wrong, Driver returns ours.
func (c *Connector) Driver() driver.Driver {
	if c.template == nil {
		return Driver{}
	}
	return c.template.Driver()
}

// Warm opens connections until there are Config.MinConns of them, and Config.MinIdleConns idle
// ones, and returns the first error. Without Warm the first use of the pool begins to open them. It does the
// same for each replica, whose error counts only if the primary does not serve its reads (ReplicaFallbackOff).
func (c *Connector) Warm(ctx context.Context) error {
	if c.err != nil {
		return c.err
	}
	err := c.pool.Warm(ctx)
	for _, r := range replicasOf(c) {
		if failed := r.Engine.Pool().Warm(ctx); c.config.ReplicaFallback == ReplicaFallbackOff {
			err = cmp.Or(err, failed)
		}
	}
	return err
}

// Stats returns the connector's figures. It is cheap enough to call every second. If New or Wrap
// has found a mistake, the figures are empty.
func (c *Connector) Stats() Stats {
	if c.err != nil {
		return Stats{}
	}
	return figures(c)
}

// History returns a Moment for each second of the last minute in which the pool was used, the
// oldest first. The last Moment is now. Seconds without use have no Moment: their figures are those
// of the Moment before. In a bubble of testing/synctest only the present is known.
func (c *Connector) History() []Moment {
	if c.err != nil {
		return nil
	}
	return c.history.Moments()
}

// LockWaits asks the server which statements of this Connector wait for locks, and which sessions
// have these locks. It asks PostgreSQL, MySQL and MariaDB; on another database it only pings. It
// takes an idle connection of the pool or, if the pool has room and nobody waits, a new one. If
// there is no such connection, the error is pool.ErrNoneNow. Another error says that the server did
// not answer before ctx ended, or not at all.
//
// PostgreSQL shows the statements of other users only to the role pg_read_all_stats. MySQL and
// MariaDB show locks only to users with the privilege PROCESS, and MySQL only to users who may also
// read performance_schema. Without the privileges the error is ErrLocksHidden, and there may be
// fewer LockWaits.
func (c *Connector) LockWaits(ctx context.Context) ([]LockWait, error) {
	if c.err != nil {
		return nil, c.err
	}
	return lockWaits(ctx, c)
}

// Listen calls fn with each notification of a channel until ctx ends. It works on PostgreSQL. All
// listeners of the Connector share one connection, which is beyond Config.MaxConns: it is opened for the
// first listener and closed after the last one. It leads to a primary, whatever role the DSN asks for.
// channel is the name as pg_notify has it: nothing is folded to lower case, and 63 bytes are the most.
//
// Notifications can be lost: by a lost connection, or because fn is slow. fn is told so by a
// Notification that is a Gap, before it gets any later notification. A program that keeps state reads
// it anew then. The first Notification is a gap, so the program reads its state in one place only.
// After the gap nothing is missing that is committed after Notification.Until.
//
// Listen calls fn on its own goroutine, one call after the other; two calls of Listen do not wait for
// each other. The ctx of fn is that of Listen as by Outside: it has its label, and no task. Up to 1,000
// notifications, of 4 MiB at most, wait while fn runs. When there are more, those that wait are dropped,
// and the next call of fn is a gap: a connection that does not read would in the end stop every commit
// that notifies, in the whole server. If fn panics, the panic is logged, and a second later fn is called
// with a gap.
//
// Listen returns nil when ctx has ended and fn has returned. It returns an ErrClosed when the Connector
// is closed, or has drained. Before the first success of the connection it returns an error of the login
// or the configuration, or one that says that a pooler in between passes no notifications on: see
// Config.ListenDSN. Outages are waited for, whenever they come, with a line in the log. On other
// databases Listen is an error, and through Wrap with a pgx whose configuration has OnNotification.
//
// There is no function to notify: execute SELECT pg_notify($1, $2) in the transaction that the
// notification is about. See docs/listen.md.
func (c *Connector) Listen(ctx context.Context, channel string, fn func(ctx context.Context, n Notification)) error {
	if c.err != nil {
		return c.err
	}
	return listenOn(ctx, c, channel, fn)
}

// Flush replaces all real connections softly: idle connections now, connections in use when they
// come back. Call it after a failover, or when a role's settings have changed. A connection stays
// if its end would end a database in memory (by Wrap).
func (c *Connector) Flush() {
	if c.err == nil {
		c.pool.Flush()
		for _, r := range replicasOf(c) {
			r.Engine.Pool().Flush()
		}
	}
}

// Ready returns nil if a statement would get a connection. Otherwise the error says why not. It
// is for a readiness probe. It waits as long as ctx lasts, so give it the probe's timeout.
//
// If a connection is idle, Ready takes it for a moment and asks the server: it pings or, if the
// DSN asks for a role (target_session_attrs), asks for the role. One answer is good for a second:
// during that second Ready looks at the connection without a round trip. If a connection does not
// answer, or its server has lost the role, Ready closes it and tries the next one. If no
// connection is idle and pool_max_conns allows one more, Ready opens one, which stays in the
// pool.
//
// A pool that is only busy is ready: Ready does not wait until others give a connection back. It
// returns nil if connections are in use and the last dial has not failed.
//
// The pool is not ready if the connector drains or is closed (ErrClosed), if the circuit breaker
// is open (ErrUnavailable; after pool_breaker_cooldown Ready itself is the probe that may close
// it), if dials fail or do not end before ctx ends, or if no server has the role that the DSN
// asks for.
func (c *Connector) Ready(ctx context.Context) error {
	if c.err != nil {
		return c.err
	}
	return c.pool.Ready(ctx)
}

// Drain ends the use of the pool, and work that has begun gets no error. A service calls it after
// SIGTERM, when its server accepts no more requests. Drain refuses new work, waits until no
// connection is in use, and closes the connector as Close does. When Drain returns nil, the
// server has ended all connections. Replicas were told to, and Drain waits for that for a second at
// most: one of them may be silent.
//
// This work may finish: whoever has a connection (a transaction, a *sql.Conn that has run a
// statement, open rows, Raw, a task with session state), with all statements of the same task and
// of tasks that were made of its context; a statement that already waits for a connection; a
// transaction of BeginTx with Config.LazyBegin that has not run a statement yet. Everything else
// gets an error that is an ErrClosed: also the next statement of a task that has no connection at
// the moment and, without a task, a query inside a rows loop, because nobody can tell that the
// query belongs to the loop.
//
// Drain waits for functions of Raw, too: for a LISTEN by Raw, which may wait for notifications for as
// long as the program runs. The log has a warning for each of them when Drain begins. End their
// contexts before.
//
// If ctx ends first, Drain returns an error with the context's error and with a list of who still
// has a connection. New statements are still refused, and work that has begun may still finish:
// call Drain again, or Close. Listeners of Listen end last, when all work is over. Drain has no
// timeout of its own. It may be called several times, by several goroutines at once, and after Close.
func (c *Connector) Drain(ctx context.Context) error {
	if c.err != nil {
		return c.err
	}
	for _, e := range enginesOf(c) {
		for _, l := range e.Looks() {
			if h := holderOf(&l, e); h.Pin == PinRaw {
				c.report.DrainWaits(h.name(l.HeldFor), advice(h.Pin, h.Task))
			}
		}
	}
	err := c.pool.Drain(ctx, connpool.Begun{
		Unattached: c.engine.Unattached, Holders: func() []string { return holderNames(c.engine) }, Last: func() { endListeners(c) },
		// The primary is last: what holds a connection of a replica may need one of the primary, and what would go to
		// a replica goes to the primary.
		First: func() error {
			if c.replicas == nil {
				return nil
			}
			return c.replicas.Drain(ctx, holderNames)
		},
	})
	if err == nil {
		c.leaks.stop()
		c.history.Stop()
	}
	return err
}

// Close closes the pool: idle connections at once, connections in use when they come
// back. Close tells the server to end the idle ones and waits 30 ms for that. MySQL needs less
// time, PostgreSQL about as much. A slower server ends them after Close has returned. Close then
// waits, for a second at most, for connections that are being rolled
// back, cleaned or closed already. pooldriver cannot interrupt the close of a connection over
// ODBC, or of a driver that no dialect knows. If such a close hangs, Close waits for up to 5 s.
// On SQLite, Close waits until every connection that is not in use is closed, without a limit
// of time, like Close of the bare driver: the last connection to close copies the write-ahead
// log into the file.
// Listeners of Listen end at once. sql.DB.Close calls Close. A second call does nothing.
func (c *Connector) Close() error {
	if c.err != nil {
		return nil
	}
	c.close()
	return nil
}

func (c *Connector) close() {
	c.closed.Store(true)
	c.leaks.stop() // Close may wait, and a connection that comes back meanwhile is no leak
	c.history.Stop()
	endListeners(c)
	if c.replicas != nil {
		c.replicas.Close()
	}
	c.pool.Close()
}

// Target says where connections go: dialect, user, hosts and database, never a secret. It is
// empty if New or Wrap has found a mistake.
func (c *Connector) Target() string {
	if c.template == nil {
		return ""
	}
	return c.report.Target()
}

// Hosts returns the servers of the DSN, in its order, where the dialect knows them:
// PostgreSQL and MySQL.
func (c *Connector) Hosts() []string { return dialects.HostsOf(c.template) }

// DriverParams returns the driver's own parameters in the DSN, such as sslmode and _pragma, without
// user, password and the parameters of the pool. A value that may be a secret is replaced. The
// result is nil if the connector has no DSN.
func (c *Connector) DriverParams() []dialects.Param {
	if l, ok := c.template.(dialects.ParamLister); ok {
		return l.DriverParams()
	}
	return nil
}

// Settings returns all settings, always in one order, with their defaults. docs/settings.md explains them.
func (c *Connector) Settings() []Setting { return settingsOf(c) }

// String says what the connector pools, without secrets.
func (c *Connector) String() string {
	if c.err != nil {
		return "pooldriver: this Connector cannot be used: " + c.err.Error()
	}
	return "pooldriver: " + c.report.Target() + " " + c.config.String()
}

func (c *Connector) label() redact.Label { return redact.Label(c.String()) }

// Format prints String for every verb: %#v would reach the template's secrets.
func (c *Connector) Format(f fmt.State, verb rune) { c.label().Format(f, verb) }

// MarshalText is String, for encoding/json.
func (c *Connector) MarshalText() ([]byte, error) { return c.label().MarshalText() }

// LogValue is a group for log/slog: the target, and the settings that are not the default. If New or
// Wrap has found a mistake, LogValue is String.
func (c *Connector) LogValue() slog.Value {
	if c.err != nil {
		return c.label().LogValue()
	}
	attrs := []slog.Attr{slog.String("target", c.Target())}
	for _, s := range c.Settings() {
		if s.Value != s.Default {
			attrs = append(attrs, slog.String(s.Name, s.Value))
		}
	}
	return slog.GroupValue(attrs...)
}
