package virtual

import (
	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/observe/callsite"
	"github.com/pooldriver/pooldriver/internal/pinning"
)

// This file finds session state that ends with its statement, or that others share. An explicit task,
// a transaction and a *sql.Conn keep what a statement sets. On a *sql.DB the connection goes back after
// the statement and is cleaned. That is right, but the program should know it.

// sharesState reports whether op, in an explicit task, has set state on a session that another
// checkout of the task uses, too. An advisory lock on that session excludes none of these checkouts.
func (op *operation) sharesState() bool {
	c := op.c
	return c.held.Shares() && op.Effect&pinning.ChangesSession != 0 && c.held.SharesState()
}

// tellShared logs a statement whose session state another checkout of its task uses. The caller
// holds no lock.
func (op *operation) tellShared() {
	c := op.c
	c.source.report.StateShared(binding.WhoIs(c.held.Label(), op.sharing), connpool.Outline(c.source.config.Dialect, &op.Text), callsite.Program)
}
