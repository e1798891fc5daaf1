package integration

import (
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestPostgresASessionThatHasRunOutOfMemoryIsNotUsedAgain: another session may have it.
func TestPostgresASessionThatHasRunOutOfMemoryIsNotUsedAgain(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	for name, connector := range map[string]*pooldriver.Connector{
		"New":  pooldriver.New(account.URL("pool_max_conns=1"), quiet),
		"Wrap": pooldriver.Wrap(connectorOf(t, account), quiet, func(c *pooldriver.Config) { c.MaxConns = 1 }),
	} {
		t.Run(name, func(t *testing.T) {
			db := sql.OpenDB(connector)
			t.Cleanup(func() { _ = db.Close() })
			pid := func() (pid int) {
				require.NoError(t, db.QueryRow("SELECT pg_backend_pid()").Scan(&pid))
				return pid
			}
			for _, tc := range []struct {
				code string
				same bool
			}{{"53200", false}, {"22012", true}} {
				before := pid()
				_, err := db.Exec("SELECT pg_catalog.set_config('app.x', (1/('1'::int - 1))::text, true)")
				require.Error(t, err) // an error by itself ends nothing
				require.Equal(t, before, pid())
				// lower counts as harmless: nothing else ends its session.
				_, err = db.Exec("CREATE OR REPLACE FUNCTION lower(int) RETURNS int LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'no' USING ERRCODE = '" + tc.code + "'; END$$")
				require.NoError(t, err)
				before = pid()
				_, err = db.Exec("SELECT lower(1)")
				require.Error(t, err)
				require.Equal(t, tc.same, before == pid(), tc.code)
			}
		})
	}
}
