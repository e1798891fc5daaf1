package replica

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"slices"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/beneath"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/task"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// virtualConn is a virtual connection of package virtual.
type virtualConn interface {
	beneath.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.QueryerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.SessionResetter
	driver.Validator
	// Written asks for a position of the server's log that has everything which the session has committed. It is
	// empty while a transaction is open.
	Written(ctx context.Context) (position string, err error)
	// InUse reports whether the present checkout has had an operation.
	InUse() bool
	// Cut reports whether the last operation lost its connection.
	Cut() bool
}

// link is a virtual connection to the primary or to a replica.
type link struct {
	conn    virtualConn
	replica *Replica // nil: the primary
	used    bool     // in the present checkout, which the replica counts
}

// conn is what database/sql pools where there are replicas. database/sql calls it by one goroutine at a time.
type conn struct {
	set     *Set
	primary link
	links   []*link // to replicas, made when they are first used
	tx      *tx     // the innermost open transaction; nil: none is open
}

var _ virtualConn = (*conn)(nil)

// to returns the link to r.
func (c *conn) to(ctx context.Context, r *Replica) *link {
	i := slices.IndexFunc(c.links, func(l *link) bool { return l.replica == r })
	if i < 0 {
		i = len(c.links)
		c.links = append(c.links, &link{conn: r.source.Conn(ctx, nil).(virtualConn), replica: r})
	}
	l := c.links[i]
	if !l.used {
		l.used = true
		r.users.Add(1)
	}
	return l
}

// routed is where a call goes.
type routed struct {
	*link
	text *textcache.Text // of a read that a replica serves
	why  Reason          // for the primary: why it serves what a replica may serve; Served: no replica may
}

// route returns the link for a statement.
func (c *conn) route(ctx context.Context, query string) (routed, error) {
	primary := routed{link: &c.primary}
	if c.tx != nil {
		return routed{link: c.tx.link}, nil
	}
	asks := ctx.Value(wanted{}) != nil
	if !asks && c.set.config.ReplicaReads != config.ReadsAuto && c.set.open.Load() == 0 {
		return primary, nil
	}
	var at task.Place
	if l, err := c.keeps(ctx, &at); l != nil || err != nil {
		return c.joined(l, asks || c.set.config.ReplicaReads == config.ReadsAuto && c.set.readsOnly(query)), err
	}
	if !asks && c.set.config.ReplicaReads != config.ReadsAuto {
		return primary, nil
	}
	t, _ := c.set.texts.Of(c.set.config.Dialect, query)
	if !t.OnlyReads(c.set.judge) {
		if asks {
			c.set.count(Writes)
		}
		return primary, nil
	}
	to, err := c.pick(ctx, &at)
	to.text = t
	return to, err
}

// routeTx returns the link for a transaction.
func (c *conn) routeTx(ctx context.Context, opts driver.TxOptions) (routed, error) {
	asks := ctx.Value(wanted{}) != nil
	reads := opts.ReadOnly && sql.IsolationLevel(opts.Isolation) < sql.LevelSerializable &&
		(asks || c.set.config.ReplicaReads != config.ReadsExplicit)
	if !reads && c.set.open.Load() == 0 {
		return routed{link: &c.primary}, nil
	}
	var at task.Place
	if l, err := c.keeps(ctx, &at); l != nil || err != nil {
		return c.joined(l, reads), err
	}
	if !reads {
		return routed{link: &c.primary}, nil
	}
	return c.pick(ctx, &at)
}

// keeps returns the link to which statements have to go, because the session of the task is there, or that of the
// *sql.Conn. nil: any may serve. It writes the place of the context to at.
func (c *conn) keeps(ctx context.Context, at *task.Place) (*link, error) {
	if err := c.set.engine.FindPlace(ctx, at); err != nil {
		return &c.primary, err
	}
	if c.set.open.Load() > 0 {
		for _, r := range c.set.All {
			if r.Engine.Keeps(at) {
				return c.to(ctx, r), nil
			}
		}
	}
	if c.primary.conn.InUse() || c.set.engine.Keeps(at) {
		return &c.primary, nil
	}
	return nil, nil
}

// joined is where a call goes that has to go to l. reads: a replica may serve it.
func (c *conn) joined(l *link, reads bool) routed {
	if !reads || l != &c.primary {
		return routed{link: l}
	}
	c.set.count(Joined)
	return routed{link: l, why: Joined}
}

// fallBack counts a read that no replica serves, and returns the primary for it.
func (c *conn) fallBack(ctx context.Context, why Reason) (routed, error) {
	c.set.count(why)
	switch {
	case c.set.config.ReplicaFallback || c.set.engine.Pool().Draining():
		return routed{link: &c.primary, why: why}, nil
	case ctx.Err() != nil: // before a replica could serve
		return routed{}, fmt.Errorf("pooldriver: waiting for a replica (%s): %w", why, ctxerr.WhatEnded(ctx))
	}
	return routed{}, c.set.none(why)
}

// repeats reports whether a call on a replica that has failed with err is to be made once more, and where: nothing
// has come of it. If not, it returns the error of the call.
func (c *conn) repeats(ctx context.Context, to routed, err error, route func() (routed, error)) (next routed, again bool, _ error) {
	switch {
	case err == nil || to.replica == nil || c.tx != nil || err == driver.ErrSkip:
		return next, false, err
	case to.replica.unavailable(ctx, err, to.conn.Cut()):
		next, none := route() // not there again
		if none != nil {
			return next, false, fmt.Errorf("%w: %w", none, ctxerr.Harmless(err))
		}
		return next, true, nil
	case to.text == nil || ctx.Err() != nil:
		return to, false, err
	}
	switch said := c.set.config.Dialect.Diagnose(err); {
	case said&(dialects.RoleDoubt|dialects.PrimaryOnly) != 0:
		to.text.DoesMore()
	case said&dialects.Conflict == 0: // with the replication, which the primary does not have
		return to, false, err
	}
	c.set.count(Refused)
	return routed{link: &c.primary, why: Refused}, true, nil
}

// call makes a call where it belongs.
func call[T any](ctx context.Context, c *conn, route func() (routed, error), do func(*link) (T, error)) (result T, to routed, err error) {
	if to, err = route(); err != nil {
		return result, to, err
	}
	result, err = do(to.link)
	return settle(ctx, c, to, result, err, route, do)
}

// settle is the rest of a call that was made at to: it makes the call again if that helps.
func settle[T any](ctx context.Context, c *conn, to routed, result T, err error, route func() (routed, error), do func(*link) (T, error)) (T, routed, error) {
	for tries := 1; ; tries++ {
		if tries >= len(c.set.All) {
			route = func() (routed, error) { return c.fallBack(ctx, Dead) }
		}
		next, again, failed := c.repeats(ctx, to, err, route)
		if err = failed; !again {
			break
		}
		to = next
		result, err = do(to.link)
	}
	if to.replica != nil && c.tx == nil {
		c.set.count(to.why)
	}
	return result, to, err
}

// executed is the end of a text that was executed.
func (c *conn) executed(ctx context.Context, query string, to routed, res driver.Result, err error) (driver.Result, error) {
	if err != driver.ErrSkip {
		c.raise(ctx, c.raises(ctx, query, to), err)
	}
	return res, err
}

// asked is the end of a query.
func (c *conn) asked(ctx context.Context, query string, to routed, rows driver.Rows, err error) (driver.Rows, error) {
	if err == driver.ErrSkip {
		return nil, err
	}
	switch f := c.raises(ctx, query, to); {
	case f == nil:
		return rows, err
	case err != nil:
		c.raise(ctx, f, err)
		return nil, err
	default:
		return c.raising(ctx, rows, f), nil
	}
}

// ExecContext implements driver.ExecerContext. Who waits for a connection waits in here. The rest is in a function of its own,
// so that the stack stays small: docs/adr/0022.
func (c *conn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	to, err := c.route(ctx, query)
	if err != nil {
		return nil, err
	}
	res, err := to.conn.ExecContext(ctx, query, args)
	return c.afterExec(ctx, query, args, to, res, err)
}

func (c *conn) afterExec(ctx context.Context, query string, args []driver.NamedValue, to routed, res driver.Result, err error) (driver.Result, error) {
	res, to, err = settle(ctx, c, to, res, err, func() (routed, error) { return c.route(ctx, query) },
		func(l *link) (driver.Result, error) { return l.conn.ExecContext(ctx, query, args) })
	return c.executed(ctx, query, to, res, err)
}

// QueryContext implements driver.QueryerContext, as ExecContext does.
func (c *conn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	to, err := c.route(ctx, query)
	if err != nil {
		return nil, err
	}
	rows, err := to.conn.QueryContext(ctx, query, args)
	return c.afterQuery(ctx, query, args, to, rows, err)
}

func (c *conn) afterQuery(ctx context.Context, query string, args []driver.NamedValue, to routed, rows driver.Rows, err error) (driver.Rows, error) {
	rows, to, err = settle(ctx, c, to, rows, err, func() (routed, error) { return c.route(ctx, query) },
		func(l *link) (driver.Rows, error) { return l.conn.QueryContext(ctx, query, args) })
	return c.asked(ctx, query, to, rows, err)
}

// PrepareContext prepares a statement where it would be executed now. Each execution is sent where it belongs.
func (c *conn) PrepareContext(ctx context.Context, query string) (driver.Stmt, error) {
	s := &stmt{conn: c, query: query}
	_, _, err := call(ctx, c, func() (routed, error) { return c.route(ctx, query) }, func(l *link) (virtualStmt, error) { return s.on(ctx, l) })
	if err != nil {
		return nil, err
	}
	return s, nil
}

// BeginTx implements driver.ConnBeginTx.
func (c *conn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	t, to, err := call(ctx, c, func() (routed, error) { return c.routeTx(ctx, opts) },
		func(l *link) (driver.Tx, error) { return l.conn.BeginTx(ctx, opts) })
	if err != nil {
		return nil, err
	}
	return c.opened(ctx, t, to, opts.ReadOnly), nil
}

// Ping asks the primary.
func (c *conn) Ping(ctx context.Context) error { return c.primary.conn.Ping(ctx) }

// CheckNamedValue accepts everything, as that of a virtual connection does.
func (c *conn) CheckNamedValue(*driver.NamedValue) error { return nil }

// Beneath implements beneath.Conn.
func (c *conn) Beneath() beneath.Beneath { return c.primary.conn.Beneath() }

// Unwrap is for those who look for the primary's virtual connection: Raw is for the primary.
func (c *conn) Unwrap() driver.Conn { return c.primary.conn }

// Written, InUse and Cut implement virtualConn.
func (c *conn) Written(ctx context.Context) (string, error) { return c.primary.conn.Written(ctx) }

func (c *conn) InUse() bool { return c.primary.conn.InUse() }

func (c *conn) Cut() bool { return c.primary.conn.Cut() }

// ResetSession implements driver.SessionResetter for all links.
func (c *conn) ResetSession(ctx context.Context) error {
	c.leave()
	err := c.primary.conn.ResetSession(ctx)
	for _, l := range c.links {
		if failed := l.conn.ResetSession(ctx); failed != nil {
			err = failed
		}
	}
	return err
}

// IsValid ends the checkout on all links.
func (c *conn) IsValid() bool {
	c.leave()
	valid := c.primary.conn.IsValid()
	for _, l := range c.links {
		if !l.conn.IsValid() {
			valid = false
		}
	}
	return valid
}

// Close closes all links.
func (c *conn) Close() error {
	c.leave()
	for _, l := range c.links {
		_ = l.conn.Close()
	}
	return c.primary.conn.Close()
}

// leave ends the checkout for the replicas that it has used.
func (c *conn) leave() {
	for c.tx != nil {
		c.tx.ended()
	}
	for _, l := range c.links {
		if l.used {
			l.used = false
			l.replica.users.Add(-1)
		}
	}
}

// Prepare is PrepareContext without a context.
func (c *conn) Prepare(query string) (driver.Stmt, error) {
	return c.PrepareContext(context.Background(), query)
}

// Begin is BeginTx without a context and options.
func (c *conn) Begin() (driver.Tx, error) {
	return c.BeginTx(context.Background(), driver.TxOptions{})
}
