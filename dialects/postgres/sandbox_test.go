package postgres

import (
	"database/sql/driver"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

func TestLocalsAreFoundInTexts(t *testing.T) {
	for _, c := range []struct {
		text string
		args []driver.NamedValue
		want dialects.SandboxLocals
	}{
		{text: "SELECT 1"},
		{text: "SET app.tenant = '7'"},
		{text: "SET LOCAL app.tenant = '7'", want: dialects.SandboxLocals{Settings: []string{"app.tenant"}}},
		{text: `set local "App.Tenant" to 'x'`, want: dialects.SandboxLocals{Settings: []string{"app.tenant"}}},
		{text: "SELECT 1; SET LOCAL\n TIME ZONE 'UTC'", want: dialects.SandboxLocals{Settings: []string{"timezone"}}},
		{text: "SET LOCAL SESSION AUTHORIZATION joe", want: dialects.SandboxLocals{Settings: []string{"session_authorization"}}},
		{text: "SET LOCAL ROLE joe", want: dialects.SandboxLocals{Settings: []string{"role"}}},
		{text: "SELECT pg_catalog.set_config('app.a', 'x', true), set_config($2, $1, $3)",
			args: []driver.NamedValue{{Value: "v"}, {Value: "App.B"}, {Value: true}}, want: dialects.SandboxLocals{Settings: []string{"app.a", "app.b"}}},
		{text: "CREATE TEMP TABLE batch (id int) ON COMMIT DROP", want: dialects.SandboxLocals{Drop: []string{"pg_temp.batch"}, Changes: true}},
		{text: "CREATE TEMPORARY TABLE IF NOT EXISTS \"B b\" ON COMMIT DELETE ROWS AS SELECT 1", want: dialects.SandboxLocals{Empty: []string{`pg_temp."B b"`}, Changes: true}},
		{text: "CREATE TEMP TABLE batch (id int)", want: dialects.SandboxLocals{Changes: true}},
		{text: "SET CONSTRAINTS ALL DEFERRED", want: dialects.SandboxLocals{Defers: true}},
		{text: "SELECT pg_try_advisory_xact_lock(1)", want: dialects.SandboxLocals{Notes: []string{noteLock}}},
		{text: "SELECT pg_advisory_lock(1)"},
		{text: "NOTIFY news", want: dialects.SandboxLocals{Notes: []string{noteNotify}}},
		{text: "SELECT notify FROM t"},
		{text: "INSERT INTO t VALUES (CURRENT_TIMESTAMP)", want: dialects.SandboxLocals{Notes: []string{noteTime}}},
		{text: "SELECT known FROM t"},
	} {
		require.Equal(t, c.want, (*session)(nil).LocalsOf(c.text, c.args), c.text)
	}
}

func TestUndoQuotesNamesAndValues(t *testing.T) {
	undo := (*session)(nil).Undo(&dialects.SandboxLocals{
		Settings: []string{"app.tenant"}, Before: map[string]string{"app.tenant": `o'b\rien`}, Drop: []string{"pg_temp.a"}, Empty: []string{"pg_temp.b"},
	})
	require.Equal(t, `DELETE FROM pg_temp.b; DROP TABLE IF EXISTS pg_temp.a; SELECT pg_catalog.set_config(E'app.tenant', E'o''b\\rien', true)`, undo)
	require.Empty(t, (*session)(nil).Undo(&dialects.SandboxLocals{}))
}

func TestASandboxRefusesWhatRunsOnlyOutsideOfTransactions(t *testing.T) {
	for _, text := range []string{"VACUUM", "vacuum full t", "CREATE DATABASE x", "create unique index concurrently i on t (a)", "DROP INDEX CONCURRENTLY i",
		"REINDEX TABLE CONCURRENTLY t", "ALTER SYSTEM SET x = 1", "DISCARD ALL", "PREPARE TRANSACTION 'x'", "COMMIT PREPARED 'x'"} {
		require.NotEmpty(t, dialect{}.Refuses(text), text)
	}
	for _, text := range []string{"CREATE INDEX i ON t (a)", "DROP TABLE t", "DISCARD TEMP", "SELECT vacuum FROM t", "PREPARE p AS SELECT 1"} {
		require.Empty(t, dialect{}.Refuses(text), text)
	}
}

func TestADeadlockNamesTheSessionsOfItsDetail(t *testing.T) {
	err := fmt.Errorf("outside: %w", &pgconn.PgError{Code: "40P01",
		Detail: "Process 11 waits for ShareLock on transaction 5; blocked by process 12.\nProcess 12 waits for ShareLock on transaction 6; blocked by process 11."})
	lost, blockers := dialect{}.LockLost(err)
	require.True(t, lost)
	require.Equal(t, []uint64{12, 11}, blockers)
	lost, _ = dialect{}.LockLost(&pgconn.PgError{Code: "23505"})
	require.False(t, lost)
}
