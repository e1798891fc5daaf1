package integration

import (
	"context"
	"database/sql"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// TestPostgresALocalSearchPathLeavesNoTable: a search path that ends with its transaction may be
// that of the temporary tables, and a table that is made meanwhile stays for the session.
func TestPostgresALocalSearchPathLeavesNoTable(t *testing.T) {
	t.Parallel()
	s := serverStage(t, testbed.Shared(t, testbed.Postgres).NewAccount(t))
	for _, path := range []string{
		"SET LOCAL search_path = pg_temp", "SET LOCAL search_path = 'pg_'\n'temp'", "SELECT set_config('search_path', 'pg_temp', true)",
		"SELECT set_config('search_path', 'PG_TEMP, public', true)", "SELECT set_config('search_path', 'pg_' || 'temp', true)",
		"SELECT set_config('search_path', E'pg\\x5ftemp', true)",
	} {
		for name, run := range map[string]func(p stagePool) error{
			"one text": func(p stagePool) error {
				_, err := p.ExecContext(t.Context(), path+"; CREATE TABLE left_behind (a int)")
				return err
			},
			"a transaction": func(p stagePool) error {
				return pooldriver.InTx(t.Context(), p.DB, nil, func(ctx context.Context, tx *sql.Tx) error {
					_, err := tx.ExecContext(ctx, path)
					if err == nil {
						_, err = tx.ExecContext(ctx, "CREATE TABLE left_behind (a int)")
					}
					return err
				})
			},
		} {
			t.Run(name+"/"+path, func(t *testing.T) {
				p := s.open(t, 1)
				require.NoError(t, run(p))
				p.requireNextBorrowersSeeNothing(t)
				var stored int
				require.NoError(t, s.witness.QueryRow("SELECT count(*) FROM pg_class WHERE relname = 'left_behind' AND relpersistence <> 't'").Scan(&stored))
				require.Zero(t, stored, "it was a temporary table")
				require.NoError(t, p.Close())
			})
		}
	}
}
