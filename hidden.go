package pooldriver

import (
	"github.com/pooldriver/pooldriver/internal/session"
)

// Some wrappers (sqlhooks, DataDog's) hide driver.Validator: then nobody tells us when
// database/sql puts a connection back. ResetSession finds out, ends the checkout, and
// from then on checkouts end early.

// tellHiddenValidator has the log warned once.
func (c *core) tellHiddenValidator() {
	if c.hiddenValidator.Swap(true) {
		return
	}
	c.report.ValidatorHidden()
}

// endEarly ends the checkout before database/sql does, if a wrapper hides the end from us
// and nothing is left on the session: no transaction, no rows, no state.
func (c *checkout) endEarly() {
	if !c.connector.hiddenValidator.Load() || c.tx != nil || c.lent != nil || c.refusal != nil {
		return
	}
	b, r := c.bound, c.real
	if b == nil || r == nil || !b.take(r) {
		return
	}
	idle := !r.Reading() && (b.shares || !r.pin().KeepsTask() && session.LeavesNothing(r.Effect()))
	b.untake(r)
	if idle {
		c.detach()
	}
}
