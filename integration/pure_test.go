package integration

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// volatileReads are functions that PostgreSQL calls volatile, and whose calls may be made by
// any session all the same: they only read, or their values are random or a time.
var volatileReads = strings.Fields(`
	random random_normal array_sample array_shuffle gen_random_uuid uuidv4 uuidv7 bernoulli system
	clock_timestamp timeofday pg_sleep pg_sleep_for pg_sleep_until
	current_query txid_status pg_xact_status pg_xact_commit_timestamp pg_xact_commit_timestamp_origin
	pg_blocking_pids pg_safe_snapshot_blocking_pids pg_lock_status pg_get_wait_events pg_prepared_xact
	pg_relation_size pg_indexes_size pg_table_size pg_total_relation_size pg_database_size pg_tablespace_size
	pg_partition_tree pg_partition_ancestors pg_collation_actual_version pg_database_collation_actual_version
	pg_sequence_last_value pg_get_sequence_data pg_get_loaded_modules lo_get pg_read_file pg_read_binary_file pg_stat_file pg_ls_dir pg_ls_logdir pg_ls_waldir
	pg_current_logfile pg_show_all_file_settings pg_hba_file_rules pg_jit_available pg_notification_queue_usage
	pg_control_init pg_control_system pg_control_recovery pg_control_checkpoint pg_get_wal_resource_managers
	pg_is_in_recovery pg_is_wal_replay_paused pg_get_wal_replay_pause_state pg_last_xact_replay_timestamp
	pg_last_wal_replay_lsn pg_last_wal_receive_lsn pg_current_wal_lsn pg_current_wal_insert_lsn pg_current_wal_flush_lsn`)

// TestPostgresNoVolatileFunctionIsTakenForARead goes by the server's catalogue.
func TestPostgresNoVolatileFunctionIsTakenForARead(t *testing.T) {
	t.Parallel()
	witness := testbed.Shared(t, testbed.Postgres).NewAccount(t).Witness(t)
	dialect, err := dialects.Find("postgres://h/d")
	require.NoError(t, err)
	rows, err := witness.Query("SELECT DISTINCT proname FROM pg_proc WHERE provolatile = 'v' AND prokind = 'f' AND pronamespace = 'pg_catalog'::regnamespace")
	require.NoError(t, err)
	defer rows.Close()
	volatile, taken := 0, []string{}
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		volatile++
		if dialect.OnlyReads(fmt.Sprintf("SELECT %s(a) FROM t", name)) && !slices.Contains(volatileReads, name) {
			taken = append(taken, name)
		}
	}
	require.NoError(t, rows.Err())
	require.Greater(t, volatile, 100)
	require.Empty(t, taken)
}

// What may be in a pipeline with queries of others, and may be executed twice, has no effect.
func TestPostgresWhatDoesSomethingIsTakenForNoRead(t *testing.T) {
	t.Parallel()
	dialect, err := dialects.Find("postgres://h/d")
	require.NoError(t, err)
	reads := func(text string) bool { return dialect.Effect(text) == dialects.Clean && dialect.OnlyReads(text) }
	require.True(t, reads("SELECT a FROM t WHERE id = $1"))
	for _, text := range []string{
		"SELECT nextval('s')", "SELECT setval('s', 1)", "SELECT pg_advisory_lock(1)", "SELECT pg_try_advisory_lock(1)", "SELECT pg_advisory_xact_lock(1)",
		"SELECT set_config('a.b', 'c', false)", "SELECT * FROM dblink('', 'DELETE FROM t') AS d(a int)",
		"SELECT dblink_exec('DELETE FROM t')", "SELECT mine(1)", "SELECT a FROM mine()", "SELECT pg_catalog.nextval('s')", `SELECT "nextval"('s')`,
		"SELECT a FROM t FOR UPDATE", "SELECT a FROM t FOR SHARE", "SELECT a FROM t FOR KEY SHARE", "SELECT a FROM t FOR NO KEY UPDATE SKIP LOCKED",
		"SELECT a INTO b FROM t", "WITH d AS (DELETE FROM t RETURNING a) SELECT a FROM d", "SELECT 1; DELETE FROM t", "SELECT lo_create(0)",
		"SELECT pg_notify('a', 'b')", "SELECT setseed(0.5)", "SELECT pg_terminate_backend(1)", "SELECT query_to_xml('DELETE FROM t', true, true, '')",
		"EXPLAIN ANALYZE DELETE FROM t", "VALUES (nextval('s'))", "TABLE t; SET a.b = 1", "INSERT INTO t VALUES (1) RETURNING a", "SELECT lastval()", "SELECT pg_backend_pid()",
	} {
		require.False(t, reads(text), text)
	}
}
