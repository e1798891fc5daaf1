package mysql

import "github.com/pooldriver/pooldriver/dialects/internal/sqltext"

// The kinds of a name before a parenthesis.
const (
	funcHarmless     uint8 = iota + 1 // a function or type that keeps no state in the session
	funcKeyword                       // no name at all: IN (, VALUES (
	funcStateful                      // changes the session
	funcLastInsertID                  // with an argument it sets its own next result
)

// functions are the names known to the classifier. A function that is missing is suspect.
var functions = sqltext.NewNames(
	sqltext.Group{Code: funcLastInsertID, Names: "last_insert_id"},

	sqltext.Group{Code: funcStateful, Names: `
		get_lock release_lock release_all_locks service_get_read_locks service_get_write_locks service_release_locks
		version_tokens_lock_shared version_tokens_lock_exclusive version_tokens_unlock`},

	sqltext.Group{Code: funcKeyword, Names: `
		in values value and or xor not as exists any some all select from where having by limit offset returning union
		except intersect distinct distinctrow case when then else end like rlike regexp between is join using
		straight_join over set into on with lateral check default unique key keys primary include references explain
		analyze rows range partition row cast collate match index interval div sounds binary add column constraint
		lines separator fulltext spatial foreign for force ignore use to window do update`},

	// Types with lengths.
	sqltext.Group{Code: funcHarmless, Names: `
		varchar char nchar nvarchar character varbinary decimal numeric dec fixed signed unsigned int integer bigint
		smallint tinyint mediumint float double real bit year time date datetime timestamp text tinytext mediumtext longtext blob
		tinyblob mediumblob longblob enum json bool boolean vector geometry point linestring polygon multipoint
		multilinestring multipolygon geometrycollection geomcollection inet4 inet6 uuid serial`},

	// Aggregates and window functions.
	sqltext.Group{Code: funcHarmless, Names: `
		any_value avg bit_and bit_or bit_xor count group_concat json_arrayagg json_objectagg max min std stddev
		stddev_pop stddev_samp sum var_pop var_samp variance cume_dist dense_rank first_value lag last_value lead
		nth_value ntile percent_rank rank row_number grouping median percentile_cont percentile_disc st_collect`},

	// Conditions and numbers.
	sqltext.Group{Code: funcHarmless, Names: `
		if ifnull nullif coalesce greatest least isnull nvl nvl2 decode decode_oracle abs acos asin atan atan2 ceil ceiling conv
		cos cot crc32 crc32c degrees exp floor ln log log10 log2 mod oct pi pow power radians rand round sign sin sqrt
		tan truncate natural_sort_key`},

	// Strings and patterns.
	sqltext.Group{Code: funcHarmless, Names: `
		ascii bin bit_count bit_length char_length character_length chr concat concat_ws elt export_set field find_in_set
		format format_bytes format_pico_time from_base64 hex insert instr lcase left length lengthb load_file locate
		lower lpad ltrim make_set mid octet_length ord position quote regexp_instr regexp_like regexp_replace
		regexp_substr repeat replace reverse right rpad rtrim sformat soundex space strcmp substr substring
		substring_index to_base64 to_char to_number trim trim_oracle ucase unhex upper weight_string charset coercibility collation
		convert extractvalue updatexml kdf`},

	// Dates and times.
	sqltext.Group{Code: funcHarmless, Names: `
		adddate addtime add_months convert_tz curdate current_date current_time current_timestamp curtime date_add
		date_format date_sub datediff day dayname dayofmonth dayofweek dayofyear extract from_days from_unixtime
		get_format hour last_day localtime localtimestamp makedate maketime microsecond minute month monthname months_between now
		period_add period_diff quarter second sec_to_time str_to_date subdate subtime sysdate timediff timestampadd
		timestampdiff time_format time_to_sec to_date to_days to_seconds trunc unix_timestamp utc_date utc_time utc_timestamp
		week weekday weekofyear yearweek`},

	// JSON.
	sqltext.Group{Code: funcHarmless, Names: `
		json_array json_array_append json_array_insert json_array_intersect json_compact json_contains
		json_contains_path json_depth json_detailed json_equals json_exists json_extract json_insert json_key_value json_keys
		json_length json_loose json_merge json_merge_patch json_merge_preserve json_normalize json_object
		json_object_filter_keys json_object_to_array json_overlaps json_pretty json_query json_quote json_remove
		json_replace json_schema_valid json_schema_validation_report json_search json_set json_table json_storage_free
		json_storage_size json_type json_unquote json_valid json_value column_add column_check column_create
		column_delete column_exists column_get column_json column_list`},

	// Encryption, compression, identifiers, networks.
	sqltext.Group{Code: funcHarmless, Names: `
		aes_decrypt aes_encrypt compress uncompress uncompressed_length md5 sha sha1 sha2 random_bytes password old_password encode
		des_encrypt des_decrypt encrypt statement_digest statement_digest_text validate_password_strength
		bin_to_uuid uuid_to_bin uuid_short sys_guid uuid_v4 uuid_v7 is_uuid inet_aton inet_ntoa inet6_aton inet6_ntoa
		is_ipv4 is_ipv4_compat is_ipv4_mapped is_ipv6`},

	// The session and the server, read only, or changed for all.
	sqltext.Group{Code: funcHarmless, Names: `
		benchmark sleep connection_id current_role current_user database schema found_rows row_count session_user
		system_user user version is_free_lock is_used_lock name_const master_pos_wait master_gtid_wait
		source_pos_wait wait_for_executed_gtid_set wait_until_sql_thread_after_gtids gtid_subset gtid_subtract
		binlog_gtid_pos ps_current_thread_id ps_thread_id icu_version roles_graphml rownum`},

	// Sequences: see the decision at the top of classify.go.
	sqltext.Group{Code: funcHarmless, Names: "nextval lastval setval"},

	// Geometry and vectors.
	sqltext.Group{Code: funcHarmless, Names: `
		mbrcontains mbrcoveredby mbrcovers mbrdisjoint mbrequal mbrequals mbrintersects mbroverlaps mbrtouches mbrwithin
		st_area st_asbinary st_asgeojson st_astext st_aswkb st_aswkt st_boundary st_buffer st_buffer_strategy st_centroid
		st_contains st_convexhull st_crosses st_difference st_dimension st_disjoint st_distance
		st_distance_sphere st_endpoint st_envelope st_equals st_exteriorring st_frechetdistance st_geohash
		st_geomcollfromtext st_geomcollfromwkb st_geometryfromtext st_geometryfromwkb st_geometryn
		st_geometrytype st_geomfromgeojson st_geomfromtext st_geomfromwkb st_hausdorffdistance
		st_interiorringn st_intersection st_intersects st_isclosed st_isempty st_isring st_issimple st_isvalid
		st_latfromgeohash st_latitude st_length st_linefromtext st_linefromwkb st_lineinterpolatepoint
		st_lineinterpolatepoints st_linestringfromtext st_longfromgeohash st_longitude st_makeenvelope
		st_mlinefromtext st_mpointfromtext st_mpolyfromtext st_numgeometries st_numinteriorrings st_numpoints
		st_overlaps st_perimeter st_pointatdistance st_pointfromgeohash st_pointfromtext st_pointfromwkb st_pointn
		st_pointonsurface st_polyfromtext st_polyfromwkb st_polygonfromtext st_relate st_simplify st_srid st_startpoint
		st_swapxy st_symdifference st_touches st_transform st_union st_validate st_within st_x st_y geomfromtext pointfromtext
		astext distance_sphere vec_distance vec_distance_cosine vec_distance_euclidean vec_fromtext vec_totext
		string_to_vector vector_to_string vector_dim distance`},
)
