package sandbox_test

import (
	"database/sql"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/conformance"
	"github.com/pooldriver/pooldriver/sandbox"
)

// TestASandboxBehavesAsTheBareDriver runs the definition of "transparent" in sandboxes on SQLite.
func TestASandboxBehavesAsTheBareDriver(t *testing.T) {
	t.Parallel()
	dsn := func(t testing.TB) string {
		return "file:" + filepath.Join(t.TempDir(), "suite.db") + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(wal)&_txlock=immediate"
	}
	conformance.Run(t, conformance.Target{
		Name: "sqlite", SQL: conformance.SQLite(),
		Bare: func(t testing.TB) *sql.DB {
			db, err := sql.Open("sqlite", dsn(t))
			require.NoError(t, err)
			return db
		},
		Wrapped: func(t testing.TB) *sql.DB {
			c := pooldriver.New(dsn(t), quietly)
			r := &recorder{TB: t, name: t.Name()}
			t.Cleanup(func() {
				require.Empty(t, r.end())
				require.NoError(t, c.Close())
			})
			return sandbox.DB(r, c)
		},
		Omit: omitted,
	})
}

// What a handle with one session cannot do as the bare driver does it: docs/testing.md.
const (
	notStopped = "a statement of SQLite is not stopped, because the whole transaction would be lost"
	noLimit    = "SetMaxOpenConns has no effect on the handle of a test"
)

var omitted = map[string]string{
	"CancelEndsALongStatement":                 notStopped,
	"CancelEndsALongQuery":                     notStopped,
	"CancelInMidStreamEndsTheRows":             notStopped,
	"CancelInsideATransactionEndsTheStatement": notStopped,
	"CancelWhileWaitingForAConnection":         noLimit,
	"ConnMayBeginByHand":                       "the results of BEGIN and COMMIT have the driver's last row, and here none",
	"StatsCountWhatIsInUse":                    noLimit,
	"ValuersMayQueryTheSameDatabase":           "a Valuer is called while the statement has the session; in production the query has another one",
	"WaitersGetWhatIsGivenBack":                noLimit,
}
