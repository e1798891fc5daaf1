package integration

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/driverconn"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// pipelineLimit is more than a result of these tests has.
var pipelineLimit = dialects.PipelineLimits{Bytes: 1 << 20, Statements: 128}

// pipelinedResult is all that a program can learn of a query.
type pipelinedResult struct {
	Columns []string
	Types   []driverconn.ColumnType
	Rows    [][]any
	Error   string // of QueryContext
	End     string // of Next and Close
}

func pipelined(text string, args ...any) dialects.PipelinedQuery {
	call := dialects.PipelinedQuery{Text: text}
	for i, arg := range args {
		call.Args = append(call.Args, driver.NamedValue{Ordinal: i + 1, Value: arg})
	}
	return call
}

func messageOf(err error) string {
	if err == nil {
		return ""
	}
	return fmt.Sprintf("%T %v", err, err)
}

// readPipelined reads rows by Next, or by NextRow and ScanColumn.
func readPipelined(t testing.TB, rows driver.Rows, err error, scans bool) (r pipelinedResult) {
	t.Helper()
	if err != nil {
		return pipelinedResult{Error: messageOf(err)}
	}
	r.Columns = append(r.Columns, rows.Columns()...)
	for i := range r.Columns {
		r.Types = append(r.Types, driverconn.ColumnTypeOf(rows, i))
	}
	scanner := driverconn.ColumnScannerOf(rows)
	for end := error(nil); end == nil; {
		var row []any
		if scans && scanner != nil {
			if end = scanner.NextRow(); end == nil {
				row = scanColumns(scanner, len(r.Columns))
			}
		} else {
			values := make([]driver.Value, len(r.Columns))
			end = rows.Next(values)
			for _, v := range values {
				if f, ok := v.(float64); ok && math.IsNaN(f) {
					v = "NaN" // NaN is not equal to itself
				}
				row = append(row, v)
			}
		}
		if end == nil {
			r.Rows = append(r.Rows, row)
		} else if end != io.EOF {
			r.End = messageOf(end)
		}
	}
	r.End += messageOf(rows.Close())
	return r
}

// scanColumns scans each column in several ways.
func scanColumns(from driverconn.ColumnScanner, columns int) (row []any) {
	scan := func(i int, dest any) {
		err := from.ScanColumn(driverconn.ScanContext{}, i, dest)
		if text := fmt.Sprint(reflect.ValueOf(dest).Elem()); strings.Contains(text, "NaN") {
			dest = text
		}
		row = append(row, dest, messageOf(err))
	}
	for i := range columns {
		for _, dest := range []any{
			new(string), new([]byte), new(*int64), new([]string), new([]*int64), new([]any), new(map[string]any),
			new(pgtype.Numeric), new(pgtype.Text), new(time.Time), new(pgtype.PreallocBytes),
		} {
			scan(i, dest)
		}
		var value any
		if scan(i, &value); value != nil { // whether pgx scans NULL of another type into a range is random
			scan(i, new(pgtype.Range[pgtype.Int4]))
		}
	}
	return row
}

func queryPlain(t testing.TB, s dialects.Session, call dialects.PipelinedQuery, scans bool) pipelinedResult {
	t.Helper()
	rows, err := s.Conn().(driver.QueryerContext).QueryContext(t.Context(), call.Text, call.Args)
	return readPipelined(t, rows, err, scans)
}

// requireSame sends calls together, and compares with the same calls alone on other.
func requireSame(t testing.TB, s, other dialects.Session, calls []dialects.PipelinedQuery) {
	t.Helper()
	for _, scans := range []bool{false, true} {
		next := 0
		err := s.(dialects.Pipeliner).QueryTogether(t.Context(), calls, pipelineLimit, func(i int, rows driver.Rows, err error) {
			require.Equal(t, next, i)
			next++
			want := queryPlain(t, other, calls[i], scans)
			if errors.Is(err, dialects.ErrNotPipelined) {
				require.NotEmpty(t, want.Error, calls[i].Text)
				return
			}
			require.Equal(t, want, readPipelined(t, rows, err, scans), calls[i].Text)
		})
		require.NoError(t, err)
		require.Equal(t, len(calls), next)
		require.Equal(t, dialects.TxNone, s.TxStatus())
		require.NotEqual(t, dialects.Dead, s.Peek())
	}
}

// samples are values of the types that programs use.
var samples = strings.Fields(`
	true::bool 'a'::"char" 'name'::name '\x00ff'::bytea ''::bytea 5::int2 -6::int4 7::int8 4294967295::oid 1.5::float4 'NaN'::float8 '-Infinity'::float8
	12.340::numeric(10,3) 'NaN'::numeric 1e40::numeric 'täxt'::text ''::text 'v'::varchar(7) 'b'::bpchar(5) '101'::bit(3) '1011'::varbit(9)
	'2024-02-29'::date 'infinity'::date '0044-03-15BC'::date '12:34:56.789'::time '12:34:56+02'::timetz '2024-02-29T01:02:03.000004'::timestamp
	'2024-02-29T01:02:03.4Z'::timestamptz '-infinity'::timestamptz '1.5h'::interval '{"a":[1,null]}'::json '{"a":1}'::jsonb '$.a'::jsonpath
	'<a>b</a>'::xml 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11'::uuid '10.1.2.3/8'::inet '10.0.0.0/8'::cidr '08:00:2b:01:02:03'::macaddr
	'08:00:2b:01:02:03:04:05'::macaddr8 '$12.34'::money '(1,2)'::point '{1,2,3}'::line '[(0,0),(1,1)]'::lseg '(1,1),(0,0)'::box '((0,0),(1,1))'::path
	'((0,0),(1,1),(2,0))'::polygon '<(1,2),3>'::circle 'fat:1'::tsvector 'fat&rat'::tsquery '16/B374D848'::pg_lsn '(0,1)'::tid '7'::xid '8'::cid '9'::xid8
	'[1,5)'::int4range 'empty'::int8range '[1.5,)'::numrange '[2024-01-01,)'::daterange '{[1,3),[5,7)}'::int4multirange
	'{1,NULL,3}'::int4[] '{{a,b},{c,d}}'::text[] '{}'::text[] '{"\\xff",NULL}'::bytea[] '{t,f}'::bool[] '{1.5,NaN}'::float8[] '{1.50}'::numeric[]
	'{2024-01-01}'::date[] '{"[1,2)"}'::int4range[] '{"{}"}'::jsonb[] 'pg_class'::regclass 'int4'::regtype '1|2'::int2vector ROW(1,'a',NULL) current_user
	'red'::color '{red,blue}'::color[] '(1,red)'::pair '{"(1,red)"}'::pair[] 5::positive '[red,blue]'::colors NULL repeat('x',5000)`)

// createTypes makes the types of samples that are the program's.
func createTypes(t testing.TB, s dialects.Session) {
	for _, text := range []string{
		"CREATE TYPE color AS ENUM ('red', 'blue')", "CREATE TYPE pair AS (n int, c color)", "CREATE DOMAIN positive AS int CHECK (value > 0)",
		"CREATE TYPE colors AS RANGE (subtype = color)",
	} {
		pgExec(t, s, text)
	}
}

func TestPostgresPipelinedRowsAreThoseOfPgx(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	_, tmpl := pgTemplate(t, account.URL())
	s, other := pgDial(t, tmpl), pgDial(t, tmpl)
	createTypes(t, s)

	var calls []dialects.PipelinedQuery
	all := strings.ReplaceAll(strings.Join(samples, ", "), "'1|2'", "'1 2'")
	for _, sample := range strings.Split(all, ", ") {
		calls = append(calls, pipelined("SELECT "+sample+" AS sample"), pipelined("SELECT v FROM (VALUES ("+sample+"), (NULL), ("+sample+")) AS t(v)"))
	}
	calls = append(calls, pipelined("SELECT "+all), pipelined("SELECT"), pipelined("SELECT 1 WHERE false"), pipelined("SELECT FROM generate_series(1, 3)"),
		pipelined("SELECT 1 AS same, 2 AS same, 'x' AS \"?\""), pipelined("SHOW TimeZone"), pipelined("VALUES (1), (2)"), pipelined("-- nothing"),
		pipelined("SELECT g, repeat('x', g % 100), nullif(g % 3, 0) FROM generate_series(1, 2000) g"))
	requireSame(t, s, other, calls)

	t.Run("with types that the program has registered", func(t *testing.T) {
		for _, s := range []dialects.Session{s, other} {
			conn := s.Conn().(*stdlib.Conn).Conn()
			for _, name := range []string{"color", "_color", "pair", "_pair", "positive"} {
				typ, err := conn.LoadType(t.Context(), name)
				require.NoError(t, err)
				conn.TypeMap().RegisterType(typ)
			}
		}
		requireSame(t, s, other, calls)
	})
}

// Every type of the server, with no value.
func TestPostgresPipelinedColumnsAreThoseOfPgx(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	_, tmpl := pgTemplate(t, account.URL())
	s, other := pgDial(t, tmpl), pgDial(t, tmpl)
	rows, err := account.Witness(t).Query("SELECT format_type(oid, NULL) FROM pg_type WHERE typtype IN ('b', 'r', 'm') AND typname !~ '^_?pg_' ORDER BY oid")
	require.NoError(t, err)
	defer rows.Close()
	var calls []dialects.PipelinedQuery
	for rows.Next() {
		var name string
		require.NoError(t, rows.Scan(&name))
		calls = append(calls, pipelined("SELECT NULL::"+name))
	}
	require.NoError(t, rows.Err())
	require.Greater(t, len(calls), 100)
	requireSame(t, s, other, calls)
}

func TestPostgresPipelinedArgumentsAreEncodedByPgx(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	_, tmpl := pgTemplate(t, account.URL())
	s, other := pgDial(t, tmpl), pgDial(t, tmpl)
	var calls []dialects.PipelinedQuery
	for _, typ := range []string{"int4", "int8", "text", "bytea", "jsonb", "numeric", "timestamptz", "date", "bool", "uuid", "int4[]", "text[]", "float8", "inet"} {
		for _, arg := range []any{
			nil, 7, int64(-8), uint64(1) << 63, "9", "x", []byte("\x01"), []byte(nil), true, 1.5, time.Unix(1700000000, 5000).UTC(), []string{"a"}, []int{1, 2}, map[string]int{"a": 1},
			pgtype.Int4{Int32: 4, Valid: true}, pgtype.Text{}, (*int)(nil), new(int), struct{}{}, time.Second, panics{},
		} {
			calls = append(calls, pipelined("SELECT $1::"+typ, arg))
		}
	}
	calls = append(calls, pipelined("SELECT $1", 1), pipelined("SELECT $1 || $2", "a", "b"), pipelined("SELECT 1", 2), pipelined("SELECT $1::int"))
	calls = withoutPanics(calls)
	requireSame(t, s, other, calls)

	asked := 0
	odd := []dialects.PipelinedQuery{
		pipelined("SELECT $1::int", panics{}), pipelined("SELECT @n::int", pgx.NamedArgs{"n": 1}), pipelined("SELECT 1", pgx.QueryExecModeExec),
		pipelined(""), pipelined("SELECT 1", pgx.QueryResultFormats{1}), pipelined("SELECT 1", pgx.QueryResultFormatsByOID{}), pipelined("SELECT 1"),
	}
	require.NoError(t, s.(dialects.Pipeliner).QueryTogether(t.Context(), odd, pipelineLimit, func(i int, _ driver.Rows, err error) {
		if asked++; i < len(odd)-1 {
			require.ErrorIs(t, err, dialects.ErrNotPipelined)
			return
		}
		require.NoError(t, err)
	}))
	require.Equal(t, len(odd), asked)
}

type panics struct{}

func (panics) Value() (driver.Value, error) { panic("the program's") }

func withoutPanics(calls []dialects.PipelinedQuery) (kept []dialects.PipelinedQuery) {
	for _, call := range calls {
		if len(call.Args) == 0 || call.Args[0].Value != any(panics{}) {
			kept = append(kept, call)
		}
	}
	return kept
}

// randomCall is one of some texts. One of ten fails, some of these after a few rows.
func randomCall(random *rand.Rand) dialects.PipelinedQuery {
	n := random.IntN(1000)
	if random.IntN(10) == 0 {
		return []dialects.PipelinedQuery{
			pipelined("SELECT 1 / $1::int", 0), pipelined("SELECT $1::text::int", "x"), pipelined("SELEC 1"), pipelined("SELECT * FROM nowhere"),
			pipelined("SELECT 10 / (3 - g) FROM generate_series(1, $1::int) g", 5), pipelined("SELECT $1::int", "no number"), pipelined("SELECT 1", n),
		}[random.IntN(7)]
	}
	return []dialects.PipelinedQuery{
		pipelined("SELECT $1::int", n), pipelined("SELECT $1::text, $2::timestamptz", fmt.Sprint(n), time.Unix(int64(n), 0)), pipelined("SELECT g FROM generate_series(1, $1::int) g", n%20),
		pipelined("SELECT repeat('x', $1)", n), pipelined("SELECT NULL, $1::bytea", []byte(fmt.Sprint(n))), pipelined(fmt.Sprintf("SELECT %d AS n", n)), pipelined("SELECT 1 WHERE $1", n%2 == 0),
	}[random.IntN(7)]
}

func TestPostgresPipelinesGiveWhatQueriesAloneGive(t *testing.T) {
	t.Parallel()
	try := func(name string, dial, dialOther func(t *testing.T) dialects.Session) {
		random := rand.New(rand.NewPCG(randomtest.Seed(t), 0))
		t.Run(name, func(t *testing.T) {
			s, other := dial(t), dialOther(t)
			require.NoError(t, s.(dialects.Pipeliner).Trial(t.Context()))
			for range randomtest.Rounds(60, 3000) {
				calls := make([]dialects.PipelinedQuery, 1+random.IntN(24))
				for i := range calls {
					calls[i] = randomCall(random)
				}
				requireSame(t, s, other, calls)
				alone := pipelined("SELECT $1::int", 7)
				require.Equal(t, queryPlain(t, other, alone, false), queryPlain(t, s, alone, false))
			}
		})
	}
	parsed := func(account testbed.Account, parameters ...string) func(t *testing.T) dialects.Session {
		return func(t *testing.T) dialects.Session {
			_, tmpl := pgTemplate(t, account.URL(parameters...))
			return pgDial(t, tmpl)
		}
	}
	plain := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	try("plain", parsed(plain), parsed(plain))
	few := parsed(plain, "statement_cache_capacity=3")
	try("few statements", few, few)
	wrapped := func(t *testing.T) dialects.Session {
		d, _ := pgTemplate(t, plain.URL())
		tmpl, err := d.Wrap(connectorOf(t, plain))
		require.NoError(t, err)
		return pgDial(t, tmpl)
	}
	try("wrapped", wrapped, wrapped)
	secure := parsed(testbed.Start(t, testbed.Postgres, testbed.WithTLSOnly()).NewAccount(t))
	try("TLS", secure, secure)

	behind := testbed.Start(t, testbed.Postgres, testbed.WithNetwork(testbed.NewNetwork(t), "db")).NewAccount(t)
	bouncer := testbed.StartPgBouncer(t, behind, "max_prepared_statements=20", "default_pool_size=2")
	// pgx alone cannot repeat a text behind PgBouncer that was refused: it prepares the name again.
	try("PgBouncer", parsed(behind.Via(bouncer.Addr)), parsed(behind))
}

func TestPostgresPipelinesAreOnlyWherePgxWouldDoTheSame(t *testing.T) {
	t.Parallel()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	d, _ := pgTemplate(t, account.URL())
	refuses := func(s dialects.Session, as error) {
		t.Helper()
		sent, counted := s.Sent()
		require.ErrorIs(t, s.(dialects.Pipeliner).Trial(t.Context()), as)
		after, _ := s.Sent()
		require.Equal(t, sent, after)
		require.Equal(t, counted, after > 0)
	}
	for _, parameter := range []string{"default_query_exec_mode=exec", "default_query_exec_mode=cache_describe", "statement_cache_capacity=0"} {
		_, tmpl := pgTemplate(t, account.URL(parameter))
		refuses(pgDial(t, tmpl), errors.ErrUnsupported)
	}
	config, err := pgx.ParseConfig(account.URL())
	require.NoError(t, err)
	config.Tracer = &tracer{}
	tmpl, err := d.Wrap(stdlib.GetConnector(*config))
	require.NoError(t, err)
	refuses(pgDial(t, tmpl), errors.ErrUnsupported)

	_, tmpl = pgTemplate(t, account.URL())
	s := pgDial(t, tmpl)
	pgExec(t, s, "BEGIN")
	refuses(s, dialects.ErrNotPipelined) // for now
	require.NoError(t, s.Rollback(t.Context()))

	tx, err := s.(dialects.LazyBeginner).BeginWithNext(t.Context(), driver.TxOptions{})
	require.NoError(t, err)
	refuses(s, dialects.ErrNotPipelined) // for now
	require.EqualValues(t, 1, pgValue(t, s, "SELECT 1"))
	require.Equal(t, dialects.TxOpen, s.TxStatus())
	require.NoError(t, tx.Rollback())

	carrier := s.(dialects.SettingsCarrier)
	require.NoError(t, carrier.CarrySettings(t.Context(), []dialects.ContextSetting{{Name: "my.tenant", Value: "7"}}))
	refuses(s, dialects.ErrNotPipelined) // for now
	require.Equal(t, "7", pgValue(t, s, "SELECT current_setting('my.tenant')"))
	require.True(t, carrier.DropSettings())
	require.NoError(t, s.(dialects.Pipeliner).Trial(t.Context()))
}

type tracer struct{ pgx.QueryTracer }
