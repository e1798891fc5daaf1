package pooldriver

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/generic"
	"github.com/pooldriver/pooldriver/internal/credential"
	"github.com/pooldriver/pooldriver/internal/dbsettings"
	"github.com/pooldriver/pooldriver/internal/droppedstate"
	"github.com/pooldriver/pooldriver/internal/outage"
	"github.com/pooldriver/pooldriver/internal/redact"
	"github.com/pooldriver/pooldriver/internal/registry"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/textcache"
	"github.com/pooldriver/pooldriver/pool"
)

// Connector is a driver.Connector whose connections are virtual: they share a
// pool of at most Config.MaxConns real ones. Give it to sql.OpenDB. Several
// *sql.DB may share one Connector and so its pool; closing one of them closes
// it for all.
//
// A Connector is safe for concurrent use. It prints without its secrets.
type Connector struct {
	// The fields that every statement reads come first, close together.

	err    error // what New found wrong; every use returns it
	pool   *pool.Pool[*realConn]
	traits dialects.Traits
	config Config
	env    session.Env

	dialect  dialects.Dialect
	template dialects.Template
	log      *slog.Logger

	credentials    *credential.Cache // nil: the DSN's
	poolGeneration atomic.Uint64
	real           registry.Registry[*realConn] // from before their dial to after their end
	restoring      atomic.Int64                 // connections on their way back, behind their borrowers
	stats          counters
	generations    stmtcache.Generations
	starvation     starvation
	host           atomic.Pointer[string] // the last one dialled, of several
	keyedTasks     task.Keyed
	drops          droppedstate.Told
	settings       dbsettings.List
	outage         outage.Dials
	closingIdle    atomic.Bool // Close has begun

	texts textcache.Cache // far larger than the rest
}

var (
	_ driver.Connector = (*Connector)(nil)
	_ io.Closer        = (*Connector)(nil)
)

// New returns a connector for dsn. It opens nothing: the first statement does,
// or Warm. A mistake in the DSN or the options is reported by the first use,
// as sql.Open's drivers do; Open reports it at once.
//
// The DSN is the driver's own (postgres://…, key=value; mysql://… or
// user:password@tcp(host)/db; sqlite:FILE, file:…, :memory:; odbc:DSN=…), with pool_
// parameters for the pool, which are taken out of it. The dialect is found by
// the DSN and must be linked into the program by a blank import. Without any
// options, every default of docs/settings.md holds.
func New(dsn string, options ...Option) *Connector {
	c := &Connector{config: defaultConfig()}
	c.err = c.parse(dsn, options)
	return c
}

func (c *Connector) parse(dsn string, options []Option) error {
	d, err := dialects.Find(dsn)
	if err != nil {
		return fmt.Errorf("pooldriver: %w", err)
	}
	t, err := d.Parse(dsn)
	if err != nil {
		return fmt.Errorf("pooldriver: the DSN for %s: %w", d.Name(), err)
	}
	if err := c.config.apply(t.PoolParams()); err != nil {
		return fmt.Errorf("pooldriver: %w", err)
	}
	return c.use(d, t, options)
}

// Wrap returns a connector that pools the connections of inner, for any
// driver. Where the driver is one that a linked dialect knows, everything
// works as with New, but for features that need our own socket:
// see docs/how-it-works.md. Other drivers get the generic dialect: a connection on
// which a statement may have left state, or whose transaction is in doubt, is
// closed instead of cleaned. Wrapping a connector that pools itself is an
// error, and so is Config.Credentials, which could not reach inner.
func Wrap(inner driver.Connector, options ...Option) *Connector {
	c := &Connector{config: defaultConfig()}
	c.err = c.wrap(inner, options)
	return c
}

func (c *Connector) wrap(inner driver.Connector, options []Option) error {
	switch inner.(type) {
	case nil:
		return errors.New("pooldriver: Wrap was given no connector")
	case *Connector:
		return errWrapSelf
	}
	d, t, err := dialects.Wrap(inner, generic.Dialect{})
	if err != nil {
		return fmt.Errorf("pooldriver: Wrap: %w", err)
	}
	return c.use(d, t, options)
}

// use completes the connector. Nothing is opened.
func (c *Connector) use(d dialects.Dialect, t dialects.Template, options []Option) error {
	for i, o := range options {
		if o == nil {
			return fmt.Errorf("pooldriver: option %d is nil", i+1)
		}
		o(&c.config)
	}
	if err := c.config.check(); err != nil {
		return fmt.Errorf("pooldriver: %w", err)
	}
	if c.config.Credentials != nil && !t.TakesCredential() {
		return fmt.Errorf("pooldriver: Config.Credentials cannot be used with this %s connection: user and password do not come from us", d.Name())
	}
	if own, ok := t.(dialects.OwnDialect); ok {
		d = own.Dialect()
	}
	c.dialect, c.template, c.traits = d, t, t.Traits()
	c.settings.Init(d)
	if lazy, ok := t.(dialects.LazyTemplate); ok && c.config.LazyBegin {
		lazy.BeginLazily()
	}
	if source := c.config.Credentials; source != nil {
		c.credentials = credential.New(credential.Source(source), c.renewCredential)
	}
	if asker, ok := t.(dialects.CredentialAsker); ok && c.credentials != nil {
		asker.AskCredentials(c.credentialOfNow)
	}
	c.log = c.config.logger()
	c.env = c.sessionEnv()
	p, err := pool.New(c.poolConfig())
	if err != nil {
		return fmt.Errorf("pooldriver: %w", err)
	}
	c.pool = p
	return nil
}

// sessionEnv is what all sessions share.
func (c *Connector) sessionEnv() session.Env {
	buffer, total := c.config.NestedBuffer, c.config.NestedBufferTotal
	return session.Env{
		Dialect:      c.dialect,
		Statements:   c.config.stmtsPerConn(),
		CleanTimeout: c.config.CleanTimeout,
		PingTimeout:  c.config.PingTimeout,
		Buffer:       buffer,
		BufferTotal:  max(total, buffer),
		// Reading ahead for those who wait may be in vain, and must not use up what tasks
		// need for their own statements: those get an error where there is no room, and
		// who waits only waits on.
		BufferOthers: max(total/2, buffer),
		Buffered:     &c.stats.buffered,
		ReadAheads:   &c.stats.readAheads,
	}
}

// poolConfig says what the pool does with real connections. Rollback and
// cleaning are not the pool's: they depend on the checkout (cleaning.go).
func (c *Connector) poolConfig() pool.Config[*realConn] {
	p := pool.Config[*realConn]{
		Create:           c.create,
		Denied:           c.refusesUs,
		FreshCredentials: c.credentials != nil,
		Destroy:          c.destroy,
		Check:            c.healthy,
		Preserve:         func(r *realConn) bool { return r.Irreplaceable() },
		BeforeAcquire:    c.ready,
		Min:              c.config.MinConns,
		MinIdle:          c.config.MinIdleConns,
		Max:              c.config.MaxConns,
		CheckInterval:    orNever(c.config.HealthCheckPeriod),
		MaxLifetime:      orNever(c.config.MaxConnLifetime),
		Jitter:           orNever(c.config.jitter()),
		MaxIdleTime:      orNever(c.config.MaxConnIdleTime),
		AcquireTimeout:   orNever(c.config.AcquireTimeout),
		CreateTimeout:    c.config.ConnectTimeout,
		CheckTimeout:     c.config.PingTimeout,
		DestroyTimeout:   destroyTimeout + time.Second,
		MaxWaiters:       c.config.MaxWaiters,
		Starving:         c.starving,
		StarveAfter:      starveAfter,
	}
	if c.config.BreakerFailures > 0 {
		p.Strategy = pool.ConsecutiveFailures(c.config.BreakerFailures, c.config.BreakerCooldown)
	}
	return p
}

// orNever translates our 0 ("never") to the pool's, whose 0 is its default.
func orNever(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// Open is New, sql.OpenDB and a ping: it returns an error at once if the DSN
// is wrong or the database cannot be reached, waiting no longer than
// Config.ConnectTimeout and the second that closing may take. Virtual
// connections cost next to nothing, so the
// *sql.DB keeps more of them idle than the two of its default.
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
	return db, nil
}

// idleVirtual is how many idle virtual connections Open lets a *sql.DB keep:
// more than goroutines are likely to use at once, at some hundred bytes each.
const idleVirtual = 1000

// Connect returns a virtual connection. It opens nothing and fails only for
// what New found wrong.
func (c *Connector) Connect(context.Context) (driver.Conn, error) {
	if c.err != nil {
		return nil, c.err
	}
	return newConn(c), nil
}

// Driver returns the real driver, so that programs that look at its type to
// learn their database's dialect see what they expect; ours where the DSN is
// wrong.
func (c *Connector) Driver() driver.Driver {
	if c.template == nil {
		return Driver{}
	}
	return c.template.Driver()
}

// Warm opens connections until there are Config.MinConns of them, and
// Config.MinIdleConns idle ones, and returns the first error. Without it the
// first use of the pool begins to do so.
func (c *Connector) Warm(ctx context.Context) error {
	if c.err != nil {
		return c.err
	}
	return c.pool.Warm(ctx)
}

// String says what the connector pools, without secrets.
func (c *Connector) String() string {
	if c.err != nil {
		return "pooldriver: unusable: " + c.err.Error()
	}
	return "pooldriver: " + c.template.Target() + " " + c.config.String()
}

func (c *Connector) label() redact.Label { return redact.Label(c.String()) }

// Format prints String for every verb: %#v would reach the template's secrets.
func (c *Connector) Format(f fmt.State, verb rune) { c.label().Format(f, verb) }

// MarshalText is String, for encoding/json.
func (c *Connector) MarshalText() ([]byte, error) { return c.label().MarshalText() }

// LogValue is String, for log/slog.
func (c *Connector) LogValue() slog.Value { return c.label().LogValue() }
