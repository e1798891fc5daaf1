package connpool

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/pooldriver/pooldriver/internal/droppedstate"
	"github.com/pooldriver/pooldriver/internal/pinning"
	"github.com/pooldriver/pooldriver/internal/report"
)

// What a program sets on the *sql.DB of a database that is the program's own (SQLite)
// holds for every connection of the Connector. A connection gets all settings when it is
// taken from the pool, before its next use.

// BringUp gives a connection that was taken from the pool all settings. If that fails,
// or if the driver panics, the connection is closed. A connection whose end would be the
// end of its database is not closed.
func (p *Pool) BringUp(ctx context.Context, r *Conn) error {
	if p.settings.Current(&r.applied) {
		return nil
	}
	return p.bringUp(ctx, r)
}

// bringUp is BringUp for a connection that lacks settings.
func (p *Pool) bringUp(ctx context.Context, r *Conn) (err error) {
	done := false
	defer func() {
		if !done {
			r.Discard(report.Lost)
		}
	}()
	err = p.settings.BringUp(&r.applied, func(text string, args ...driver.NamedValue) error {
		return r.Command(ctx, text, args...)
	})
	if err != nil {
		if r.Irreplaceable() { // it is tried again at its next use
			done = true
			r.Return()
		}
		return fmt.Errorf("pooldriver: a connection to %s could not be given what was set on its *sql.DB: %w", p.report.Target(), err)
	}
	r.Statements().MarkAllStale()
	done = true
	return nil
}

// RecordSetting remembers a statement that sets session state outside of explicit tasks,
// before it is sent. GiveBack says what becomes of the state.
func (r *Conn) RecordSetting(text string, args []driver.NamedValue) {
	r.setting, r.settingArgs = text, args
}

// ForgetSetting is for a statement that has failed: it sets nothing.
func (r *Conn) ForgetSetting() { r.setting, r.settingArgs = "", nil }

// loses is called where a checkout ends. It returns the text of the checkout's only
// statement if that has set session state which ends now, or else "". What holds for all
// connections is kept for them here. Of a broken connection nothing is lost: the statement
// is tried again, or the program gets its error.
func (r *Conn) loses() string {
	query, args := r.setting, r.settingArgs
	r.ForgetSetting()
	if r.Unusable() || r.Effect()&pinning.ChangesSession == 0 || droppedstate.HeldByProgram() {
		return ""
	}
	known, all := r.pool.settings.Record(&r.applied, query, args)
	if all {
		r.KeepsForAll() // every connection gets it
	}
	if known || r.pool.config.Reset == pinning.Off || r.Irreplaceable() {
		return ""
	}
	return query
}
