// Package replica sends reads to read-only replicas of the database. Each replica has an engine with a pool of
// its own. database/sql has a connection of this package, which has a virtual connection to the primary and one to
// each replica that it has used. Nothing of this package runs in a Connector without replicas.
package replica

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/floor"
	"github.com/pooldriver/pooldriver/internal/report"
	"github.com/pooldriver/pooldriver/internal/textcache"
	"github.com/pooldriver/pooldriver/internal/usage"
	"github.com/pooldriver/pooldriver/internal/virtual"
	"github.com/pooldriver/pooldriver/pool"
)

// wanted is the key of a context of With.
type wanted struct{}

// With returns a context whose reads may go to a replica.
func With(ctx context.Context) context.Context { return context.WithValue(ctx, wanted{}, true) }

// ErrNone is in the error of a read that no replica can serve, where the primary must not serve it.
var ErrNone = errors.New("no replica can serve it")

// Set is the replicas of one Connector, beside its primary. It does not change.
type Set struct {
	Counters
	All []*Replica

	config    *config.Config
	positions dialects.Positions // nil: no floors are kept
	primary   *virtual.Source
	engine    *binding.Engine // of the primary
	texts     textcache.Cache
	turn      atomic.Uint32 // of the replica with which a choice begins
	open      atomic.Int64  // transactions of tasks on replicas
}

// Replica is one replica with its pool.
type Replica struct {
	Host     string
	Settings config.Config
	Report   report.Report
	Usage    usage.Env
	Engine   *binding.Engine

	source  virtual.Source
	watcher *floor.Watcher
	users   atomic.Int64 // checkouts that use it
	failed  atomic.Int64 // when the last connection to it could not be had, in ns since 1970
}

// pause is for how long a replica is left alone after no connection to it could be had.
const pause = time.Second

// New makes a Set without replicas.
func New(c *config.Config, primary *virtual.Source, e *binding.Engine) *Set {
	positions, _ := c.Dialect.(dialects.Positions)
	return &Set{config: c, positions: positions, primary: primary, engine: e}
}

// Add adds a replica whose Settings, Report and Usage are filled. Nothing is opened.
func (s *Set) Add(r *Replica, t dialects.Template) (err error) {
	if r.Engine, err = s.engine.Beside(&r.Settings, t, &r.Usage, &r.Report); err != nil {
		return err
	}
	r.source.Init(&r.Settings, t.Traits(), r.Engine, &r.Report)
	r.source.Inside = s.primary.Inside
	r.watcher = floor.NewWatcher(func(ctx context.Context) (dialects.Session, error) {
		return connpool.DialBeside(ctx, r.Engine.Pool())
	}, s.positions, s.config.ReplicaMaxLag, func() { connpool.Sever(r.Engine.Pool()) })
	s.All = append(s.All, r)
	return nil
}

// Drain is connpool.Pool.Drain for a replica. holders says who has a connection of an engine.
func (r *Replica) Drain(ctx context.Context, holders func(*binding.Engine) []string) error {
	return r.Engine.Pool().Drain(ctx, connpool.Begun{
		Unattached: r.Engine.Unattached, Holders: func() []string { return holders(r.Engine) }, First: func() error { return nil }, Last: r.watcher.Close,
	})
}

// Close is connpool.Pool.Close for a replica.
func (r *Replica) Close() {
	r.watcher.Close()
	r.Engine.Pool().Close()
}

// Conn returns a connection for database/sql; see virtual.Source.Conn.
func (s *Set) Conn(ctx context.Context, closer func()) driver.Conn {
	dc := s.primary.Conn(ctx, closer)
	if v, ok := dc.(virtualConn); ok {
		return &conn{set: s, primary: link{conn: v}}
	}
	return dc // package sandbox has changed it, and has one session for all
}

// readsOnly is judge for a text that may be known.
func (s *Set) readsOnly(query string) bool {
	t, _ := s.texts.Of(s.config.Dialect, query)
	return t.OnlyReads(s.judge)
}

// judge reports whether a text is known to read, whatever session executes it.
func (s *Set) judge(text string) bool {
	judge, ok := s.config.Dialect.(dialects.ReadJudge)
	return ok && judge.OnlyReads(text) && !judge.AsksBack(text)
}

// choose returns the replica with the fewest users among those that can serve; those that are known to have
// reached position come first. nil: there is none, and why says why not.
func (s *Set) choose(position string) (_ *Replica, why Reason) {
	var best *Replica
	there := false // best has reached position
	why = Dead
	first := int(s.turn.Add(1))
	for i := range s.All {
		r := s.All[(first+i)%len(s.All)]
		if state := r.state(); state != Served {
			why = state
			continue
		}
		reached := position == "" || r.watcher.Reached(position)
		if best == nil || reached && !there || reached == there && r.users.Load() < best.users.Load() {
			best, there = r, reached
		}
	}
	if best == nil {
		return nil, why
	}
	return best, Served
}

// state says whether r can serve, and why not.
func (r *Replica) state() Reason {
	if r.Engine.Pool().Draining() {
		return Dead // the primary serves what may finish
	}
	r.watcher.Use()
	why, _ := r.State()
	return why
}

// states are the reasons of the states of a watcher.
var states = [...]Reason{floor.Unseen: Served, floor.Serving: Served, floor.Dead: Dead, floor.Late: Late, floor.NoStandby: NotStandby}

// State says whether r can serve, and why not, and how late it is; a negative lag is not known.
func (r *Replica) State() (Reason, time.Duration) {
	if r.failed.Load() > time.Now().Add(-pause).UnixNano() {
		return Dead, -1
	}
	state, lag := r.watcher.State()
	if state == floor.Unseen {
		lag = -1
	}
	return states[state], lag
}

// unavailable reports whether err says that nothing has come of a statement on r, and that a new try there would
// fail too: no connection to it could be made, or the connection was lost (cut: as the operation knows). If so, r is
// left alone for a while.
func (r *Replica) unavailable(ctx context.Context, err error, cut bool) bool {
	if ctx.Err() != nil || errors.Is(err, pool.ErrClosed) {
		return false
	}
	_, queued := errors.AsType[*pool.AcquireError](err)
	said := r.Settings.Dialect.Diagnose(err)
	lost := cut || errors.Is(err, driver.ErrBadConn) || errors.Is(err, connpool.ErrSilent) || said&dialects.SessionEnded != 0
	if !lost && !errors.Is(err, pool.ErrUnavailable) && (queued || !r.Report.DialsFail()) {
		return false
	}
	r.failed.Store(time.Now().UnixNano())
	return true
}

// none is the error of a read that no replica can serve.
func (s *Set) none(why Reason) error {
	hosts := make([]string, len(s.All))
	for i, r := range s.All {
		hosts[i] = r.Host
	}
	return fmt.Errorf("pooldriver: a read for a replica (%s) was refused: %w (%s), and pool_replica_fallback=off keeps it from the primary", strings.Join(hosts, ", "), ErrNone, why)
}
