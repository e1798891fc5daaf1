package mysql

import "github.com/pooldriver/pooldriver/dialects/internal/sqltext"

// words are what the words of MySQL and MariaDB mean. A function that is missing is suspect.
var words = []sqltext.Words{
	{Code: sqltext.Naming, Names: "into insert replace ignore delayed low_priority as table with recursive references"},
	{Code: sqltext.Modifier, Names: "or replace unique fulltext spatial aggregate online offline"},
	{Code: sqltext.Temporary, Names: "temporary"},
	{Code: sqltext.Table, Names: "table"},
	{Code: sqltext.Routine, Names: "function procedure trigger event package definer"},
	{Code: sqltext.Option, Names: "select delete with values table do show kill purge insert replace update"},

	// The words after which an expression may begin: the words that MySQL or MariaDB reserves, and other words that
	// the grammars have there.
	{Code: sqltext.Lead, Names: `
		accessible alter asc asensitive at before bigint blob both call cascade change char character concurrent
		condition continue convert create cross cube cume_dist current_date current_role current_time current_timestamp
		current_user cursor database databases day_hour day_microsecond day_minute day_second dec decimal declare
		delayed delete delete_domain_id dense_rank desc describe deterministic do_domain_ids double drop dual each
		elseif empty enclosed ends escape escaped every exit external false fetch first first_value float float4 float8
		function generated get grant group grouping groups high_priority hour_microsecond hour_minute hour_second if
		ignore_domain_ids immediate infile inner inout insensitive insert int int1 int2 int3 int4 int8 integer
		io_after_gtids io_before_gtids iterate json_table kill lag last_value lead leading leave left library linear
		load localtime localtimestamp lock long longblob longtext loop low_priority master_demote_to_replica
		master_demote_to_slave maxvalue mediumblob mediumint mediumtext middleint minus minute_microsecond minute_second
		mod modifies natural next no_write_to_binlog nth_value ntile null numeric of optimize optimizer_costs option
		optionally order out outer outfile page_checksum parse_vcol_expr percent_rank portion precision procedure purge
		qualify quick rank read read_write reads real recursive ref_system_id release rename repeat replace require
		resignal restrict return revoke right row_number schema schemas second_microsecond sensitive show signal
		smallint specific sql sql_after_gtids sql_before_gtids sql_big_result sql_buffer_result sql_cache
		sql_calc_found_rows sql_no_cache sql_small_result sqlexception sqlstate sqlwarning ssl starting starts
		stats_auto_recalc stats_persistent stats_sample_pages stored system table tablesample terminated timestamp
		tinyblob tinyint tinytext trailing transaction trigger true undo unlock unsigned until usage utc_date utc_time
		utc_timestamp varbinary varchar varcharacter varying vector virtual while write year_month zerofill`},

	// Before a parenthesis.
	{Code: sqltext.Lead | sqltext.Keyword, Names: `
		in values value and or xor not as exists any some all select from where having by limit offset returning union
		except intersect distinct distinctrow case when then else end like rlike regexp between is join using
		straight_join over set into on with lateral check default unique key keys primary references explain analyze
		rows range partition row collate match index interval div sounds binary add column constraint lines separator
		fulltext spatial foreign for force ignore use to window do update`},
	{Code: sqltext.Keyword, Names: "include cast"},
	{Code: sqltext.Dependent, Names: "last_insert_id"},
	{Code: sqltext.Changing, Names: `
		get_lock release_lock release_all_locks service_get_read_locks service_get_write_locks service_release_locks
		version_tokens_lock_shared version_tokens_lock_exclusive version_tokens_unlock`},

	// Types with lengths; aggregates and window functions; conditions, numbers, strings, dates, JSON, encryption,
	// identifiers, networks; the session and the server, read only, or changed for all; sequences (see the decision in
	// mysql.go); geometry and vectors.
	{Code: sqltext.Harmless, Names: `
		varchar char nchar nvarchar character varbinary decimal numeric dec fixed signed unsigned int integer bigint
		smallint tinyint mediumint float double real bit year time date datetime timestamp text tinytext mediumtext
		longtext blob tinyblob mediumblob longblob enum json bool boolean vector geometry point linestring polygon
		multipoint multilinestring multipolygon geometrycollection geomcollection inet4 inet6 uuid serial any_value avg
		bit_and bit_or bit_xor count group_concat json_arrayagg json_objectagg max min std stddev stddev_pop stddev_samp
		sum var_pop var_samp variance cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank
		rank row_number grouping median percentile_cont percentile_disc st_collect if ifnull nullif coalesce greatest
		least isnull nvl nvl2 decode decode_oracle abs acos asin atan atan2 ceil ceiling conv cos cot crc32 crc32c
		degrees exp floor ln log log10 log2 mod oct pi pow power radians rand round sign sin sqrt tan truncate
		natural_sort_key ascii bin bit_count bit_length char_length character_length chr concat concat_ws elt export_set
		field find_in_set format format_bytes format_pico_time from_base64 hex insert instr lcase left length lengthb
		load_file locate lower lpad ltrim make_set mid octet_length ord position quote regexp_instr regexp_like
		regexp_replace regexp_substr repeat replace reverse right rpad rtrim sformat soundex space strcmp substr
		substring substring_index to_base64 to_char to_number trim trim_oracle ucase unhex upper weight_string charset
		coercibility collation convert extractvalue updatexml kdf adddate addtime add_months convert_tz curdate
		current_date current_time current_timestamp curtime date_add date_format date_sub datediff day dayname
		dayofmonth dayofweek dayofyear extract from_days from_unixtime get_format hour last_day localtime localtimestamp
		makedate maketime microsecond minute month monthname months_between now period_add period_diff quarter second
		sec_to_time str_to_date subdate subtime sysdate timediff timestampadd timestampdiff time_format time_to_sec
		to_date to_days to_seconds trunc unix_timestamp utc_date utc_time utc_timestamp week weekday weekofyear yearweek
		json_array json_array_append json_array_insert json_array_intersect json_compact json_contains
		json_contains_path json_depth json_detailed json_equals json_exists json_extract json_insert json_key_value
		json_keys json_length json_loose json_merge json_merge_patch json_merge_preserve json_normalize json_object
		json_object_filter_keys json_object_to_array json_overlaps json_pretty json_query json_quote json_remove
		json_replace json_schema_valid json_schema_validation_report json_search json_set json_table json_storage_free
		json_storage_size json_type json_unquote json_valid json_value column_add column_check column_create
		column_delete column_exists column_get column_json column_list aes_decrypt aes_encrypt compress uncompress
		uncompressed_length md5 sha sha1 sha2 random_bytes password old_password encode des_encrypt des_decrypt encrypt
		statement_digest statement_digest_text validate_password_strength bin_to_uuid uuid_to_bin uuid_short sys_guid
		uuid_v4 uuid_v7 is_uuid inet_aton inet_ntoa inet6_aton inet6_ntoa is_ipv4 is_ipv4_compat is_ipv4_mapped is_ipv6
		benchmark sleep current_role current_user database schema session_user system_user user version name_const
		master_pos_wait master_gtid_wait source_pos_wait wait_for_executed_gtid_set wait_until_sql_thread_after_gtids
		gtid_subset gtid_subtract binlog_gtid_pos ps_thread_id icu_version roles_graphml rownum mbrcontains mbrcoveredby
		mbrcovers mbrdisjoint mbrequal mbrequals mbrintersects mbroverlaps mbrtouches mbrwithin st_area st_asbinary
		st_asgeojson st_astext st_aswkb st_aswkt st_boundary st_buffer st_buffer_strategy st_centroid st_contains
		st_convexhull st_crosses st_difference st_dimension st_disjoint st_distance st_distance_sphere st_endpoint
		st_envelope st_equals st_exteriorring st_frechetdistance st_geohash st_geomcollfromtext st_geomcollfromwkb
		st_geometryfromtext st_geometryfromwkb st_geometryn st_geometrytype st_geomfromgeojson st_geomfromtext
		st_geomfromwkb st_hausdorffdistance st_interiorringn st_intersection st_intersects st_isclosed st_isempty
		st_isring st_issimple st_isvalid st_latfromgeohash st_latitude st_length st_linefromtext st_linefromwkb
		st_lineinterpolatepoint st_lineinterpolatepoints st_linestringfromtext st_longfromgeohash st_longitude
		st_makeenvelope st_mlinefromtext st_mpointfromtext st_mpolyfromtext st_numgeometries st_numinteriorrings
		st_numpoints st_overlaps st_perimeter st_pointatdistance st_pointfromgeohash st_pointfromtext st_pointfromwkb
		st_pointn st_pointonsurface st_polyfromtext st_polyfromwkb st_polygonfromtext st_relate st_simplify st_srid
		st_startpoint st_swapxy st_symdifference st_touches st_transform st_union st_validate st_within st_x st_y
		geomfromtext pointfromtext astext distance_sphere vec_distance vec_distance_cosine vec_distance_euclidean
		vec_fromtext vec_totext string_to_vector vector_to_string vector_dim distance`},

	{Code: sqltext.First, Names: "select values table with show explain describe desc"},
	{Code: sqltext.Locks, Names: "share"},
	// INSERT and REPLACE are missing: both are functions, too, and as statements cannot follow WITH.
	{Code: sqltext.Harmless | sqltext.Acts, Names: `
		nextval setval lastval found_rows row_count connection_id ps_current_thread_id is_free_lock is_used_lock`},
	{Code: sqltext.Acts, Names: "update delete into sql_calc_found_rows next previous currval last_insert_id identity insert_id warning_count error_count pseudo_thread_id"}, // of this server
	{Code: sqltext.AsksEmpty | sqltext.AsksSystem, Names: "last_insert_id"},
	{Code: sqltext.AsksEmpty, Names: "found_rows row_count"},
	{Code: sqltext.AsksCalled, Names: "lastval"},
	{Code: sqltext.AsksSystem, Names: "identity insert_id warning_count error_count"},
	{Code: sqltext.AsksShown, Names: "warnings errors diagnostics"},
	{Code: sqltext.AsksValue, Names: "previous"},
	{Code: sqltext.AppLocks, Names: "get_lock service_get_read_locks service_get_write_locks"},
}
