//go:build go1.27

// On Go 1.26 database/sql scans every column itself, and panics for some destinations.

package integration

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
)

// Since Go 1.27 pgx scans columns itself (driver.RowsColumnScanner). On Go 1.26 the same
// tests show that database/sql's conversions are the same.

// scannedColumns are columns of PostgreSQL: two values each. A NULL follows them.
var scannedColumns = []string{
	"ARRAY['a','b,c',NULL]::text[], ARRAY[]::text[]",
	"ARRAY[1,2]::bigint[], ARRAY[NULL]::bigint[]",
	"ARRAY[[1,2],[3,4]]::int[], ARRAY[5]::int[]",
	"ARRAY['\\x00ff'::bytea], ARRAY[''::bytea]",
	"int4range(1,10), int4range('empty')",
	"int4multirange(int4range(1,2), int4range(5,9)), int4multirange()",
	"true, false",
	"7::int, -1::int",
	"'text'::text, ''::text",
	"'\\x616200'::bytea, ''::bytea",
	`'{"A": [1, 2]}'::jsonb, '"x"'::jsonb`,
	"'2024-02-29'::date, 'infinity'::date",
	"'192.168.0.1'::inet, '::1'::inet",
	"'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid, '00000000-0000-0000-0000-000000000000'::uuid",
	"1.5::numeric, 'NaN'::numeric",
	"ROW(1, 'x'), ROW(2, NULL)",
	"'(1,2)'::point, '(0,-1)'::point",
}

type (
	namedString  string
	namedStrings []string
	namedTime    time.Time
	document     struct{ A []int }
	// keeper is a Scanner, with a value that no other type has.
	keeper struct{ Given string }
)

func (k *keeper) Scan(v any) error {
	if k == nil {
		return errors.New("no keeper")
	}
	k.Given = fmt.Sprintf("%T %v", v, v)
	return nil
}

// destinations make a pointer to scan into.
var destinations = []func() any{
	func() any { return new([]string) }, func() any { return new([]*string) }, func() any { return new([]int64) },
	func() any { return new([]pgtype.Int8) }, func() any { return new([][]int32) }, func() any { return new([2]int) },
	func() any { return new([][]byte) }, func() any { return new(namedStrings) }, func() any { return new(*[]string) },
	func() any { return new(pgtype.FlatArray[*string]) }, func() any { return new(pgtype.Array[pgtype.Text]) },
	func() any { return new(pgtype.Array[int32]) }, func() any { return new(pgtype.FlatArray[byte]) },
	func() any { return new(pgtype.Range[pgtype.Int4]) }, func() any { return new(pgtype.Multirange[pgtype.Range[pgtype.Int4]]) },
	func() any { return new(string) }, func() any { return new(*string) }, func() any { return new(**string) },
	func() any { return new(namedString) }, func() any { return new([]byte) }, func() any { return new(json.RawMessage) },
	func() any { return new(any) }, func() any { return new(sql.RawBytes) }, func() any { return new(pgtype.PreallocBytes) },
	func() any { return new(bool) }, func() any { return new(int) }, func() any { return new(*int16) },
	func() any { return new(uint8) }, func() any { return new(float64) }, func() any { return new(uintptr) },
	func() any { return new(complex128) }, func() any { return new(time.Time) }, func() any { return new(*time.Time) },
	func() any { return new(namedTime) }, func() any { return new(time.Duration) }, func() any { return new(sql.NullString) },
	func() any { return new(sql.Null[[]string]) }, func() any { return new(sql.Null[int]) }, func() any { return new(keeper) },
	func() any { return new(*keeper) }, func() any { return new(pgtype.Text) }, func() any { return new(pgtype.Numeric) },
	func() any { return new(pgtype.UUID) }, func() any { return new([16]byte) }, func() any { return new(netip.Addr) },
	func() any { return new(netip.Prefix) }, func() any { return new(document) }, func() any { return new(*document) },
	func() any { return new(map[string]any) }, func() any { return new(pgtype.Point) }, func() any { return new(chan int) },
	func() any { return nil }, func() any { return "no pointer" }, func() any { return (*string)(nil) },
	func() any { return (*[]string)(nil) }, func() any { return (*keeper)(nil) }, func() any { return new(struct{ A, B any }) },
}

// scans reads a column into a destination, and tells all that a program can see. interrupt
// is called with the number of each step.
func scans(ctx context.Context, db *sql.DB, column string, dest func() any, interrupt func(step int)) (lines []string, err error) {
	rows, err := db.QueryContext(ctx, "SELECT n, v FROM (SELECT "+column+") AS x(a, b), LATERAL (VALUES (1, a), (2, b), (3, NULL)) AS y(n, v) ORDER BY n")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	step, unfit := 0, false
	for rows.Next() {
		interrupt(step)
		var n int
		d := dest()
		err := rows.Scan(&n, d)
		interrupt(step + 1)
		// A destination that does not fit gets NULL or an error, from run to run: pgx tries its
		// types in the order of a map.
		if unfit = unfit || err != nil && strings.Contains(err.Error(), "cannot scan"); !unfit || n < 3 {
			lines = append(lines, fmt.Sprintf("%d %T %s %v", n, d, pointee(d), err))
		}
		// Once more, into another destination.
		var again any
		err = rows.Scan(&n, &again)
		lines = append(lines, fmt.Sprintf("%T %v %v", again, again, err))
		step += 2
	}
	return append(lines, fmt.Sprint(rows.Err(), rows.Close())), nil
}

// pointee is what a destination points to.
func pointee(dest any) string {
	v := reflect.ValueOf(dest)
	for v.Kind() == reflect.Pointer && !v.IsNil() {
		v = v.Elem()
	}
	if !v.IsValid() || v.Kind() == reflect.Pointer {
		return "nil"
	}
	if text, err := json.Marshal(v.Interface()); err == nil {
		return fmt.Sprintf("%T %s", v.Interface(), text)
	}
	return fmt.Sprintf("%+v", v.Interface())
}

// TestColumnsOfPostgreSQLAreScannedAsByTheBareDriver compares pgx with itself, below us: rows
// that are read from the server, and rows that were read into memory before any step.
func TestColumnsOfPostgreSQLAreScannedAsByTheBareDriver(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	for _, mode := range []string{"cache_statement", "simple_protocol"} {
		parameter := "default_query_exec_mode=" + mode
		bare := account.OpenBare(t, parameter)
		for name, db := range map[string]*sql.DB{
			"New":  openPool(t, account, parameter),
			"Wrap": sql.OpenDB(pooldriver.Wrap(connectorOf(t, account, parameter), quiet)),
		} {
			t.Cleanup(func() { _ = db.Close() })
			t.Run(mode+" "+name, func(t *testing.T) {
				for _, column := range scannedColumns {
					for i, dest := range destinations {
						compareScans(t, bare, db, column, dest, i%4)
					}
				}
			})
		}
	}
}

// compareScans reads ahead at one step: before or after a Scan, of the first row or the second.
func compareScans(t *testing.T, bare, db *sql.DB, column string, dest func() any, at int) {
	t.Helper()
	ctx := t.Context()
	want, err := scans(ctx, bare, column, dest, func(int) {})
	require.NoError(t, err)
	got, err := scans(ctx, db, column, dest, func(int) {})
	require.NoError(t, err)
	require.Equal(t, want, got, "live, %s into %T", column, dest())
	require.NoError(t, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error {
		got, err = scans(ctx, db, column, dest, func(step int) {
			if step == at {
				_, err := db.ExecContext(ctx, "SELECT 'another statement'")
				require.NoError(t, err)
			}
		})
		return err
	}))
	require.Equal(t, want, got, "read ahead at step %d, %s into %T", at, column, dest())
}
