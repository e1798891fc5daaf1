package postgres

import (
	"bytes"
	"context"
	"database/sql/driver"
	"encoding/hex"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/testing/rowstest"
)

// portal answers the extended protocol with rows.
type portal struct {
	rows    rowsOf
	formats []int16 // of the columns; none: all are text
}

// rowsOf makes the rows of one letter: see value.
type rowsOf byte

// findRows knows the queries "ROWS a" to "ROWS z".
func findRows(query string) (rows rowsOf, ok bool) {
	letter, ok := strings.CutPrefix(query, "ROWS ")
	if !ok || len(letter) != 1 {
		return 0, false
	}
	return rowsOf(letter[0]), true
}

const rowCount = 100

// rowTypes are those that stdlib makes bytes of, some others, and one that pgx
// does not know.
var rowTypes = []uint32{pgtype.ByteaOID, pgtype.JSONOID, pgtype.JSONBOID, pgtype.XMLOID, pgtype.TextOID, pgtype.NumericOID, pgtype.ByteaArrayOID, 99999}

// value is that of a column in row n, in text: each row is of another length.
func (r rowsOf) value(n int, typ uint32) string {
	text := strings.Repeat(string(rune(r)), n*n%9000+1)
	switch typ {
	case pgtype.ByteaOID:
		return `\x` + hex.EncodeToString([]byte(text))
	case pgtype.JSONOID, pgtype.JSONBOID:
		return `"` + text + `"`
	case pgtype.XMLOID:
		return "<a>" + text + "</a>"
	case pgtype.NumericOID:
		return fmt.Sprint(n)
	case pgtype.ByteaArrayOID:
		return `{"\\x` + hex.EncodeToString([]byte(text)) + `"}`
	}
	return text
}

func (p portal) binary(column int) bool {
	return len(p.formats) == 1 && p.formats[0] == 1 || column < len(p.formats) && p.formats[column] == 1
}

func (p portal) describe(b *pgproto3.Backend) {
	d := &pgproto3.RowDescription{}
	for i, oid := range rowTypes {
		f := pgproto3.FieldDescription{Name: []byte("c"), DataTypeOID: oid, DataTypeSize: -1, TypeModifier: -1}
		if p.binary(i) {
			f.Format = 1
		}
		d.Fields = append(d.Fields, f)
	}
	b.Send(d)
}

func (p portal) execute(b *pgproto3.Backend) {
	for n := range rowCount {
		row := &pgproto3.DataRow{}
		for i, oid := range rowTypes {
			value := []byte(p.rows.value(n, oid))
			if p.binary(i) && oid == pgtype.ByteaOID {
				// Upper case tells the formats apart.
				value, _ = hex.DecodeString(string(value[2:]))
				value = bytes.ToUpper(value)
			}
			row.Values = append(row.Values, value)
		}
		b.Send(row)
	}
	b.Send(&pgproto3.CommandComplete{CommandTag: []byte(fmt.Sprintf("SELECT %d", rowCount))})
}

func (p *portal) extended(b *pgproto3.Backend, msg pgproto3.FrontendMessage) {
	switch m := msg.(type) {
	case *pgproto3.Parse:
		p.rows, _ = findRows(m.Query)
		b.Send(&pgproto3.ParseComplete{})
	case *pgproto3.Describe:
		if m.ObjectType == 'S' {
			p.formats = nil
			b.Send(&pgproto3.ParameterDescription{})
		}
		p.describe(b)
	case *pgproto3.Bind:
		p.formats = append([]int16(nil), m.ResultFormatCodes...)
		b.Send(&pgproto3.BindComplete{})
	case *pgproto3.Execute:
		p.execute(b)
	case *pgproto3.Close:
		b.Send(&pgproto3.CloseComplete{})
	}
}

func TestTheBytesOfARowStayAsTheyAre(t *testing.T) {
	for mode, bytea := range map[string]string{"simple_protocol": "a", "describe_exec": "A", "cache_statement": "A"} {
		t.Run(mode, func(t *testing.T) {
			srv := newServer(t)
			srv.letGo()
			tmpl := srv.template(t, "default_query_exec_mode="+mode)
			s, err := tmpl.Dial(t.Context(), nil)
			require.NoError(t, err)
			t.Cleanup(func() { _ = s.Conn().Close() })
			query := func(letter string) driver.Rows {
				rows, err := s.Conn().(driver.QueryerContext).QueryContext(t.Context(), "ROWS "+letter, nil)
				require.NoError(t, err)
				return rows
			}
			rows := query("a")
			first := make([]driver.Value, len(rowTypes))
			require.NoError(t, rows.Next(first))
			require.Equal(t, []driver.Value{[]byte(bytea), []byte(`"a"`), []byte(`"a"`), []byte("<a>a</a>"), "a", "0", `{"\\x61"}`, "a"}, first)

			slices, changed := rowstest.Changed(t, rows, func() {
				for _, letter := range []string{"b", "c"} {
					rowstest.Changed(t, query(letter), func() {})
				}
			})
			require.Equal(t, 4*(rowCount-1), slices)
			require.Zero(t, changed)
			require.Equal(t, []byte(bytea), first[0])
			require.True(t, tmpl.Traits().BytesKept)

			raw, err := s.(*session).pgx.Query(t.Context(), "ROWS a")
			require.NoError(t, err)
			slices, changed = rowstest.Changed(t, rawRows{raw}, func() {})
			require.Equal(t, len(rowTypes)*rowCount, slices)
			require.Positive(t, changed, "pgx itself reuses its memory, so that there was something to be kept")
			require.NoError(t, s.Close(t.Context()))
		})
	}
}

// rawRows are the bytes that came from the network, where they came.
type rawRows struct{ pgx.Rows }

func (r rawRows) Columns() []string { return make([]string, len(r.FieldDescriptions())) }
func (r rawRows) Close() error      { r.Rows.Close(); return r.Err() }
func (r rawRows) Next(dest []driver.Value) error {
	if !r.Rows.Next() {
		return io.EOF
	}
	for i, v := range r.RawValues() {
		dest[i] = v
	}
	return nil
}

func TestOnlyPgxItselfIsKnownToKeepBytesAndArgumentsAndDeriveNoContext(t *testing.T) {
	config, err := pgx.ParseConfig("postgres://u@h/d")
	require.NoError(t, err)
	opened, err := stdlib.GetDefaultDriver().(driver.DriverContext).OpenConnector("postgres://u@h/d")
	require.NoError(t, err)
	for _, c := range []struct {
		connector driver.Connector
		want      bool
	}{
		{stdlib.GetConnector(*config), true},
		{opened, true},
		{aroundPgx{opened}, false},
		{&aroundPgx{opened}, false},
	} {
		tmpl, err := dialect{}.Wrap(c.connector)
		require.NoError(t, err)
		want := traits
		want.BytesKept, want.ArgsAsGiven, want.TxDerivesContext = c.want, c.want, !c.want
		require.Equal(t, want, tmpl.Traits(), "%T", c.connector)
	}
}

// aroundPgx is somebody else's connector that calls pgx's.
type aroundPgx struct{ driver.Connector }

func (a aroundPgx) Connect(ctx context.Context) (driver.Conn, error) { return a.Connector.Connect(ctx) }
