package integration

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// column is a type of a server with two values of it, all as SQL has them.
type column struct{ typ, value, other string }

// wideColumns are the types that each kind of database has.
var wideColumns = map[string][]column{
	"postgres": {
		{"smallint", "1", "-32768"},
		{"integer", "-1", "2147483647"},
		{"bigint", "0", "-9223372036854775808"},
		{"numeric(12,4)", "12.5", "-99999999.9999"},
		{"numeric", "'NaN'", "123456789012345678901234567890.123"},
		{"real", "1.5", "'-Infinity'"},
		{"double precision", "0.1", "'NaN'"},
		{"money", "12.34", "-1"},
		{"boolean", "true", "false"},
		{"char(5)", "'a'", "'ä'"},
		{"varchar(20)", "''", "'twenty characters ..'"},
		{"text", "''", "'ä\n\u2028'"},
		{`"char"`, "'x'", "''"},
		{"name", "'n'", "'a name'"},
		{"bytea", `'\x00ff'`, "''"},
		{"timestamp", "'2024-02-29 12:34:56.789012'", "'0001-01-01'"},
		{"timestamp(0)", "'2024-02-29 12:34:56'", "'1970-01-01'"},
		{"timestamptz", "'2024-02-29 12:34:56.789012+05:30'", "'9999-12-31 23:59:59Z'"},
		{"date", "'2024-02-29'", "'0001-01-01'"},
		{"time", "'12:34:56.789012'", "'00:00'"},
		{"timetz", "'12:34:56+02'", "'00:00Z'"},
		{"interval", "'1 year 2 months 3 days 04:05:06.7'", "'-1 second'"},
		{"bit(5)", "B'10101'", "B'00000'"},
		{"bit varying(8)", "B'1'", "B''"},
		{"uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'00000000-0000-0000-0000-000000000000'"},
		{"json", `'{"a": [1, null]}'`, "'null'"},
		{"jsonb", `'{"a": [1, null]}'`, "'1'"},
		{"jsonpath", "'$.a[*]'", "'$'"},
		{"xml", "'<a>ä</a>'", "'<b/>'"},
		{"inet", "'192.168.0.1/24'", "'::1'"},
		{"cidr", "'10.0.0.0/8'", "'2001:db8::/32'"},
		{"macaddr", "'08:00:2b:01:02:03'", "'00:00:00:00:00:00'"},
		{"macaddr8", "'08:00:2b:01:02:03:04:05'", "'00:00:00:00:00:00:00:00'"},
		{"point", "'(1,2)'", "'(-1.5,0)'"},
		{"line", "'{1,2,3}'", "'{0,1,0}'"},
		{"lseg", "'[(0,0),(1,1)]'", "'[(0,0),(0,0)]'"},
		{"box", "'(1,1),(0,0)'", "'(0,0),(0,0)'"},
		{"path", "'[(0,0),(1,1)]'", "'((0,0),(1,1),(2,0))'"},
		{"polygon", "'((0,0),(1,1),(2,0))'", "'((0,0))'"},
		{"circle", "'<(0,0),1>'", "'<(1,1),0>'"},
		{"tsvector", "'a fat cat'", "''"},
		{"tsquery", "'fat & cat'", "'a'"},
		{"int4range", "'[1,10)'", "'empty'"},
		{"numrange", "'(,1.5]'", "'(,)'"},
		{"tstzrange", "'[2024-01-01Z,)'", "'empty'"},
		{"integer[]", "'{1,NULL,3}'", "'{}'"},
		{"text[]", `'{{a,"b c"},{"",NULL}}'`, "'{}'"},
		{"bytea[]", `'{"\\x00","\\x"}'`, "'{}'"},
		{"oid", "1", "4294967295"},
		{"regclass", "'pg_class'", "'pg_type'"},
		{"xid", "'1'", "'4294967295'"},
		{"pg_lsn", "'16/B374D848'", "'0/0'"},
		{"mood", "'sad'", "'happy'"},
		{"positive", "1", "2"},
		{"pair", `'(1,"a b")'`, "'(,)'"},
	},
	"mysql": {
		{"tinyint", "1", "-128"},
		{"tinyint unsigned", "0", "255"},
		{"boolean", "true", "false"},
		{"smallint", "1", "-32768"},
		{"smallint unsigned", "1", "65535"},
		{"mediumint", "1", "-8388608"},
		{"mediumint unsigned", "1", "16777215"},
		{"int", "1", "-2147483648"},
		{"int unsigned", "1", "4294967295"},
		{"bigint", "1", "-9223372036854775808"},
		{"bigint unsigned", "1", "18446744073709551615"},
		{"decimal(20,6)", "1.5", "-99999999999999.999999"},
		{"float", "1.5", "-0.25"},
		{"double", "0.1", "1e300"},
		{"bit(10)", "b'1010101010'", "b'0'"},
		{"bit(1)", "b'1'", "b'0'"},
		{"date", "'2024-02-29'", "'1000-01-01'"},
		{"datetime", "'2024-02-29 12:34:56'", "'1000-01-01'"},
		{"datetime(6)", "'2024-02-29 12:34:56.789012'", "'9999-12-31 23:59:59.999999'"},
		{"timestamp(3) NULL", "'2024-02-29 12:34:56.789'", "'1980-01-01'"},
		{"time(6)", "'-838:59:58.5'", "'00:00'"},
		{"year", "2024", "1901"},
		{"char(5)", "'a'", "'ä'"},
		{"varchar(20)", "''", "'twenty characters ..'"},
		{"binary(4)", "x'00ff'", "''"},
		{"varbinary(8)", "x'00ff'", "''"},
		{"tinyblob", "x'00ff'", "''"},
		{"blob", "x'00ff'", "''"},
		{"mediumblob", "x'00ff'", "''"},
		{"longblob", "x'00ff'", "''"},
		{"tinytext", "'a'", "''"},
		{"text", "'ä'", "''"},
		{"mediumtext", "'a'", "''"},
		{"longtext", "'a'", "''"},
		{"enum('sad','happy')", "'sad'", "'happy'"},
		{"set('a','b')", "'a,b'", "''"},
		{"json", `'{"a": [1, null]}'`, "'null'"},
		{"geometry", "ST_GeomFromText('POINT(1 2)')", "ST_GeomFromText('LINESTRING(0 0,1 1)')"},
	},
	"mariadb": {
		{"uuid", "'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'", "'00000000-0000-0000-0000-000000000000'"},
		{"inet6", "'2001:db8::1'", "'::'"},
		{"inet4", "'192.168.0.1'", "'0.0.0.0'"},
	},
	"sqlite": {
		{"integer", "1", "-9223372036854775808"},
		{"real", "0.1", "-1e300"},
		{"text", "'ä'", "''"},
		{"blob", "x'00ff'", "x''"},
		{"numeric", "12.5", "'a text'"},
		{"decimal(10,2)", "1.25", "3"},
		{"varchar(20)", "'a'", "''"},
		{"boolean", "1", "0"},
		{"date", "'2024-02-29'", "'0001-01-01'"},
		{"datetime", "'2024-02-29 12:34:56.789'", "'no date'"},
		{"timestamp", "'2024-02-29 12:34:56+05:30'", "1700000000"},
		{"time", "'12:34:56'", "1.5"},
		{"", "'of no type'", "1"},
		{"", "1.5", "x'00'"},
	},
}

// wideTypes are PostgreSQL's own kinds of types.
var wideTypes = []string{
	"CREATE TYPE mood AS ENUM ('sad', 'happy')",
	"CREATE DOMAIN positive AS integer CHECK (VALUE > 0)",
	"CREATE TYPE pair AS (a integer, b text)",
}

// wideRows is how many rows the wide table has: the second all NULL, the others
// with the one and the other values in turn.
const wideRows = 9

func (d database) makeWide(t testing.TB) {
	t.Helper()
	columns := wideColumns[d.kind]
	if d.kind == "postgres" {
		d.execute(t, wideTypes...)
	}
	if d.kind == "mysql" && strings.Contains(d.version(t), "MariaDB") {
		columns = append(append([]column(nil), columns...), wideColumns["mariadb"]...)
	}
	definitions := []string{"id integer PRIMARY KEY"}
	rows := [3][]string{}
	for i, c := range columns {
		definitions = append(definitions, strings.TrimSpace(fmt.Sprintf("c%d %s", i+1, c.typ)))
		rows[0] = append(rows[0], c.other)
		rows[1] = append(rows[1], c.value)
		rows[2] = append(rows[2], "NULL")
	}
	statements := []string{"CREATE TABLE wide (" + strings.Join(definitions, ", ") + ")"}
	for id := 1; id <= wideRows; id++ {
		row := rows[id%2]
		if id == 2 {
			row = rows[2]
		}
		statements = append(statements, fmt.Sprintf("INSERT INTO wide VALUES (%d, %s)", id, strings.Join(row, ", ")))
	}
	d.execute(t, statements...)
}

func (d database) version(t testing.TB) (version string) {
	t.Helper()
	require.NoError(t, d.witness(t).QueryRowContext(t.Context(), "SELECT version()").Scan(&version))
	return version
}

// makeLarge makes a table with some values of 1 MiB.
func (d database) makeLarge(t testing.TB) {
	t.Helper()
	types := map[string][2]string{"postgres": {"bytea", "text"}, "mysql": {"longblob", "longtext"}, "sqlite": {"blob", "text"}}[d.kind]
	d.execute(t, fmt.Sprintf("CREATE TABLE large (id integer PRIMARY KEY, data %s, words %s)", types[0], types[1]))
	insert := "INSERT INTO large VALUES (?, ?, ?)"
	if d.kind == "postgres" {
		insert = "INSERT INTO large VALUES ($1, $2, $3)"
	}
	db := d.openBare(t, 1)
	defer db.Close()
	for id := 1; id <= wideRows; id++ {
		length := map[int]int{1: 1 << 20, 2: 1<<20 + 1, wideRows: 1 << 20}[id]
		data := make([]byte, length)
		for i := range data {
			data[i] = byte(i * id >> (i % 8))
		}
		words := sql.NullString{String: strings.Repeat(fmt.Sprintf("ä%d ", id), length/4), Valid: id != 4}
		mustExec(t, db, insert, id, data, words)
	}
}
