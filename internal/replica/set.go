// Package replica decides which server serves an operation: the primary, or a read-only replica of it. Each replica has an
// engine with a pool of its own. Nothing of this package runs in a Connector without replicas.
package replica

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/floor"
	"github.com/pooldriver/pooldriver/internal/observe/report"
	"github.com/pooldriver/pooldriver/internal/observe/usage"
	"github.com/pooldriver/pooldriver/pool"
)

// ErrNone is in the error of a read that no replica can serve, where the primary must not serve it.
var ErrNone = errors.New("no replica can serve it")

// Set is the replicas of one Connector, beside its primary. It does not change.
type Set struct {
	Counters
	All []*Replica

	config    *config.Config
	positions dialects.Positions
	engine    *binding.Engine // the engine of the primary's pool
	news      floor.News
	ages      floor.Ages
	primary   *floor.Watcher         // watches the primary's positions, if pool_replica_max_lag is set
	home      atomic.Pointer[string] // a position of the primary's database
	tried     atomic.Int64           // when the primary was last asked for home
	turn      atomic.Uint32          // counts choices: the replica to look at first rotates
}

// Replica is one replica with its pool.
type Replica struct {
	Host     string
	Settings config.Config
	Report   report.Report
	Usage    usage.Env
	Engine   *binding.Engine

	looks   report.Dials // the questions of the watcher
	watcher *floor.Watcher
	primary *floor.Watcher         // the watcher of the Set
	users   atomic.Int64           // checkouts that use it
	failed  atomic.Int64           // when the last connection to it could not be had, in ns since 1970
	stuck   atomic.Pointer[string] // the position at which a read has waited for it in vain
	span    atomic.Pointer[span]   // the last answer of State
}

// span is a state of a replica, and since when State has found it.
type span struct {
	state Reason
	since time.Time
}

const (
	lookEvery = time.Second          // the pause between questions to a replica that is used
	soonest   = 5 * time.Millisecond // the least pause between questions to the primary

	pause    = time.Second // for which a replica is left alone after no connection to it could be had
	answerIn = time.Second // for which a read waits until a replica that nobody has asked lately answers
)

// New makes a Set without replicas.
func New(c *config.Config, e *binding.Engine) *Set {
	floor.Enable()
	s := &Set{config: c, engine: e}
	s.positions, _ = c.Dialect.(dialects.Positions)
	every := max(c.ReplicaMaxLag/4, soonest)
	s.primary = s.watch(e.Pool(), floor.Watched{Ask: s.sample, Every: every, Silent: func() {}, Renewed: func() {}})
	return s
}

// watch makes a Watcher of the server of a pool.
func (s *Set) watch(p *connpool.Pool, of floor.Watched) *floor.Watcher {
	of.Dial = func(ctx context.Context) (dialects.Session, error) { return connpool.DialBeside(ctx, p) }
	of.Positions, of.Ages, of.Rest, of.News = s.positions, &s.ages, s.config.MaxConnIdleTime, &s.news
	return floor.NewWatcher(of)
}

// Add adds a replica whose Settings, Report and Usage are filled. Nothing is opened.
func (s *Set) Add(r *Replica, t dialects.Template) (err error) {
	r.Settings.Confirm = func(ctx context.Context) uint64 {
		ctx, cancel := context.WithTimeout(ctx, answerIn)
		defer cancel()
		return r.watcher.Confirm(ctx)
	}
	if r.Engine, err = s.engine.WithPool(&r.Settings, t, &r.Usage, &r.Report); err != nil {
		return err
	}
	p := r.Engine.Pool()
	r.primary = s.primary
	r.watcher = s.watch(p, floor.Watched{
		Ask: s.look, Every: lookEvery, MaxLag: s.config.ReplicaMaxLag, Silent: func() { connpool.Sever(p) }, Renewed: func() { p.Flush() },
		Answered: func(err error) { r.looks.Count(err, time.Now()) },
	})
	s.All = append(s.All, r)
	return nil
}

// Drain is connpool.Pool.Drain for all replicas. holders says who has a connection of an engine.
func (s *Set) Drain(ctx context.Context, holders func(*binding.Engine) []string) error {
	errs := make([]error, len(s.All))
	s.each(func(i int, r *Replica) {
		errs[i] = r.Engine.Pool().Drain(ctx, connpool.Begun{
			Unattached: r.Engine.Unattached, Holders: func() []string { return holders(r.Engine) }, First: func() error { return nil }, Last: r.watcher.Close, Hasty: true,
		})
	})
	err := errors.Join(errs...)
	if err == nil {
		s.primary.Close()
	}
	return err
}

// Close is connpool.Pool.Close for all replicas.
func (s *Set) Close() {
	s.each(func(_ int, r *Replica) {
		r.watcher.Close()
		r.Engine.Pool().Close()
	})
	s.primary.Close()
}

// each calls f for all replicas at once: one that is silent takes its time.
func (s *Set) each(f func(int, *Replica)) {
	var all sync.WaitGroup
	for i, r := range s.All {
		all.Go(func() { f(i, r) })
	}
	all.Wait()
}

// Move makes to the server of a checkout in place of from; nil: the primary. The checkout has no transaction.
func (s *Set) Move(c *binding.Checkout, from, to *Replica) {
	engine := s.engine
	if to != nil {
		engine = to.Engine
		to.users.Add(1)
	}
	if from != nil {
		from.users.Add(-1)
	}
	c.MoveTo(engine)
}

// state says whether r can serve, and why not.
func (r *Replica) state() Reason {
	if r.Engine.Pool().Draining() {
		return Dead // the primary serves what may finish
	}
	why, _ := r.known() // before Use: who comes first waits for the answer, also if it is there at once
	r.watcher.Use()
	if r.Settings.ReplicaMaxLag > 0 {
		r.primary.Use()
	}
	return why
}

// TooLate reports whether r has become too late since it was chosen.
func (r *Replica) TooLate() bool { return r.Settings.ReplicaMaxLag > 0 && r.state() == Late }

// states are the reasons of the states of a watcher.
var states = [...]Reason{floor.Unseen: unseen, floor.Serving: Served, floor.Dead: Dead, floor.Late: Late, floor.NoStandby: NotStandby}

// State says whether r can serve, and why not, since when it is so, as far as somebody has asked, and how late it is; a negative
// lag is not known.
func (r *Replica) State() (why Reason, since time.Time, lag time.Duration) {
	why, lag = r.known()
	if why == unseen {
		why = Served
	}
	last := r.span.Load()
	if last == nil || last.state != why {
		now := &span{why, time.Now()}
		r.span.CompareAndSwap(last, now) // else somebody else has found it at this moment
		last = now
	}
	return why, last.since, lag
}

// Failing are the dials to r, or the questions how far it is, that have failed lately.
func (r *Replica) Failing() *report.Dials {
	if failed, _, _, _ := r.looks.Failing(time.Time{}); failed > 0 {
		return &r.looks
	}
	return &r.Report.Dials
}

func (r *Replica) known() (Reason, time.Duration) {
	if r.failed.Load() > time.Now().Add(-pause).UnixNano() {
		return Dead, -1
	}
	state, seen := r.watcher.State()
	if state == floor.Unseen {
		return unseen, -1
	}
	return states[state], seen.Lag
}

// Unavailable reports whether err says that nothing has come of a statement on r, and that a new try there would
// fail too: no connection to it could be made, or the connection was lost (cut: as the operation knows). If so, r is
// left alone for a while.
func (r *Replica) Unavailable(ctx context.Context, err error, cut bool) bool {
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

// look asks a replica how it is.
func (s *Set) look(ctx context.Context, at dialects.Positioned) (dialects.ReplicaState, error) {
	seen, err := at.Replayed(ctx, s.config.ReplicaMaxLag > 0)
	if err == nil && seen.Position != "" {
		if home := s.homeOf(ctx); home != "" && !s.positions.SameDatabase(home, seen.Position) {
			seen.Standby = false // the standby belongs to another database
		}
	}
	return seen, err
}

// sample asks the primary for its position, so that the age of what a replica shows is known. What is not flushed is left out: after
// a switch of the log on a quiet primary no replica reaches the end of it.
func (s *Set) sample(ctx context.Context, at dialects.Positioned) (dialects.ReplicaState, error) {
	asked := time.Now()
	if c, ok := at.(dialects.RoleChecker); ok {
		if err := c.CheckRole(ctx); err != nil {
			return dialects.ReplicaState{}, err // another one may be the primary now
		}
	}
	log, err := at.Written(ctx)
	if errors.Is(err, dialects.ErrNoPosition) {
		return dialects.ReplicaState{Standby: true}, nil // replicas are asked for their lag
	}
	if err != nil {
		return dialects.ReplicaState{}, err
	}
	s.ages.Add(log.Flushed, asked)
	for _, r := range s.All {
		r.watcher.Wake()
	}
	return dialects.ReplicaState{Standby: true}, nil
}

// homeOf returns a position of the primary's database. It asks the primary until that has told one.
func (s *Set) homeOf(ctx context.Context) string {
	if known := s.home.Load(); known != nil {
		return *known
	}
	now := time.Now().UnixNano()
	if tried := s.tried.Load(); tried > now-int64(pause) || !s.tried.CompareAndSwap(tried, now) {
		return ""
	}
	log, err := s.ask(ctx)
	if err != nil {
		return ""
	}
	s.home.Store(&log.Position)
	return log.Position
}

// ask asks the primary for its log, beside the checkout of the caller.
func (s *Set) ask(ctx context.Context) (log dialects.Log, err error) {
	ctx, cancel := context.WithTimeout(ctx, s.config.PingTimeout)
	defer cancel()
	r, err := s.engine.Pool().Acquire(ctx, nil, pool.PriorityHigh)
	if err != nil {
		return log, s.engine.Pool().Explain(err)
	}
	asked, ok := r.Session.Server().(dialects.Positioned)
	if !ok {
		r.GiveBackNow(nil)
		return log, dialects.ErrNoPosition
	}
	if log, err = asked.Written(ctx); err != nil {
		r.Discard(report.Lost)
		return log, err
	}
	r.GiveBackNow(nil)
	return log, nil
}

// none is the error of a read that no replica can serve.
func (s *Set) none(why Reason) error {
	hosts := make([]string, len(s.All))
	for i, r := range s.All {
		hosts[i] = r.Host
	}
	return fmt.Errorf("pooldriver: a read for a replica (%s) was refused: %w (%s), and pool_replica_fallback=off keeps it from the primary", strings.Join(hosts, ", "), ErrNone, why)
}
