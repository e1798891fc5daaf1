package replica

import (
	"context"
	"fmt"
	"time"

	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/floor"
	"github.com/pooldriver/pooldriver/internal/task"
)

// wanted is the key of a context of MayServe.
type wanted struct{}

// MayServe returns a context whose reads may go to a replica, or none of whose reads may.
func MayServe(ctx context.Context, may bool) context.Context {
	return context.WithValue(ctx, wanted{}, may)
}

// Asks reports whether the reads of ctx may go to a replica. mode: also without With, from that mode on.
func (s *Set) Asks(ctx context.Context, mode config.Reads) (asks, wants bool) {
	switch ctx.Value(wanted{}) {
	case true:
		return true, true
	case false:
		return false, false
	}
	return s.config.ReplicaReads >= mode, false
}

// Op is what the choice of a server depends on, beside the context.
type Op struct {
	Place   *task.Place  // of the context
	Floor   *floor.Floor // of the context, if Reads; nil: it keeps none
	Reads   bool         // a replica may serve it
	Returns bool         // it asks for what the statement before it has left in its session
	Bound   bool         // its checkout has a connection, or has read from one
	On      *Replica     // the replica to which that connection leads; nil: the primary
}

// Pick returns the server for an operation that is in no transaction of its checkout. to is nil for the primary; then why
// says why it serves what a replica may serve.
func (s *Set) Pick(ctx context.Context, op Op) (to *Replica, why Reason, _ error) {
	if r, keeps := s.sessionOf(op.Place); keeps {
		return r, s.joined(r, op.Reads), nil
	}
	switch {
	case op.Bound && op.On == nil:
		return nil, s.joined(nil, op.Reads), nil
	case op.Returns && op.Bound:
		return op.On, Served, nil
	case !op.Reads:
		return nil, None, nil
	}
	to, why = s.pick(ctx, op)
	if to != nil {
		return to, why, nil
	}
	return nil, why, s.FallBack(ctx, why)
}

// sessionOf returns the server that has the session of the task: a transaction or state is there.
func (s *Set) sessionOf(at *task.Place) (*Replica, bool) {
	if at.Task == nil {
		return nil, false
	}
	for _, r := range s.All {
		if r.Engine.Keeps(at) {
			return r, true
		}
	}
	return nil, s.engine.Keeps(at)
}

func (s *Set) joined(to *Replica, reads bool) Reason {
	if reads && to == nil {
		return Joined
	}
	return None
}

// FallBack returns the error of a read that no replica serves; nil: the primary serves it.
func (s *Set) FallBack(ctx context.Context, why Reason) error {
	switch {
	case s.config.ReplicaFallback || s.engine.Pool().Draining():
		return nil
	case ctx.Err() != nil: // before a replica could serve
		return fmt.Errorf("pooldriver: waiting for a replica (%s): %w", why, ctxerr.WhatEnded(ctx))
	}
	return s.none(why)
}

// pick chooses a replica for a read; nil: none can serve it.
func (s *Set) pick(ctx context.Context, op Op) (*Replica, Reason) {
	f := op.Floor
	if f == nil {
		if op.On != nil && op.On.state() == Served {
			return op.On, Served // its *sql.Conn stays with it
		}
		return s.choose(ctx, floor.Need{}, s.All)
	}
	need := f.Now()
	if need.PrimaryOnly && !need.Pending && (need.Asks || !s.config.ReplicaFallback) { // else a read on the primary raises f
		need = s.anew(ctx, f)
	}
	switch {
	case need.Pending:
		return nil, Writing
	case need.PrimaryOnly:
		return nil, Unknown
	}
	if home := s.home.Load(); home != nil && need.Position != "" && !s.positions.SameDatabase(*home, need.Position) {
		need.Position = "" // of another database, where another Connector has written
	}
	among, why := s.asNewAs(f)
	if among == nil {
		return nil, why
	}
	return s.choose(ctx, need, among)
}

// asNewAs returns the replicas that show nothing older than what one of them has shown to the context of f; nil: there is none.
func (s *Set) asNewAs(f *floor.Floor) (among []*Replica, why Reason) {
	shown := f.Shown()
	if shown == (floor.Server{}) {
		return s.All, Served
	}
	r := shown.Replica.(*Replica)
	if why = r.state(); why == Served && r.watcher.Era() != shown.Era {
		why = Dead // the server that had shown it is gone
	}
	if why != Served && why != unseen {
		f.LoseServer()
		return nil, why
	}
	return []*Replica{r}, why
}

// anew asks the primary for its position, and returns what f needs then.
func (s *Set) anew(ctx context.Context, f *floor.Floor) floor.Need {
	mark := f.Mark()
	if log, err := s.ask(ctx); err == nil {
		f.Raise(mark, log)
	}
	return f.Now()
}

// choose returns a replica that has what is needed. If none is known to have it, it waits for one.
func (s *Set) choose(ctx context.Context, need floor.Need, among []*Replica) (*Replica, Reason) {
	r, why := s.best(need.Position, among)
	switch {
	case r == nil && need.Lazy:
		for _, r := range among {
			r.watcher.Seek()
		}
		if why == unseen {
			why = Behind
		}
	case why == Behind || why == unseen:
		r, why = s.await(ctx, need.Position, among, why)
	}
	switch why {
	case stuck:
		why = Behind
	case unseen:
		if why = Dead; s.config.ReplicaMaxLag > 0 {
			why = Late
		}
	}
	return r, why
}

// await waits for a replica that has position. why says why none is known to have it.
func (s *Set) await(ctx context.Context, position string, among []*Replica, why Reason) (r *Replica, _ Reason) {
	begun, asked := time.Now(), why == unseen
	defer func() { s.Wait.Record(time.Since(begun), 1) }()
	for _, r := range among {
		defer r.watcher.Attend()()
	}
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		news := s.news.Next()
		r, why = s.best(position, among)
		limit := s.config.ReplicaWait
		switch {
		case r != nil && position != "":
			return r, Waited
		case why == unseen:
			limit = max(limit, answerIn)
		case why == Behind || why == Late && asked:
		default:
			return r, why
		}
		timer.Reset(limit - time.Since(begun))
		select {
		case <-news:
		case <-ctx.Done():
			return nil, why
		case <-timer.C:
			for _, r := range among {
				r.waitedInVain()
			}
			return nil, why
		}
	}
}

// best returns the replica with the fewest users among those that have reached position. nil: there is none, and why says
// why not. Behind and unseen: one may come to it.
func (s *Set) best(position string, among []*Replica) (best *Replica, why Reason) {
	why = Dead
	first := int(s.turn.Add(1))
	for i := range among {
		r := among[(first+i)%len(among)]
		state := r.state()
		switch {
		case state == Served && r.watcher.Reached(position):
			if best == nil || r.users.Load() < best.users.Load() {
				best = r
			}
		case state == Served && r.isStuck():
			if why != Behind && why != unseen {
				why = stuck
			}
		case state == Served:
			why = Behind
		case state == unseen:
			why = unseen
		case why == Dead:
			why = state
		}
	}
	if best != nil {
		return best, Served
	}
	return nil, why
}

// isStuck reports whether a read has waited for r in vain, and r is still where it was then.
func (r *Replica) isStuck() bool {
	_, seen := r.watcher.State()
	at := r.stuck.Load()
	if at == nil || *at != seen.Position {
		return false
	}
	r.watcher.Seek()
	return true
}

func (r *Replica) waitedInVain() {
	_, seen := r.watcher.State()
	r.stuck.Store(&seen.Position)
}

// Server returns r as the server of a connection of that era.
func (r *Replica) Server(era uint64) floor.Server { return floor.Server{Replica: r, Era: era} }
