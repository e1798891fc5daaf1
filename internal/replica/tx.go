package replica

import "database/sql/driver"

// tx is an open transaction. Its checkout sends every statement where it is.
type tx struct {
	driver.Tx
	conn   *conn
	link   *link
	around *tx // nil: it is no savepoint in another one of its checkout
	over   bool
}

// opened makes t, which has begun on l, the transaction of c.
func (c *conn) opened(t driver.Tx, l *link) driver.Tx {
	c.tx = &tx{Tx: t, conn: c, link: l, around: c.tx}
	if l.replica != nil {
		c.set.open.Add(1)
	}
	return c.tx
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
	defer t.ended()
	return t.Tx.Commit()
}

// Rollback implements driver.Tx.
func (t *tx) Rollback() error {
	defer t.ended()
	return t.Tx.Rollback()
}
