package virtual

import (
	"context"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/callsite"
	"github.com/pooldriver/pooldriver/internal/pinning"
)

// This file finds session state that ends with its statement, or that others share. An explicit task,
// a transaction and a *sql.Conn keep what a statement sets. On a *sql.DB the connection goes back after
// the statement and is cleaned. That is right, but the program should know it.

// recordSetting remembers a statement that sets session state outside of explicit tasks, before the
// statement is sent. GiveBack of connpool decides what happens to the state. The error is that of a
// setting which no connection may have alone. Before a statement that may be a VACUUM, recordSetting
// executes the setting of the *sql.DB that waits for a VACUUM.
func (op *operation) recordSetting(ctx context.Context) error {
	switch {
	case op.Effect&pinning.ChangesSession != 0:
		if op.c.Shares() {
			return nil
		}
		if err := op.c.source.pool.Settings().Refusal(op.Text); err != nil {
			return err
		}
		op.Conn.RecordSetting(op.Text, op.Args)
	case op.Effect&dialects.ForgetPrepared != 0:
		if text := op.c.source.pool.Settings().ForVacuum(); text != "" {
			return op.Conn.Guard(func() error { return op.Conn.Command(ctx, text) })
		}
	}
	return nil
}

// sharesState reports whether op, in an explicit task, has set state on a session that another
// checkout of the task uses, too. An advisory lock on that session excludes none of these checkouts.
func (op *operation) sharesState() bool {
	c := op.c
	return c.Shares() && op.Effect&pinning.ChangesSession != 0 && op.sharesSession()
}

// tellShared logs a statement whose session state another checkout of its task uses. The caller
// holds no lock.
func (op *operation) tellShared() {
	c := op.c
	c.source.report.StateShared(binding.WhoIs(c.Label(), op.sharing), op.Text, callsite.Program)
}
