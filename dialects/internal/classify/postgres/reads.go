package postgres

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/classify"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// reads: Not has the harmless functions that do something, although they do not change the session,
// and those that tell which session it is. A test checks that the server calls the others IMMUTABLE
// or STABLE.
var reads = classify.Reads{
	First: sqltext.Words("select values table with show explain"),
	Not: sqltext.NewNames(
		sqltext.Group{Code: classify.NotAnywhere, Names: "insert update delete merge into nextval setval currval lastval"},
		sqltext.Group{Code: classify.NotLocking, Names: "share"},
		// EXPLAIN ANALYZE executes them.
		sqltext.Group{Code: classify.NotAnywhere, Names: "create refresh"},
		// Which session it is, and which transaction.
		sqltext.Group{Code: classify.NotAnywhere, Names: `
			pg_backend_pid inet_client_addr inet_client_port inet_server_addr inet_server_port pg_my_temp_schema
			pg_listening_channels pg_prepared_statement pg_cursor pg_current_xact_id pg_current_xact_id_if_assigned
			pg_export_snapshot txid_current txid_current_if_assigned pg_last_committed_xact pg_trigger_depth`},
		// Their changes outlive the statement.
		sqltext.Group{Code: classify.NotAnywhere, Names: `
			pg_notify pg_cancel_backend pg_terminate_backend pg_reload_conf pg_rotate_logfile
			pg_log_backend_memory_contexts pg_create_restore_point pg_switch_wal pg_promote pg_wal_replay_pause
			pg_wal_replay_resume pg_log_standby_snapshot pg_logical_emit_message pg_stat_reset pg_stat_reset_shared
			pg_stat_clear_snapshot pg_stat_reset_single_table_counters pg_stat_statements_reset pg_nextoid
			brin_summarize_new_values brin_summarize_range gin_clean_pending_list pg_prewarm
			pg_advisory_xact_lock pg_advisory_xact_lock_shared pg_try_advisory_xact_lock pg_try_advisory_xact_lock_shared
			lo_close lo_creat lo_create lo_export lo_from_bytea lo_import lo_lseek lo_lseek64 lo_open lo_put
			lo_tell lo_tell64 lo_truncate lo_truncate64 lo_unlink loread lowrite`},
	),
	Asks: sqltext.NewNames(sqltext.Group{Code: classify.AskCall, Names: "lastval currval"}),
}

// Texts answers for the texts of PostgreSQL, as the functions of package classify that have the same
// names. A dialect embeds it.
type Texts struct{}

// Effect is Classify.
func (Texts) Effect(query string) dialects.Effect { return Classify(query) }

func (Texts) Outline(query string) string { return language.Outline(query) }
func (Texts) OnlyReads(query string) bool { return language.OnlyReads(query, Classify(query)) }
func (Texts) AsksBack(query string) bool  { return language.AsksBack(query) }
