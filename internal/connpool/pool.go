// Package connpool has the real connections of one Connector: they are dialled, checked, lent,
// cleaned and closed here. It is to package pool what pgxpool is to puddle.
package connpool

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/credential"
	"github.com/pooldriver/pooldriver/internal/dbsettings"
	"github.com/pooldriver/pooldriver/internal/observe/report"
	"github.com/pooldriver/pooldriver/internal/observe/usage"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/stmtcache"
	"github.com/pooldriver/pooldriver/pool"
)

// Pool is the real connections of one Connector.
type Pool struct {
	// HeldBy says who holds connections, for the error of a timeout: "; held longest by …". It is set
	// before the first Acquire.
	HeldBy func() string

	// What every statement asks comes next, to share a cache line.

	config   *config.Config
	report   *report.Report
	pool     *pool.Pool[*Conn]
	draining atomic.Bool
	settings dbsettings.List

	template  dialects.Template
	listening dialects.ListenTemplate // of the connection that listens; nil: none does
	traits    dialects.Traits         // of template
	usage     *usage.Env
	env       session.Env
	starving  func(waiting int) // see pool.Config

	credentials *credential.Cache // nil: the DSN's
	generation  atomic.Uint64
	real        registry[*Conn] // from before their dial to after their end
	restoring   atomic.Int64    // connections that are being rolled back or cleaned, after their borrowers
	numbers     *atomic.Uint64  // of connections
	host        atomic.Pointer[string]
	// Generations are those of the texts that the program has prepared.
	Generations stmtcache.Generations
	closingIdle atomic.Bool               // Close has begun
	proven      atomic.Pointer[time.Time] // when Ready has last asked a server
}

// New makes a pool. Nothing is opened. numbers numbers the connections of all pools of a Connector.
func New(c *config.Config, t dialects.Template, u *usage.Env, starving func(waiting int), r *report.Report, numbers *atomic.Uint64) (*Pool, error) {
	p := &Pool{config: c, template: t, traits: t.Traits(), usage: u, starving: starving, report: r, numbers: numbers}
	p.env = session.Env{Config: c, Buffered: &r.Buffered, ReadAheads: &r.ReadAheads, Hits: &r.StmtHits, Misses: &r.StmtMisses, Generations: &p.Generations,
		Failed: func(err error) { r.StatementFailed(stateOf(c.Dialect, err)) }}
	p.env.Guards, _ = t.(session.Guards)
	p.settings.Init(c.Dialect)
	if source := c.Credentials; source != nil {
		p.credentials = credential.New(source, p.renewCredential)
		if asker, ok := t.(dialects.CredentialAsker); ok {
			asker.AskCredentials(p.credentialOfNow)
		}
	}
	conns, err := pool.New(p.poolConfig())
	if err != nil {
		return nil, fmt.Errorf("pooldriver: %w", err)
	}
	p.pool = conns
	return p, nil
}

// poolConfig says what the pool does with real connections. The pool does not roll back and
// clean: GiveBack and GiveBackNow do.
func (p *Pool) poolConfig() pool.Config[*Conn] {
	from := p.config
	c := pool.Config[*Conn]{
		Create:           p.create,
		Denied:           p.refusesUs,
		Full:             p.serverFull,
		FreshCredentials: p.credentials != nil,
		Destroy:          p.destroy,
		Destroying:       p.destroying,
		Check:            p.healthy,
		CheckAfterUse:    p.maySleep(),
		Preserve:         func(r *Conn) bool { return r.Session.Irreplaceable() },
		BeforeAcquire:    ready,
		Min:              from.MinConns,
		MinIdle:          from.MinIdleConns,
		Max:              from.MaxConns,
		CheckInterval:    orNever(from.HealthCheckPeriod),
		MaxLifetime:      orNever(from.MaxConnLifetime),
		Jitter:           orNever(from.MaxConnLifetimeJitter),
		MaxIdleTime:      orNever(from.MaxConnIdleTime),
		AcquireTimeout:   orNever(from.AcquireTimeout),
		CreateTimeout:    from.ConnectTimeout,
		CheckTimeout:     from.PingTimeout,
		DestroyTimeout:   p.destroyTimeout(),
		MaxWaiters:       from.MaxWaiters,
		QueueTarget:      from.QueueTarget,
		QueueInterval:    from.QueueInterval,
		QueueDry:         from.QueueDry,
		Starving:         p.starving,
	}
	if from.BreakerFailures > 0 {
		c.Strategy = pool.ConsecutiveFailures(from.BreakerFailures, from.BreakerCooldown)
	}
	return c
}

// ShareGenerations makes the generations of texts in p those of another pool.
func ShareGenerations(p, with *Pool) { p.env.Generations = with.env.Generations }

// maySleep reports whether the pool leaves the server alone while nobody uses the pool: a database that
// scales to zero sleeps then. If the server's role matters, the pool asks the server: otherwise the next
// write could go to a server that is no longer the primary.
func (p *Pool) maySleep() bool { return !p.traits.RoleMatters }

// destroyTimeout is how long a connection that is being closed may occupy its place.
func (p *Pool) destroyTimeout() time.Duration {
	if p.traits.CloseWrites {
		return -1
	}
	return endTimeout + time.Second
}

// orNever translates our 0 ("never") to the pool's, whose 0 is its default.
func orNever(d time.Duration) time.Duration {
	if d == 0 {
		return -1
	}
	return d
}

// Acquire takes a connection; see pool.AcquireWith. The error is the pool's: Explain turns it into
// an error for the program. BringUp has to follow.
func (p *Pool) Acquire(ctx context.Context, who any, priority pool.Priority) (*Conn, error) {
	return connOf(p.pool.AcquireWith(ctx, who, priority))
}

// AcquireNow is Acquire without waiting for others. pool.ErrNoneNow: there is none.
func (p *Pool) AcquireNow(ctx context.Context) (*Conn, error) {
	return connOf(p.pool.AcquireNow(ctx))
}

func connOf(lease pool.Lease[*Conn], err error) (*Conn, error) {
	if err != nil {
		return nil, err
	}
	r := lease.Value()
	r.lease = lease
	return r, nil
}

// Conns are the connections that are open, lent or idle.
func (p *Pool) Conns() []*Conn { return p.real.Ready() }

// Waiting returns the waiters. Each has the value who of its Acquire.
func (p *Pool) Waiting() []pool.Waiting { return p.pool.Waiting() }

// Stats are the generic pool's.
func (p *Pool) Stats() pool.Stats { return p.pool.Stats() }

// TakePeak is the generic pool's.
func (p *Pool) TakePeak() int { return p.pool.TakePeak() }

// Draining reports whether Drain was called.
func (p *Pool) Draining() bool { return p.draining.Load() }

// Closed is the error of work that begins after Close; nil: the pool is open, or drains.
func (p *Pool) Closed() error {
	if p.closingIdle.Load() && !p.Draining() {
		return p.Explain(pool.ErrClosed)
	}
	return nil
}

// Restoring is how many connections are being rolled back or cleaned, after their borrowers.
func (p *Pool) Restoring() int64 { return p.restoring.Load() }

// Settings are the settings of the *sql.DB, which each connection gets.
func (p *Pool) Settings() *dbsettings.List { return &p.settings }

// Warm opens the connections that are to be kept.
func (p *Pool) Warm(ctx context.Context) error {
	if p.draining.Load() {
		return p.DrainingError()
	}
	return p.pool.Warm(ctx)
}

// Flush replaces all connections. Connections in use are replaced as they come back.
func (p *Pool) Flush() { p.pool.Flush() }

// flushOnce flushes after an event that ends all connections of a generation. Several
// connections report the same event. Only the first report of a generation flushes, so
// that new connections are not flushed for it.
func (p *Pool) flushOnce(generation uint64) (flushed bool) {
	if flushed = p.generation.CompareAndSwap(generation, generation+1); flushed {
		p.pool.Flush()
	}
	return flushed
}

// since is the time since begun, a time of the meters' clock.
func (p *Pool) since(begun int64) time.Duration {
	return time.Duration(p.usage.Clock.Fine() - begun)
}
