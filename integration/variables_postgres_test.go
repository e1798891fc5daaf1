package integration

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// postgresLiterals have literals that the server reads when it prepares them, and expressions that it
// may evaluate then.
var postgresLiterals = []string{
	"extract(epoch FROM '2026-01-01 00:00'::timestamptz)", "'2026-01-01 00:00 IST'::timestamptz AT TIME ZONE 'UTC'",
	"'01/02/2026'::date - '2026-01-01'::date", "'2026-01-02 03:04'::timestamp", "'2026-01-02 03:04+00'::timestamptz",
	"extract(epoch FROM '-1 2:03:04'::interval)", "'1 year 2 days 03:04:05'::interval", "'12.34'::money", "1234.5::money",
	"'things'::regclass::oid", "'english'::regconfig::oid", "to_tsvector('The quick foxes')", "length('a\\nb')", "length(E'it\\'s')",
	`'\x41ff'::bytea`, "0.1::float8 + 0.2::float8", "('{NULL,a}'::text[])[1] IS NULL", "NULL = 1",
	"'<a>x</a><b/>'::xml", "xmlelement(name a, '\\x41'::bytea)", "to_char(1234.5, 'L9G999D9')", "to_char('2026-02-01'::date, 'TMMonth')",
	"quote_ident('abc')", "count(*) FROM things", "date_trunc('day', '2026-01-01 00:00'::timestamptz) = '2026-01-01 00:00+00'::timestamptz",
	"length('ä')", "coalesce(current_setting('app.x', true), '')", "current_user", "B'101'::int",
}

// postgresMatter are the parameters by which PostgreSQL reads texts, or makes something of them.
var postgresMatter = []string{
	"timezone", "datestyle", "intervalstyle", "bytea_output", "standard_conforming_strings", "extra_float_digits", "array_nulls",
	"backslash_quote", "transform_null_equals", "search_path", "xmloption", "xmlbinary", "timezone_abbreviations",
	"default_text_search_config", "quote_all_identifiers", "app.x", "role", "client_encoding", "application_name", "work_mem", "statement_timeout",
}

// postgresValues are values for parameters for which the server names none.
var postgresValues = map[string]string{
	"TimeZone": "Asia/Tokyo", "DateStyle": "German, DMY", "search_path": "pg_temp, other", "client_encoding": "LATIN1",
	"default_text_search_config": "simple", "timezone_abbreviations": "India", "application_name": "swept", "lc_messages": "C.UTF-8",
	"lc_monetary": "C.UTF-8", "lc_numeric": "C.UTF-8", "lc_time": "C.UTF-8", "temp_tablespaces": "pg_default", "default_tablespace": "pg_default",
	"session_preload_libraries": "", "bytea_output": "escape", "extra_float_digits": "-5", "xmloption": "document",
	"IntervalStyle": "sql_standard", "backslash_quote": "off", "statement_timeout": "1h", "lock_timeout": "1h",
}

func postgresSweep(t *testing.T, d database) (texts []string, all []variable, matter []string) {
	t.Helper()
	w := d.witness(t)
	mustExec(t, w, "ALTER ROLE "+d.account.User+" SUPERUSER")
	mustExec(t, w, "CREATE TABLE things (a int); INSERT INTO things VALUES (1), (2); CREATE SCHEMA other; CREATE TABLE other.things (a int)")
	mustExec(t, w, "GRANT USAGE ON SCHEMA other TO PUBLIC; GRANT SELECT ON things, other.things TO PUBLIC")
	for _, expression := range postgresLiterals {
		selected, _, counts := strings.Cut(expression, " FROM things")
		from := ""
		if counts {
			from = " FROM things"
		}
		texts = append(texts, "SELECT ("+selected+")::text"+from+" WHERE $1::int = 1")
	}
	rows, err := w.Query(`SELECT name, vartype, setting, coalesce(min_val, ''), coalesce(max_val, ''), coalesce(array_to_string(enumvals, ','), '')
		FROM pg_settings WHERE context IN ('user', 'superuser') ORDER BY name`)
	require.NoError(t, err)
	for rows.Next() {
		var name, kind, value, least, most, options string
		require.NoError(t, rows.Scan(&name, &kind, &value, &least, &most, &options))
		other, known := postgresValues[name]
		if !known {
			other = otherValue(kind, value, least, most, options)
		}
		all = append(all, postgresVariable(name, other))
	}
	require.NoError(t, rows.Err())
	all = append(all, postgresVariable("app.x", "swept"), postgresVariable("role", d.account.Role))
	return texts, all, postgresMatter
}

func postgresVariable(name, value string) variable {
	list := value // DateStyle and search_path are lists
	if name != "search_path" {
		list = "'" + value + "'"
	}
	return variable{name: name, value: value, set: fmt.Sprintf("SET %s = %s", name, list), local: fmt.Sprintf("SET LOCAL %s = %s", name, list), reset: "RESET " + name}
}

// otherValue is another value than the present one of a parameter.
func otherValue(kind, value, least, most, options string) string {
	switch kind {
	case "bool":
		return map[string]string{"on": "off"}[value] + map[string]string{"off": "on"}[value]
	case "enum":
		for _, option := range strings.Split(options, ",") {
			if option != value {
				return option
			}
		}
	case "integer", "real":
		if value != most {
			if least == "0" && (value == "0" || value == "-1") && len(most) > 4 {
				return "100000" // a timeout, or a size
			}
			return most
		}
		return least
	}
	return "swept"
}
