package connpool

import (
	"context"
	"fmt"

	"github.com/pooldriver/pooldriver/internal/observe/report"
)

// If a database is the program's own (SQLite), a setting that the program makes on the *sql.DB
// holds for every connection of the Connector. A connection gets all settings when it is taken
// from the pool, before its next use.

// BringUp gives all settings to a connection that was taken from the pool. If that fails, or if
// the driver panics, the connection is closed. A connection whose end would be the end of its
// database is not closed.
func (p *Pool) BringUp(ctx context.Context, r *Conn) error {
	if p.settings.Current(&r.applied) {
		return nil
	}
	return p.bringUp(ctx, r)
}

// IsUp reports whether r has all settings of the *sql.DB.
func (p *Pool) IsUp(r *Conn) bool { return p.settings.Current(&r.applied) }

// bringUp executes the settings that the connection lacks.
func (p *Pool) bringUp(ctx context.Context, r *Conn) (err error) {
	done := false
	defer func() {
		if !done {
			r.Discard(report.Lost)
		}
	}()
	err = p.settings.BringUp(&r.applied, r.execute(ctx))
	if err != nil {
		if r.Session.Irreplaceable() { // it is tried again at its next use
			done = true
			r.Return()
		}
		return fmt.Errorf("pooldriver: a connection to %s did not get the settings of its *sql.DB: %w", p.report.Target(), err)
	}
	r.Session.Statements().MarkAllStale()
	done = true
	return nil
}
