package virtual

import (
	"context"
	"database/sql/driver"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/direct"
)

// This file has the operations of package direct.

var _ direct.Conn = (*conn)(nil)

// Attach takes a real connection, unless the checkout has one.
func (c *conn) Attach(ctx context.Context) error {
	op := c.operate(attaching)
	return op.errOf(op.do(ctx))
}

// Execute executes a statement that its caller sends itself. Its texts are classified as those of
// database/sql are.
func (c *conn) Execute(ctx context.Context, call *direct.Call) (driver.Rows, error) {
	kind := executing
	if call.ReturnsRows {
		kind = querying
	}
	op := c.operate(kind)
	t, _ := c.look(call.Text)
	op.Text, op.Effect, op.TextAt = t.Query, t.Effect|call.Effect, &t.Query
	if len(call.MoreTexts) > 0 {
		c.addMore(op, call)
	}
	op.Queries, op.Fatal = call.ReturnsRows, true
	op.Direct, op.Converted = call, true
	err := op.do(ctx)
	if call.ReturnsRows {
		return op.rowsOf(err)
	}
	return nil, op.errOf(err)
}

// addMore makes op, whose text is the first one of a batch, the whole batch: a script of its texts.
func (c *conn) addMore(op *operation, call *direct.Call) {
	for _, text := range call.MoreTexts {
		t, _ := c.look(text)
		op.Effect |= t.Effect
	}
	script := op.Text + ";\n" + strings.Join(call.MoreTexts, ";\n")
	op.Text, op.TextAt = script, &script
}

// Start begins a transaction that ends with lifetime, and not with ctx.
func (c *conn) Start(ctx, lifetime context.Context, opts driver.TxOptions, nested bool) (driver.Tx, error) {
	if defers(ctx, c, opts) {
		if err := ctx.Err(); err != nil {
			return nil, ctxerr.Of(ctx, err)
		}
		if t, err := deferBegin(lifetime, c, opts); t != nil || err != nil {
			return t, err
		}
	}
	op := c.operate(beginning)
	op.Begins, op.TextAt, op.opts = true, &textBegin, opts
	op.rare = &rare{lifetime: lifetime, nested: nested}
	return op.txOf(op.do(ctx))
}

// Lend lends the driver's own connection.
func (c *conn) Lend(ctx context.Context, effect dialects.Effect) (direct.Loan, error) {
	l, err := lendFor(ctx, c, effect)
	if err != nil {
		return nil, err
	}
	return l, nil
}
