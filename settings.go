package pooldriver

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/pooldriver/pooldriver/internal/dbsettings"
	"github.com/pooldriver/pooldriver/internal/report"
	"github.com/pooldriver/pooldriver/pool"
)

// What a program sets on the *sql.DB of a database that is the program's own (SQLite)
// holds for every connection of the Connector. A connection gets all settings when it is
// taken from the pool, before its next use.

// applied is what a connection has of the settings.
type applied = dbsettings.Applied

// broughtUp gives a connection that was taken from the pool all settings. If that fails,
// or if the driver panics, the connection is closed. A connection whose end would be the
// end of its database is not closed.
func (c *core) broughtUp(ctx context.Context, lease pool.Lease[*realConn]) error {
	if c.settings.Current(&lease.Value().applied) {
		return nil
	}
	return c.bringUp(ctx, lease)
}

// bringUp is broughtUp for a connection that lacks settings.
func (c *core) bringUp(ctx context.Context, lease pool.Lease[*realConn]) (err error) {
	r := lease.Value()
	done := false
	defer func() {
		if !done {
			c.discard(r, lease, report.Lost)
		}
	}()
	err = c.settings.BringUp(&r.applied, func(text string, args ...driver.NamedValue) error {
		return r.Command(ctx, text, args...)
	})
	if err != nil {
		if r.Irreplaceable() { // it is tried again at its next use
			done = true
			mustEnd(lease.Release())
		}
		return fmt.Errorf("pooldriver: a connection to %s could not be given what was set on its *sql.DB: %w", c.report.Target(), err)
	}
	r.Statements().MarkAllStale()
	done = true
	return nil
}
