package integration

import (
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// mySQLLiterals have literals and expressions that MySQL or MariaDB may read when it prepares them. Each
// ends with a condition on the argument.
var mySQLLiterals = []string{
	"SELECT UNIX_TIMESTAMP('2026-01-01 00:00')", "SELECT COUNT(*) FROM moments WHERE at >= '2026-01-01 00:00' AND 1 = 1",
	"SELECT COUNT(*) FROM moments WHERE at = TIMESTAMP'2026-01-01 00:00:00' AND 1 = 1", "SELECT FROM_UNIXTIME(0)",
	"SELECT '1' || '2'", `SELECT "a"`, `SELECT LENGTH('a\nb')`, "SELECT 1 / 3", "SELECT 'a' = 'A'", "SELECT HEX('ä')", "SELECT LENGTH('ä')",
	"SELECT COLLATION('a')", "SELECT DATE_FORMAT('2026-01-04', '%W %M')", "SELECT FORMAT(12345.6, 2, 'de_DE')", "SELECT COUNT(*) FROM history WHERE 1 = 1",
	"SELECT WEEK('2026-01-04')", "SELECT id FROM things WHERE id < 9", "SELECT GROUP_CONCAT(id ORDER BY id) FROM things WHERE id > 0",
	"SELECT COUNT(*) FROM things WHERE id IS NULL", "SELECT CAST('x' AS SIGNED)", "SELECT DATE('2026-02-00')", "SELECT CAST('10:11:12' AS DATETIME) > '2000-01-01'",
	"SELECT -1 - CAST(-2 AS UNSIGNED)", "SELECT NOT 1 BETWEEN -5 AND 5", "SELECT YEAR(NOW()) > 2000", "SELECT 0x41 + 0", "SELECT 1e0 / 3",
	"SELECT @x", "SELECT MAX(name) FROM things WHERE name = 'A'", "SELECT RPAD('a', 3, ' ') = 'a'", "SELECT REPEAT('a', 20)", "SELECT TIME'10:11:12.5678'",
}

var mySQLMatter = []string{
	"time_zone", "sql_mode", "div_precision_increment", "collation_connection", "character_set_client", "lc_time_names", "default_week_format",
	"sql_select_limit", "group_concat_max_len", "system_versioning_asof", "timestamp", "sql_auto_is_null", "old_mode", "names",
	"wait_timeout", "foreign_key_checks", "@x",
}

// mySQLValues are values for variables, the first one that the server takes counts.
var mySQLValues = map[string][]string{
	"time_zone": {"'+09:00'"}, "sql_mode": {"'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES'"}, "div_precision_increment": {"9"},
	"collation_connection": {"utf8mb4_bin"}, "character_set_client": {"latin1"}, "lc_time_names": {"'de_DE'"}, "default_week_format": {"3"},
	"sql_select_limit": {"1"}, "group_concat_max_len": {"4"}, "system_versioning_asof": {"'2000-01-01'"}, "timestamp": {"1"},
	"sql_auto_is_null": {"ON"}, "old_mode": {"''", "'ZERO_DATE_TIME_CAST'"}, "max_sort_length": {"64"},
}

// mySQLExcluded are variables that are no settings of texts.
var mySQLExcluded = []string{
	"autocommit",                  // of transactions, which have tests of their own
	"pseudo_thread_id",            // the number of the connection, which the pool needs
	"debug", "debug_sync", "dbug", // of servers built to be debugged
}

func mySQLSweep(t *testing.T, d database) (texts []string, all []variable, matter []string) {
	t.Helper()
	w := d.witness(t)
	mustExec(t, w, fmt.Sprintf("GRANT ALL ON *.* TO %s@'%%'", d.account.User))
	d.setUpMoments(t)
	versioned := ""
	if mariaDBVersion(t, d) != "" {
		versioned = " WITH SYSTEM VERSIONING"
	}
	d.execute(t, "CREATE TABLE things (id int PRIMARY KEY AUTO_INCREMENT, name varchar(9))", "INSERT INTO things (name) VALUES ('a'), ('A'), ('b')",
		"CREATE TABLE history (a int)"+versioned, "INSERT INTO history VALUES (1), (2)")
	for _, text := range mySQLLiterals {
		if strings.Contains(text, " WHERE ") {
			texts = append(texts, text+" AND ? = 1")
		} else {
			texts = append(texts, text+" FROM DUAL WHERE ? = 1")
		}
	}
	bare := d.openBare(t, 1)
	rows, err := bare.Query("SHOW SESSION VARIABLES")
	require.NoError(t, err)
	present := map[string]string{}
	var names []string
	for rows.Next() {
		var name string
		var value sql.NullString
		require.NoError(t, rows.Scan(&name, &value))
		names, present[name] = append(names, name), value.String
	}
	require.NoError(t, rows.Err())
	for _, name := range names {
		if slices.Contains(mySQLExcluded, name) {
			continue
		}
		if v, ok := mySQLVariable(t, bare, name, present[name]); ok {
			all = append(all, v)
		}
	}
	return texts, append(all, variable{name: "names", set: "SET NAMES latin1", reset: "SET NAMES utf8mb4"},
		variable{name: "@x", set: "SET @x = 'swept'", reset: "SET @x = NULL"}), mySQLMatter
}

// mySQLVariable finds a value that the server takes; ok is false if there is none, as for a variable
// that is global only.
func mySQLVariable(t *testing.T, db *sql.DB, name, value string) (v variable, ok bool) {
	t.Helper()
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer func() { _ = conn.Close() }()
	mustExec(t, conn, "SET SESSION sql_mode = DEFAULT")
	for _, other := range mySQLOthers(name, value) {
		set := fmt.Sprintf("SET SESSION %s = %s", name, other)
		if _, err := conn.ExecContext(t.Context(), set); err != nil {
			continue
		}
		var now sql.NullString
		_ = conn.QueryRowContext(t.Context(), "SELECT @@session."+name).Scan(&now)
		reset := fmt.Sprintf("SET SESSION %s = DEFAULT", name)
		_, _ = conn.ExecContext(t.Context(), reset)
		if now.String != value {
			return variable{name: name, value: other, set: set, reset: reset}, true
		}
	}
	return variable{}, false
}

// mySQLOthers are values that a variable may have, other than its present one.
func mySQLOthers(name, value string) []string {
	if known, ok := mySQLValues[name]; ok {
		return known
	}
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		return []string{fmt.Sprint(n + 100000), fmt.Sprint(n + 1), fmt.Sprint(n - 1), fmt.Sprint(n / 2), "1000", "1", "0"}
	}
	switch {
	case value == "ON":
		return []string{"OFF"}
	case value == "OFF":
		return []string{"ON"}
	case strings.HasPrefix(name, "character_set"):
		return []string{"latin1"}
	case strings.HasPrefix(name, "collation"):
		return []string{"latin1_swedish_ci"}
	}
	return []string{
		"'ROW'", "'STATEMENT'", "'READ-COMMITTED'", "'MEMORY'", "'MyISAM'", "'de_DE'", "'ON'", "'OFF'", "1", "0", "2", "3", "0.5",
		"'2000-01-01'", "'latin1'", "'utf8mb4_bin'", "'index_merge=off'", "'swept'", "''",
	}
}
