package replica

import (
	"context"
	"database/sql/driver"

	"github.com/pooldriver/pooldriver/internal/floor"
)

// tx is an open transaction. Its checkout sends every statement where it is.
type tx struct {
	driver.Tx
	conn   *conn
	link   *link
	around *tx // nil: it is no savepoint in another one of its checkout
	over   bool

	ctx   context.Context // of its BeginTx
	floor *floor.Floor    // that it raises; nil: none
}

// opened makes t, which has begun, the transaction of c.
func (c *conn) opened(ctx context.Context, t driver.Tx, to routed, reads bool) driver.Tx {
	own := &tx{Tx: t, conn: c, link: to.link, around: c.tx, ctx: ctx}
	switch {
	case to.replica != nil:
		c.set.open.Add(1)
	case !reads || to.why != Served:
		own.floor = c.floorOf(ctx)
	}
	c.tx = own
	return own
}

// ended is called when the transaction has ended, or its checkout.
func (t *tx) ended() {
	if t.over {
		return
	}
	t.over, t.conn.tx = true, t.around
	if t.link.replica != nil {
		t.conn.set.open.Add(-1)
	}
}

// Commit implements driver.Tx.
func (t *tx) Commit() error {
	over := t.over
	defer t.ended()
	err := t.Tx.Commit()
	if !over {
		t.conn.raise(t.ctx, t.floor, err)
	}
	return err
}

// Rollback implements driver.Tx. The program has seen what it has read. A part may be committed: MySQL commits before DDL.
func (t *tx) Rollback() error {
	over := t.over
	defer t.ended()
	err := t.Tx.Rollback()
	if !over {
		t.conn.raise(t.ctx, t.floor, err)
	}
	return err
}
