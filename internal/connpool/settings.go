package connpool

import (
	"context"
	"database/sql/driver"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/dbsettings"
	"github.com/pooldriver/pooldriver/internal/report"
)

// If a database is the program's own (SQLite), a setting that the program makes on the *sql.DB
// holds for every connection of the Connector. A connection gets all settings when it is taken
// from the pool, before its next use.

// execute executes settings on r.
func (r *Conn) execute(ctx context.Context) dbsettings.Execute {
	return func(text string, args ...driver.NamedValue) error {
		return r.Guard(func() error { return r.Command(ctx, text, args...) })
	}
}

// BringUp gives all settings to a connection that was taken from the pool. If that fails, or if
// the driver panics, the connection is closed. A connection whose end would be the end of its
// database is not closed.
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
	err = p.settings.BringUp(&r.applied, r.execute(ctx))
	if err != nil {
		if r.Irreplaceable() { // it is tried again at its next use
			done = true
			r.Return()
		}
		return fmt.Errorf("pooldriver: a connection to %s did not get the settings of its *sql.DB: %w", p.report.Target(), err)
	}
	r.Statements().MarkAllStale()
	done = true
	return nil
}

// CompleteSettings tries once more to set what has failed on r.
func (r *Conn) CompleteSettings(ctx context.Context) error {
	if !r.applied.Lacks() {
		return nil
	}
	err := r.applied.Complete(r.execute(ctx))
	r.Statements().MarkAllStale()
	return err
}

// RecordSetting remembers a statement that sets session state outside of explicit tasks,
// before it is sent. GiveBack says what becomes of the state. If the statement ends a setting that r
// lacks, something stands in for that.
func (r *Conn) RecordSetting(text string, args []driver.NamedValue) {
	r.setting, r.settingArgs = text, args
	if r.applied.Lacks() {
		r.stoodIn = r.pool.settings.StandIn(&r.applied, text, r.execute(context.Background()))
	}
}

// ForgetSetting is for a statement that has failed: it sets nothing.
func (r *Conn) ForgetSetting() {
	if r.stoodIn {
		r.MarkUnusable() // what stands in is still there
	}
	r.setting, r.settingArgs, r.stoodIn = "", nil, false
}

// repeatable is dialects.SettingRepeater's Repeatable.
func (r *Conn) repeatable(s dialects.Setting, args []driver.NamedValue) (text string) {
	server, ok := r.Server().(dialects.SettingRepeater)
	if !ok {
		return s.Text
	}
	text = s.Text
	defer func() {
		if recover() != nil { // the connection is on its way back
			r.MarkUnusable()
		}
	}()
	return server.Repeatable(context.Background(), s, args)
}
