package pgxpooldriver

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/direct"
)

// link is one checkout, as database/sql has one for each *sql.Conn and *sql.Tx: a virtual connection, and a
// lock that makes its users take turns.
type link struct {
	pool *Pool
	mu   sync.Mutex
	conn direct.Conn

	// Of a loan: pgx's own connection, until endLoan, and what was open there before.
	loan    direct.Loan
	lent    *pgx.Conn
	lentFor context.Context // the context for which pgx's own connection was lent, and whose settings it has
	inTx    bool
	reading bool

	inner []inner // what the Conn or the transactions of the link have open

	copying bool // a CopyFrom is running
	left    bool // its Conn was released while a CopyFrom ran

	call direct.Call // the present call, of which nothing is kept
	exec execution
}

// inner are rows, results of a batch or large objects of a Conn or transaction, or a transaction of a Conn.
type inner interface {
	// leave ends what its owner has left open at the Release of its Conn, or at the end of its transaction. Otherwise it
	// would keep its session, and would use the link of whoever has that next.
	leave()
}

// handle is a Conn or a transaction of the program, by which it calls the link; nil: a call of the Pool, which ends itself.
// A call that waits for the link finds it ended if another goroutine has ended it meanwhile: others may have the link then.
type handle interface {
	ended() error // under link.mu
}

// lockFor takes the lock for a call by h, unless h has ended.
func (l *link) lockFor(h handle) (err error) {
	l.mu.Lock()
	if h != nil {
		if err = h.ended(); err != nil {
			l.mu.Unlock()
		}
	}
	return err
}

// errLeft is the error of rows that were not read to their end before.
var errLeft = errors.New("pgxpooldriver: the Conn was released, or the transaction has ended, while these rows or results were open, so they were closed: read or close them before")

var (
	// errBusy has pgx's words.
	errBusy = errors.New("pgxpooldriver: conn busy: rows are open on the connection that Conn has lent: close them first")
	errInTx = errors.New("pgxpooldriver: a transaction was begun or ended on the connection that Conn has lent: end it there first, or begin it here")
)

// open says that in, which h has opened, is open, unless h has ended meanwhile. Whoever owns the link is not told: the link ends with it.
func (l *link) open(h handle, in inner) error {
	if err := l.lockFor(h); err != nil {
		return err
	}
	defer l.mu.Unlock()
	l.inner = append(l.inner, in)
	return nil
}

// end says that in is closed. If in owns the link, the link ends, too.
func (l *link) end(in inner, owns bool) {
	if owns {
		l.release()
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if i := slices.Index(l.inner, in); i >= 0 {
		l.inner = slices.Delete(l.inner, i, i+1)
	}
}

// leave ends what is open, and the checkout: if a CopyFrom is running, after it.
func (l *link) leave() {
	l.mu.Lock()
	l.left = l.copying
	left := l.left
	l.mu.Unlock()
	if !left {
		l.leaveInside(nil)
		l.release()
	}
}

// leaveInside ends what was opened since t has begun; nil, or an owner of the link: all.
func (l *link) leaveInside(t *Tx) {
	l.mu.Lock()
	all := slices.Clone(l.inner[slices.Index(l.inner, inner(t))+1:])
	l.mu.Unlock()
	for _, in := range slices.Backward(all) {
		in.leave()
	}
}

// take begins a checkout.
func (p *Pool) take(ctx context.Context) (*link, error) {
	if p.fault != nil {
		return nil, p.fault
	}
	if l, ok := p.idle.Get().(*link); ok {
		if l.conn.ResetSession(ctx) == nil {
			return l, nil
		}
		_ = l.conn.Close()
	}
	dc, err := p.connector.Connect(ctx)
	if err != nil {
		return nil, err
	}
	c, ok := dc.(direct.Conn)
	if !ok {
		_ = dc.Close()
		return nil, fmt.Errorf("pgxpooldriver: the Connector makes connections of type %T, in which there are no calls of pgx; use the *sql.DB there", dc)
	}
	return &link{pool: p, conn: c}, nil
}

// release ends the checkout.
func (l *link) release() {
	l.mu.Lock()
	l.endLoan(nil)
	clear(l.inner)
	l.inner = l.inner[:0]
	valid := l.conn.IsValid()
	l.mu.Unlock()
	if !valid {
		_ = l.conn.Close()
		return
	}
	l.pool.idle.Put(l)
}

// discard ends the checkout of a link that somebody still has.
func (l *link) discard() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.conn.IsValid()
	_ = l.conn.Close()
}

// execute runs a call under the lock.
func (l *link) execute(ctx context.Context, h handle, call direct.Call) (driver.Rows, error) {
	if err := l.lockFor(h); err != nil {
		return nil, err
	}
	defer l.mu.Unlock()
	return l.executeLocked(ctx, call)
}

func (l *link) executeLocked(ctx context.Context, call direct.Call) (driver.Rows, error) {
	if l.lent != nil {
		return l.sendLent(ctx, call.Sender)
	}
	l.call = call
	rows, err := l.conn.Execute(ctx, &l.call)
	l.call = direct.Call{}
	return rows, err
}

// sendLent sends by the connection that is lent. Nobody else reads from it, so the rows are the sender's own.
func (l *link) sendLent(ctx context.Context, sender direct.Sender) (rows driver.Rows, err error) {
	forgetTypes(l.lent) // the program may have registered some
	err = l.loan.Call(func(dc driver.Conn) (err error) {
		rows, err = sender.Send(ctx, dc, direct.SendOptions{})
		return err
	})
	return rows, err
}

// raw is pgx's own connection if it is lent.
func (l *link) raw(h handle) (*pgx.Conn, error) {
	if err := l.lockFor(h); err != nil {
		return nil, err
	}
	defer l.mu.Unlock()
	return l.lent, nil
}

// lend lends pgx's own connection until endLoan.
func (l *link) lend(ctx context.Context, h handle) (*pgx.Conn, error) {
	if err := l.lockFor(h); err != nil {
		return nil, err
	}
	defer l.mu.Unlock()
	return l.lendLocked(ctx)
}

func (l *link) lendLocked(ctx context.Context) (*pgx.Conn, error) {
	if l.lent != nil {
		return l.lent, nil
	}
	loan, err := l.conn.Lend(ctx, direct.Anything)
	if err != nil {
		return nil, err
	}
	l.loan, l.lentFor = loan, ctx
	err = loan.Call(func(dc driver.Conn) (err error) {
		l.lent, err = pgxOf(dc)
		return err
	})
	if err != nil {
		l.endLoan(err)
		return nil, err
	}
	l.inTx, l.reading = inTx(l.lent), l.lent.PgConn().IsBusy()
	return l.lent, nil
}

func inTx(c *pgx.Conn) bool { return c.PgConn().TxStatus() != 'I' }

// leftOpen is what the program has left open on the connection that is lent; nil: nothing.
func (l *link) leftOpen() error {
	switch {
	case l.lent == nil || l.lent.IsClosed():
	case l.lent.PgConn().IsBusy() && !l.reading:
		return errBusy
	case inTx(l.lent) != l.inTx:
		return errInTx
	}
	return nil
}

// endLoan ends a loan. What the program has left open on pgx's connection would go on in the session of others, so that is
// closed then.
func (l *link) endLoan(err error) {
	if l.loan == nil {
		return
	}
	if l.lent != nil {
		forgetTypes(l.lent) // the program may have registered some
		if left := l.leftOpen(); left != nil {
			err = fmt.Errorf("%w: %w", left, driver.ErrBadConn)
		}
	}
	l.loan.End(err)
	l.loan, l.lent, l.lentFor = nil, nil, nil
}

// beside calls fn, which uses the link, while nothing is lent. A loan goes on with the settings of ctx, of which a transaction
// allows its own or none.
func (l *link) beside(ctx context.Context, fn func() error) error {
	lent, lentFor := l.lent != nil, l.lentFor
	l.endLoan(nil)
	err := fn()
	if lent {
		if _, again := l.lendLocked(ctx); err == nil {
			err = again
		}
		l.lentFor = lentFor
	}
	return err
}

// pgxOf is pgx's connection behind the driver's.
func pgxOf(dc driver.Conn) (*pgx.Conn, error) {
	if c, ok := dc.(*stdlib.Conn); ok {
		return c.Conn(), nil
	}
	return nil, fmt.Errorf("pgxpooldriver: the connections of the Connector are of type %T, and not pgx's; give New a Connector for PostgreSQL whose driver is pgx, or use the *sql.DB", dc)
}

// target is pgx's connection behind dc, and the arguments for a statement there.
func target(dc driver.Conn, opts direct.SendOptions, args []any) (*pgx.Conn, []any, error) {
	c, err := pgxOf(dc)
	if err == nil && opts.Unkept {
		args = unkept(c, args)
	}
	return c, args, err
}

// execution is the Sender of an Exec.
type execution struct {
	text string
	args []any
	tag  pgconn.CommandTag
}

// Send implements direct.Sender.
func (e *execution) Send(ctx context.Context, dc driver.Conn, opts direct.SendOptions) (driver.Rows, error) {
	c, args, err := target(dc, opts, e.args)
	if err == nil {
		e.tag, err = c.Exec(ctx, e.text, args...)
	}
	return nil, err
}

func (l *link) doExec(ctx context.Context, h handle, text string, args []any) (pgconn.CommandTag, error) {
	text, args, effect, err := rewrite(ctx, text, args)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	if err := l.lockFor(h); err != nil {
		return pgconn.CommandTag{}, err
	}
	defer l.mu.Unlock()
	l.exec = execution{text: text, args: args}
	_, err = l.executeLocked(ctx, direct.Call{Text: text, Args: values(args), Effect: effect, Sender: &l.exec})
	tag := l.exec.tag
	l.exec = execution{}
	return tag, err
}

// errCopying is the error of a Commit or Rollback meanwhile, after which the transaction is as it was.
var errCopying = errors.New("pgxpooldriver: a CopyFrom of this transaction is running: end the transaction when it has returned")

func (l *link) copyFrom(ctx context.Context, h handle, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (n int64, err error) {
	if c, err := l.raw(h); err != nil {
		return 0, err
	} else if c != nil {
		return c.CopyFrom(ctx, table, columns, src)
	}
	// src is code of the program, which may use its task and this link. So the connection is lent, and nothing is locked:
	// statements of the link are errors, as with pgx.
	if err := l.lockFor(h); err != nil {
		return 0, err
	}
	loan, err := l.conn.Lend(ctx, 0)
	l.copying = err == nil
	l.mu.Unlock()
	if err != nil {
		return 0, err
	}
	ended := errPanicked
	defer func() {
		l.mu.Lock()
		loan.End(ended)
		left := l.left
		l.copying, l.left = false, false
		l.mu.Unlock()
		if left {
			l.leave()
		}
	}()
	ended = loan.Call(func(dc driver.Conn) error {
		c, err := pgxOf(dc)
		if err == nil {
			n, err = c.CopyFrom(ctx, table, columns, src)
		}
		return err
	})
	return n, ended
}

// errPanicked ends a loan whose connection nobody knows any more.
var errPanicked = fmt.Errorf("pgxpooldriver: a CopyFrom has panicked, so its connection is closed: %w", driver.ErrBadConn)

func (l *link) prepare(ctx context.Context, h handle, name, text string) (*pgconn.StatementDescription, error) {
	p := &preparation{name: name, text: text}
	_, err := l.execute(ctx, h, direct.Call{Text: text, Effect: dialects.NamedPrepared, Sender: p})
	return p.description, err
}

// preparation is the Sender of a Prepare.
type preparation struct {
	name, text  string
	description *pgconn.StatementDescription
}

// Send implements direct.Sender.
func (p *preparation) Send(ctx context.Context, dc driver.Conn, _ direct.SendOptions) (driver.Rows, error) {
	c, err := pgxOf(dc)
	if err == nil {
		p.description, err = c.Prepare(ctx, p.name, p.text)
	}
	return nil, err
}

func (l *link) attach(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conn.Attach(ctx)
}

func (l *link) ping(ctx context.Context, h handle) error {
	if err := l.lockFor(h); err != nil {
		return err
	}
	defer l.mu.Unlock()
	if l.lent != nil {
		return l.lent.Ping(ctx)
	}
	return l.conn.Ping(ctx)
}
