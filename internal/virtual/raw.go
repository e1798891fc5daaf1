package virtual

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/beneath"
	"github.com/pooldriver/pooldriver/internal/direct"
	"github.com/pooldriver/pooldriver/internal/unwrap"
)

// Lend finds the session for a function of Raw. dc is the connection that database/sql has. From
// now on the checkout of this connection refuses every operation.
func Lend(ctx context.Context, dc any) (*Loan, error) {
	c, err := connBeneath(ctx, dc)
	if err != nil {
		return nil, err
	}
	return lendFor(ctx, c, direct.Anything)
}

// lendFor is Lend for a borrower that does nothing but what effect says.
func lendFor(ctx context.Context, c *conn, effect dialects.Effect) (*Loan, error) {
	op := c.operate(lending)
	op.Lends, op.LoanEffect = true, effect
	if err := op.errOf(op.do(ctx)); err != nil {
		return nil, err
	}
	return c.loan, nil
}

// Wrappers such as otelsql and sqlmw stand between database/sql and us: database/sql has the
// wrapper's connections, and the wrapper has ours.

// connBeneath returns the virtual connection behind dc. dc is the connection that database/sql has: a
// virtual connection, or a wrapper around one. A wrapper that does not show the wrapped connection is asked.
func connBeneath(ctx context.Context, dc any) (*conn, error) {
	outer, _ := dc.(driver.Conn)
	inner := unwrap.Conn(outer)
	if c, ok := inner.(*conn); ok {
		return c, nil
	}
	if p, ok := inner.(driver.Pinger); ok {
		answer, _ := beneath.Ask(ctx, p) // the answer counts
		if c, ok := answer.(*conn); ok {
			return c, nil
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("pooldriver: Raw found no connection of pooldriver in the *sql.Conn, whose driver.Conn is a %T: use a *sql.DB over a pooldriver.Connector; if this type wraps our connection, give it a method Unwrap() driver.Conn, or let its Ping call the Ping of our connection", dc)
}
