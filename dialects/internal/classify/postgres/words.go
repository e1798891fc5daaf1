package postgres

import "github.com/pooldriver/pooldriver/dialects/internal/sqltext"

// words are what the words of PostgreSQL mean. A function that is missing is suspect. Missing built-in functions
// execute a text given to them: query_to_xml, ts_stat, ts_rewrite and others.
var words = []sqltext.Words{
	{Code: sqltext.Watched, Names: "into execute update uescape drop"},
	{Code: sqltext.Naming, Names: "into as table copy references with recursive tablesample"},
	{Code: sqltext.Modifier, Names: "or replace unlogged unique recursive global local"},
	{Code: sqltext.Temporary, Names: "temp temporary"},
	{Code: sqltext.Table, Names: "table materialized index"},
	{Code: sqltext.Routine, Names: "function procedure"},
	{Code: sqltext.Option, Names: "analyze analyse verbose"},

	// The words after which an expression may begin: the reserved words, the words that need AS to be a column's
	// name, and other words that the grammar has there.
	{Code: sqltext.Lead, Names: `
		analyse asymmetric both create deferrable false fetch foreign grant initially leading null order placing primary
		trailing true variadic window authorization binary collation concurrently cross current_schema freeze full ilike
		inner is isnull join left like natural notnull outer overlaps right similar tablesample verbose inout interval
		merge_action national nchar none out precision setof by zone local escape rows range groups value key passing
		ref document content version path first next return call execute`},

	// Before a parenthesis. Reserved, or never the name of a function (pg_get_keywords: catcode R or C).
	{Code: sqltext.Lead | sqltext.Keyword, Names: `
		in values and or not as exists any some all select from where having limit offset returning union except
		intersect distinct case when then else end to between using lateral into check default only unique references
		symmetric array row cast collate group table column constraint analyze for desc asc do on with`},
	// The grammar has them as keywords, so without quotes they are no names (catcode C or R). overlay and substring
	// are keywords and functions.
	{Code: sqltext.Lead | sqltext.Syntax, Names: `
		bigint bit boolean char character coalesce current_catalog current_date current_role current_time
		current_timestamp current_user dec decimal extract float greatest grouping int integer json json_array
		json_arrayagg json_exists json_object json_objectagg json_query json_scalar json_serialize json_table json_value
		least localtime localtimestamp normalize nullif numeric overlay position real session_user smallint substring
		system_user time timestamp treat trim user varchar xmlattributes xmlconcat xmlelement xmlexists xmlforest
		xmlnamespaces xmlparse xmlpi xmlroot xmlserialize xmltable`},
	// Words that a program may use as the name of a function.
	{Code: sqltext.Clause, Names: "by key sets cube rollup zone join varying copy insert conflict operator"},

	{Code: sqltext.Dependent, Names: "set_config"},
	{Code: sqltext.Changing, Names: `
		pg_advisory_lock pg_advisory_lock_shared pg_try_advisory_lock pg_try_advisory_lock_shared pg_advisory_unlock
		pg_advisory_unlock_shared pg_advisory_unlock_all pg_replication_origin_session_reset
		pg_replication_origin_xact_setup pg_replication_origin_xact_reset pg_stop_backup pg_backup_stop
		pg_stat_force_next_flush postgres_fdw_disconnect postgres_fdw_disconnect_all set_limit set_curcfg
		dblink dblink_exec dblink_close dblink_disconnect dblink_fetch dblink_send_query dblink_get_result`},
	{Code: sqltext.Lasting, Names: `
		setseed pg_start_backup pg_backup_start pg_replication_origin_session_setup dblink_connect dblink_connect_u
		dblink_open pg_create_physical_replication_slot pg_create_logical_replication_slot
		pg_copy_physical_replication_slot pg_copy_logical_replication_slot`},
	{Code: sqltext.Bare, Names: "current_schema mode version"},

	// Types with modifiers; aggregates and window functions; numbers, strings, times, enums, geometry, networks, text
	// search, UUID, XML, JSON; sequences (see the decision in postgres.go); arrays, ranges, sets; the session and
	// the catalogue, read only; the server, whose changes are not in the session; large objects, whose descriptors
	// end with the transaction; extensions that are everywhere and keep nothing (pgcrypto, uuid-ossp, pg_trgm,
	// unaccent, fuzzystrmatch, hstore, ltree, pgvector, PostGIS); River's function, which each of its inserts calls.
	{Code: sqltext.Harmless, Names: `
		bpchar varbit timetz timestamptz int2 int4 int8 float4 float8 text name bool date jsonb uuid bytea xml oid
		regclass regproc regtype regrole regnamespace inet cidr macaddr macaddr8 money point line lseg box path polygon
		circle tsvector tsquery int4range int8range numrange tsrange tstzrange daterange int4multirange int8multirange
		nummultirange tsmultirange tstzmultirange datemultirange citext hstore vector halfvec sparsevec geometry
		geography ltree any_value array_agg avg bit_and bit_or bit_xor bool_and bool_or every count json_agg
		json_agg_strict json_object_agg json_object_agg_strict json_object_agg_unique json_object_agg_unique_strict
		jsonb_agg jsonb_agg_strict jsonb_object_agg jsonb_object_agg_strict jsonb_object_agg_unique
		jsonb_object_agg_unique_strict max min range_agg range_intersect_agg string_agg sum xmlagg corr covar_pop
		covar_samp regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope regr_sxx regr_sxy regr_syy stddev
		stddev_pop stddev_samp variance var_pop var_samp percentile_cont percentile_disc rank dense_rank percent_rank
		cume_dist row_number ntile lag lead first_value last_value nth_value num_nonnulls num_nulls pg_typeof
		pg_input_is_valid pg_input_error_info abs cbrt ceil ceiling degrees div erf erfc exp factorial floor gcd lcm ln
		log log10 min_scale mod pi power pow radians round scale sign sqrt trim_scale trunc width_bucket random
		random_normal acos acosd asin asind atan atand atan2 atan2d cos cosd cot cotd sin sind tan tand sinh cosh tanh
		asinh acosh atanh gamma lgamma crc32 crc32c ascii btrim casefold char_length character_length bit_length
		octet_length chr concat concat_ws convert convert_from convert_to decode encode format initcap left length lower
		lpad ltrim md5 parse_ident pg_client_encoding quote_ident quote_literal quote_nullable regexp_count regexp_instr
		regexp_like regexp_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table regexp_substr
		repeat replace reverse right rpad rtrim split_part starts_with string_to_array string_to_table strpos substr
		to_ascii to_bin to_hex to_oct translate unistr unicode_assigned upper bit_count get_bit get_byte set_bit
		set_byte sha224 sha256 sha384 sha512 to_char to_date to_number to_timestamp like_escape similar_escape
		similar_to_escape icu_unicode_version unicode_version age clock_timestamp date_add date_bin date_part
		date_subtract date_trunc isfinite justify_days justify_hours justify_interval make_date make_interval make_time
		make_timestamp make_timestamptz now statement_timestamp timeofday timezone transaction_timestamp pg_sleep
		pg_sleep_for pg_sleep_until enum_first enum_last enum_range area center diagonal diameter height isclosed isopen
		isvertical ishorizontal npoints pclose popen radius slope width bound_box abbrev broadcast family host hostmask
		inet_merge inet_same_family masklen netmask network set_masklen macaddr8_set7bit array_to_tsvector
		get_current_ts_config numnode plainto_tsquery phraseto_tsquery websearch_to_tsquery querytree setweight strip
		to_tsquery to_tsvector json_to_tsvector jsonb_to_tsvector ts_delete ts_filter ts_headline ts_rank ts_rank_cd
		tsquery_phrase tsvector_to_array ts_debug ts_lexize ts_parse ts_token_type gen_random_uuid uuidv4 uuidv7
		uuid_extract_timestamp uuid_extract_version xmltext xmlcomment xml_is_well_formed xml_is_well_formed_document
		xml_is_well_formed_content xpath xpath_exists to_json to_jsonb array_to_json row_to_json json_build_array
		jsonb_build_array json_build_object jsonb_build_object jsonb_object json_array_elements jsonb_array_elements
		json_array_elements_text jsonb_array_elements_text json_array_length jsonb_array_length json_each jsonb_each
		json_each_text jsonb_each_text json_extract_path jsonb_extract_path json_extract_path_text
		jsonb_extract_path_text json_object_keys jsonb_object_keys json_populate_record jsonb_populate_record
		jsonb_populate_record_valid json_populate_recordset jsonb_populate_recordset json_to_record jsonb_to_record
		json_to_recordset jsonb_to_recordset jsonb_set jsonb_set_lax jsonb_insert json_strip_nulls jsonb_strip_nulls
		jsonb_path_exists jsonb_path_match jsonb_path_query jsonb_path_query_array jsonb_path_query_first
		jsonb_path_exists_tz jsonb_path_match_tz jsonb_path_query_tz jsonb_path_query_array_tz jsonb_path_query_first_tz
		jsonb_pretty json_typeof jsonb_typeof jsonb_concat jsonb_delete jsonb_delete_path jsonb_exists jsonb_exists_any
		jsonb_exists_all jsonb_contains jsonb_contained array_append array_cat array_dims array_fill array_length
		array_lower array_ndims array_position array_positions array_prepend array_remove array_replace array_reverse
		array_sample array_shuffle array_sort array_to_string array_upper cardinality trim_array unnest isempty
		lower_inc upper_inc lower_inf upper_inf range_merge multirange generate_series generate_subscripts
		current_database current_query current_schemas pg_blocking_pids pg_conf_load_time pg_collation_for
		pg_relation_is_publishable pg_relation_is_updatable pg_column_is_updatable getdatabaseencoding oidvectortypes
		pg_replication_origin_oid pg_current_logfile pg_get_loaded_modules pg_is_other_temp_schema pg_jit_available
		pg_notification_queue_usage pg_postmaster_start_time pg_safe_snapshot_blocking_pids has_any_column_privilege
		has_column_privilege has_database_privilege has_foreign_data_wrapper_privilege has_function_privilege
		has_language_privilege has_largeobject_privilege has_parameter_privilege has_schema_privilege
		has_sequence_privilege has_server_privilege has_table_privilege has_tablespace_privilege has_type_privilege
		pg_has_role row_security_active acldefault aclexplode makeaclitem pg_collation_is_visible
		pg_conversion_is_visible pg_function_is_visible pg_opclass_is_visible pg_operator_is_visible
		pg_opfamily_is_visible pg_statistics_obj_is_visible pg_table_is_visible pg_ts_config_is_visible
		pg_ts_dict_is_visible pg_ts_parser_is_visible pg_ts_template_is_visible pg_type_is_visible format_type
		pg_basetype pg_char_to_encoding pg_encoding_to_char pg_get_catalog_foreign_keys pg_get_constraintdef pg_get_expr
		pg_get_functiondef pg_get_function_arguments pg_get_function_identity_arguments pg_get_function_arg_default
		pg_get_function_sqlbody pg_get_function_result pg_get_indexdef pg_get_keywords pg_get_partkeydef
		pg_get_partition_constraintdef pg_get_ruledef pg_get_serial_sequence pg_get_statisticsobjdef pg_get_triggerdef
		pg_get_userbyid pg_get_viewdef pg_get_object_address pg_identify_object pg_identify_object_as_address
		pg_describe_object pg_index_column_has_property pg_index_has_property pg_indexam_has_property
		pg_options_to_table pg_settings_get_flags pg_tablespace_databases pg_tablespace_location pg_get_acl to_regclass
		to_regcollation to_regnamespace to_regoper to_regoperator to_regproc to_regprocedure to_regrole to_regtype
		to_regtypemod col_description obj_description shobj_description mxid_age pg_current_snapshot pg_snapshot_xip
		pg_snapshot_xmax pg_snapshot_xmin pg_visible_in_snapshot pg_xact_status txid_current_snapshot txid_snapshot_xip
		txid_snapshot_xmax txid_snapshot_xmin txid_status txid_visible_in_snapshot pg_xact_commit_timestamp
		pg_xact_commit_timestamp_origin pg_control_checkpoint pg_control_system pg_control_init pg_control_recovery
		current_setting pg_show_all_settings pg_show_all_file_settings pg_get_wait_events pg_available_extensions
		pg_available_extension_versions pg_extension_update_paths pg_timezone_names pg_timezone_abbrevs pg_lock_status
		pg_prepared_xact pg_stat_get_activity pg_stat_statements pg_stat_get_wal_senders pg_stat_get_progress_info
		pg_sequence_parameters pg_sequence_last_value pg_get_sequence_data pg_hba_file_rules pg_partition_tree
		pg_partition_ancestors pg_partition_root pg_column_size pg_column_compression pg_column_toast_chunk_id
		pg_database_size pg_indexes_size pg_relation_size pg_size_bytes pg_size_pretty pg_table_size pg_tablespace_size
		pg_total_relation_size pg_relation_filenode pg_relation_filepath pg_filenode_relation
		pg_collation_actual_version pg_database_collation_actual_version pg_current_wal_flush_lsn
		pg_current_wal_insert_lsn pg_current_wal_lsn pg_walfile_name pg_walfile_name_offset pg_split_walfile_name
		pg_wal_lsn_diff pg_is_in_recovery pg_last_wal_receive_lsn pg_last_wal_replay_lsn pg_last_xact_replay_timestamp
		pg_get_wal_resource_managers pg_is_wal_replay_paused pg_get_wal_replay_pause_state pg_ls_dir pg_ls_logdir
		pg_ls_waldir pg_read_file pg_read_binary_file pg_stat_file pg_stat_get_snapshot_timestamp lo_get crypt gen_salt
		digest hmac gen_random_bytes encrypt decrypt encrypt_iv decrypt_iv pgp_sym_encrypt pgp_sym_decrypt
		pgp_sym_encrypt_bytea pgp_sym_decrypt_bytea pgp_pub_encrypt pgp_pub_decrypt armor dearmor uuid_generate_v1
		uuid_generate_v1mc uuid_generate_v3 uuid_generate_v4 uuid_generate_v5 uuid_nil uuid_ns_dns uuid_ns_url
		similarity word_similarity strict_word_similarity show_trgm show_limit unaccent levenshtein
		levenshtein_less_equal metaphone dmetaphone dmetaphone_alt soundex difference daitch_mokotoff akeys avals skeys
		svals slice exist defined hstore_to_json hstore_to_jsonb subpath subltree nlevel lca ltree2text text2ltree
		cosine_distance inner_product l1_distance l2_distance hamming_distance jaccard_distance l2_normalize vector_dims
		vector_norm subvector binary_quantize river_job_state_in_bitmask st_area st_asbinary st_asewkb st_asewkt
		st_asgeojson st_asgml st_askml st_asmvt st_asmvtgeom st_assvg st_astext st_aswkb st_astwkb st_azimuth
		st_boundary st_buffer st_centroid st_clusterdbscan st_clusterkmeans st_collect st_contains st_containsproperly
		st_convexhull st_coveredby st_covers st_crosses st_difference st_dimension st_disjoint st_distance
		st_distancesphere st_distancespheroid st_dump st_dumppoints st_dwithin st_endpoint st_envelope st_equals
		st_expand st_extent st_flipcoordinates st_force2d st_force3d st_geogfromtext st_geogfromwkb st_geographyfromtext
		st_geohash st_geometryfromtext st_geometryn st_geometrytype st_geomfromewkb st_geomfromewkt st_geomfromgeojson
		st_geomfromtext st_geomfromwkb st_hexagongrid st_intersection st_intersects st_isempty st_issimple st_isvalid
		st_length st_linefromtext st_lineinterpolatepoint st_linelocatepoint st_linemerge st_linesubstring st_m
		st_makeenvelope st_makeline st_makepoint st_makepolygon st_makevalid st_maxdistance st_multi st_npoints
		st_numgeometries st_numpoints st_overlaps st_perimeter st_point st_pointfromtext st_pointn st_pointonsurface
		st_polygon st_polygonfromtext st_project st_relate st_reverse st_rotate st_scale st_setsrid st_simplify
		st_simplifypreservetopology st_snap st_snaptogrid st_split st_squaregrid st_srid st_startpoint st_subdivide
		st_symdifference st_tileenvelope st_touches st_transform st_translate st_union st_unaryunion st_voronoipolygons
		st_within st_x st_xmax st_xmin st_y st_ymax st_ymin st_z postgis_full_version postgis_version`},

	{Code: sqltext.First, Names: "select values table with show explain"},
	{Code: sqltext.Locks, Names: "share"},
	// EXPLAIN ANALYZE executes create and refresh. The functions do something, although they do not change the
	// session, or tell which session or transaction it is. A test checks that the server calls the others IMMUTABLE or
	// STABLE.
	{Code: sqltext.Harmless | sqltext.Acts, Names: `
		nextval setval currval lastval pg_backend_pid inet_client_addr inet_client_port inet_server_addr
		inet_server_port pg_my_temp_schema pg_listening_channels pg_prepared_statement pg_cursor pg_current_xact_id
		pg_current_xact_id_if_assigned pg_export_snapshot txid_current txid_current_if_assigned pg_last_committed_xact
		pg_trigger_depth pg_notify pg_cancel_backend pg_terminate_backend pg_reload_conf pg_rotate_logfile
		pg_log_backend_memory_contexts pg_create_restore_point pg_switch_wal pg_promote pg_wal_replay_pause
		pg_wal_replay_resume pg_log_standby_snapshot pg_logical_emit_message pg_stat_reset pg_stat_reset_shared
		pg_stat_clear_snapshot pg_stat_reset_single_table_counters pg_stat_statements_reset pg_nextoid
		brin_summarize_new_values brin_summarize_range gin_clean_pending_list pg_prewarm pg_advisory_xact_lock
		pg_advisory_xact_lock_shared pg_try_advisory_xact_lock pg_try_advisory_xact_lock_shared lo_close lo_creat
		lo_create lo_export lo_from_bytea lo_import lo_lseek lo_lseek64 lo_open lo_put lo_tell lo_tell64 lo_truncate
		lo_truncate64 lo_unlink loread lowrite`},
	{Code: sqltext.Acts, Names: "insert update delete merge into create refresh"},
	{Code: sqltext.AsksCalled, Names: "lastval currval"},
	{Code: sqltext.AppLocks, Names: `
		pg_advisory_lock pg_advisory_lock_shared pg_try_advisory_lock pg_try_advisory_lock_shared pg_advisory_xact_lock
		pg_advisory_xact_lock_shared pg_try_advisory_xact_lock pg_try_advisory_xact_lock_shared`},
}
