package pooldriver

import (
	"github.com/pooldriver/pooldriver/internal/droppedstate"
	"github.com/pooldriver/pooldriver/internal/session"
)

// Session state that ends with its statement. A task, a transaction and a *sql.Conn keep
// the state that a statement sets. On a *sql.DB the connection goes back after the
// statement and is cleaned. That is right, and the program should know it.

// recordSetting remembers, before it is sent, a statement that no explicit task has, and that sets session
// state. takeBack says what becomes of the state.
func (c *checkout) recordSetting(op *operation) {
	if op.Effect&session.ChangesSession != 0 && !c.bound.shares {
		op.real.set, op.real.setArgs = op.Text, op.Args
	}
}

// loses is called where a checkout ends. It returns the text of the checkout's only
// statement if that has set session state which ends now, or else "". What holds for all
// connections is kept for them here. Of a broken connection nothing is lost: the statement
// is tried again, or the program gets its error.
func (c *core) loses(r *realConn) string {
	query, args := r.set, r.setArgs
	r.set, r.setArgs = "", nil
	if r.Unusable() || r.Effect()&session.ChangesSession == 0 || droppedstate.HeldByProgram() {
		return ""
	}
	known, all := c.settings.Record(&r.applied, query, args)
	if all {
		r.KeepsForAll() // every connection gets it
	}
	if known || c.config.Reset == ResetOff || r.Irreplaceable() {
		return ""
	}
	return query
}

// tellLoss counts session state that has ended, and warns of it.
func (c *core) tellLoss(query string) {
	c.stats.stateDropped.Add(1)
	if statement := droppedstate.Opening(query); c.drops.First(statement) {
		c.log.Warn("pooldriver: a statement on a *sql.DB set session state (a setting, a lock, a temporary table), which ended with the statement: its connection was cleaned before it is lent again; to keep it use a task (pooldriver.WithTask) or a *sql.Conn",
			"target", c.template.Target(), "statement", statement)
	}
}
