package virtual

import (
	"context"
	"errors"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxsettings"
	"github.com/pooldriver/pooldriver/internal/session"
)

// This file decides when the settings of an operation's context (WithSettings) are put in
// force. internal/session puts them in force.

// useSettings puts the settings of op's context in force, under the lock, or makes op carry
// these settings. again: op is tried on another session.
func (op *operation) useSettings(ctx context.Context) (again bool, _ error) {
	use := session.ToExecute
	switch {
	case op.bypasses():
		use = session.ToLend
	case op.kind == preparing, op.kind == beginning, op.controlsTx():
		use = session.ToPrepare
	}
	return op.useSettingsOf(ctx, use)
}

func (op *operation) useSettingsOf(ctx context.Context, use session.Use) (again bool, _ error) {
	r := op.Conn
	op.Cargo = session.Cargo{}
	want, err := ctxsettings.Of(ctx).List()
	if want == nil && !r.Session.HasSettings() {
		return false, nil
	}
	if err == nil {
		op.Cargo, err = r.Session.UseSettings(ctx, want, use)
	}
	switch {
	case err == nil:
		return false, nil
	case errors.Is(err, session.ErrOtherSettings):
		return false, err
	}
	err = fmt.Errorf("pooldriver: applying the settings of the context (WithSettings) on %s: %w", op.c.source.report.Target(), err)
	return op.finishUnexecuted(ctx, err)
}

// bypasses reports whether nothing can go ahead of what op sends, in its packet.
func (op *operation) bypasses() bool {
	return op.kind == lending || op.Direct != nil && op.Direct.MoreTexts != nil && op.c.source.traits.BatchesBypass
}

// controlsTx reports whether a statement does nothing but begin or end a transaction, or a
// savepoint. A statement that sets an isolation level has to be the first one in its transaction,
// so nothing may come before it.
func (op *operation) controlsTx() bool {
	return op.Effect&dialects.TxControl != 0 && op.Effect&dialects.Suspect == 0 && !dialects.MayBeScript(op.Text)
}
