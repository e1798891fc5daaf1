package pooldriver

import (
	"context"

	"github.com/pooldriver/pooldriver/internal/ctxsettings"
)

// Settings are session settings by name: {"app.tenant": "42"}. See WithSettings.
type Settings map[string]string

// WithSettings returns a context whose statements run with these settings, on every handle
// of this package: the tenant of a request for row-level security, the user for an audit
// trigger. Nobody else's statements see them.
//
// On PostgreSQL a statement reads a setting with current_setting('app.tenant', true), on
// MySQL and MariaDB with the user variable @`app.tenant`. A name has a dot, or is one of
// PostgreSQL's parameters application_name, idle_in_transaction_session_timeout,
// lock_timeout, statement_timeout, timezone, transaction_timeout and work_mem.
//
// Settings inside settings are merged: the inner value counts. Empty settings change
// nothing. values is copied.
//
// A transaction has the settings of the context of its BeginTx. The context of a statement in it
// must have the same settings or none; other settings are an error. Settings do not pin a
// connection to a task.
//
// On PostgreSQL the settings are part of the first statement's packet. Through Wrap, on MySQL and
// on MariaDB, a round trip puts them in force, if the connection does not have them yet. On
// SQLite, over ODBC and on a database that no dialect knows, every operation with settings is an
// error. A name that is not allowed is an error, too. No error contains a value.
//
// docs/settings-by-context.md has the details.
func WithSettings(ctx context.Context, values Settings) context.Context {
	return ctxsettings.With(ctx, values)
}
