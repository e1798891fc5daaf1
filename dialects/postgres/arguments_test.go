package postgres

import (
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"
)

// ran counts the methods of the program's types below.
var ran int

type (
	plainID  [16]byte
	status   string // with String
	weekday  int    // with String
	celsius  float64
	amount   struct{ cents int64 } // with Value
	clock    struct{ at time.Time }
	bytesOf  string
	absent   struct{}
	refusing struct{}
	panics   struct{}
	foreign  struct{}
	byHand   struct{ amount } // with TextValue
	document struct{ n int }  // with MarshalJSON
	both     struct{ n int }  // with Value and MarshalJSON
	byRef    struct{ n int }  // whose pointer has Value
	nested   struct {
		At   time.Time
		Name string
		ID   plainID
	}
)

func (s status) String() string  { ran++; return "the status " + string(s) }
func (d weekday) String() string { ran++; return fmt.Sprint("day ", int(d)) }
func (c celsius) String() string { ran++; return "warm" }
func (a amount) Value() (driver.Value, error) {
	ran++
	return fmt.Sprintf("%d.%02d", a.cents/100, a.cents%100), nil
}
func (c clock) Value() (driver.Value, error)   { ran++; return c.at, nil }
func (b bytesOf) Value() (driver.Value, error) { ran++; return []byte(b), nil }
func (absent) Value() (driver.Value, error)    { ran++; return nil, nil }
func (refusing) Value() (driver.Value, error)  { ran++; return nil, errors.New("no") }
func (panics) Value() (driver.Value, error)    { ran++; panic("no") }
func (foreign) Value() (driver.Value, error)   { ran++; return []string{"a"}, nil }
func (byHand) TextValue() (pgtype.Text, error) {
	ran++
	return pgtype.Text{String: "by hand", Valid: true}, nil
}
func (d document) MarshalJSON() ([]byte, error) { ran++; return fmt.Append(nil, d.n), nil }
func (b both) Value() (driver.Value, error)     { ran++; return fmt.Sprint(b.n), nil }
func (both) MarshalJSON() ([]byte, error)       { ran++; return []byte(`"never"`), nil }
func (b *byRef) Value() (driver.Value, error)   { ran++; return int64(b.n), nil }

// TestAKeptArgumentIsEncodedAsPgxEncodesIt for parameters of all types, and no code of the program runs then.
func TestAKeptArgumentIsEncodedAsPgxEncodesIt(t *testing.T) {
	day := time.Date(2026, 2, 3, 4, 5, 6, 7000, time.UTC)
	some := amount{1234}
	kept := []any{nil, true, 1, int32(2), int64(3), 1.5, "text", "12", day, time.Second, netip.MustParseAddr("10.0.0.1"), netip.MustParsePrefix("10.0.0.0/8"),
		[]byte("raw"), json.RawMessage(`{"a": 1}`), plainID{1, 2}, nested{Name: "x"}, [2]string{"a", "b"}, int8(1), uint64(1 << 63), float32(2.5),
		status("good"), status("7"), weekday(3), celsius(20), some, &some, clock{day}, bytesOf("raw"), absent{}, both{5},
		sql.NullString{String: "abc", Valid: true}, sql.NullString{}, sql.NullInt64{Int64: 5, Valid: true}, sql.NullTime{Time: day, Valid: true}, sql.Null[int64]{V: 4, Valid: true},
		pgtype.Text{String: "abc", Valid: true}, pgtype.UUID{Bytes: [16]byte{1}, Valid: true}, pgtype.Date{Time: day, Valid: true}, time.March}
	oids := []uint32{0, 99999, pgtype.TextOID, pgtype.VarcharOID, pgtype.BPCharOID, pgtype.NameOID, pgtype.Int2OID, pgtype.Int4OID, pgtype.Int8OID, pgtype.OIDOID,
		pgtype.Float4OID, pgtype.Float8OID, pgtype.NumericOID, pgtype.BoolOID, pgtype.ByteaOID, pgtype.UUIDOID, pgtype.JSONOID, pgtype.JSONBOID, pgtype.XMLOID,
		pgtype.DateOID, pgtype.TimeOID, pgtype.TimestampOID, pgtype.TimestamptzOID, pgtype.IntervalOID, pgtype.InetOID, pgtype.CIDROID, pgtype.MacaddrOID, pgtype.BitOID,
		pgtype.TextArrayOID, pgtype.Int4ArrayOID, pgtype.PointOID, pgtype.Int4rangeOID}
	encoded := 0
	for _, value := range kept {
		for _, oid := range oids {
			m, of := pgtype.NewMap(), fmt.Sprintf("%T %v as %d", value, value, oid)
			described := &pgconn.StatementDescription{ParamOIDs: []uint32{oid}}
			var bare, ours pgx.ExtendedQueryBuilder
			wrong := bare.Build(m, described, []any{value})
			given, size, ok := dialect{}.KeepArgument(value)
			require.True(t, ok, of)
			require.GreaterOrEqual(t, size, 0)
			ran = 0
			given, ok = toEncode(m, oid, given)
			require.True(t, ok, of)
			err := ours.Build(m, described, []any{given})
			require.Zero(t, ran, of)
			require.Equal(t, wrong == nil, err == nil, "%s: %v, %v", of, wrong, err)
			if err == nil {
				encoded++
				require.Equal(t, bare.ParamValues, ours.ParamValues, of)
				require.Equal(t, bare.ParamFormats, ours.ParamFormats, of)
			}
		}
	}
	require.Greater(t, encoded, 400)
}

func TestArgumentsOfWhichNothingIsKnownAreNotKept(t *testing.T) {
	text := "text"
	var none *amount
	for _, value := range []any{[]int64{1}, []string{"a"}, &text, map[string]int{}, struct{ p *int }{}, [1][]byte{}, [1]*int{}, func() {}, sql.Out{},
		none, refusing{}, panics{}, foreign{}, byHand{}, document{}, &byRef{}, [1]status{}, struct{ S amount }{}, [1]sql.NullString{}, pgtype.Numeric{}, pgtype.FlatArray[int]{1},
		pgx.QueryExecModeExec, pgx.NamedArgs{}, errors.New("x")} {
		_, _, ok := dialect{}.KeepArgument(value)
		require.False(t, ok, "%T", value)
	}
}

// The pipeline may read them when the program's call has returned, and the program has changed what they refer to.
func TestAKeptArgumentIsACopy(t *testing.T) {
	for _, of := range []func([]byte) any{func(b []byte) any { return b }, func(b []byte) any { return json.RawMessage(b) }, func(b []byte) any { return sql.Null[[]byte]{V: b, Valid: true} }} {
		raw := []byte("12")
		kept, _, ok := dialect{}.KeepArgument(of(raw))
		require.True(t, ok)
		raw[0] = 'x'
		var built pgx.ExtendedQueryBuilder
		require.NoError(t, built.Build(pgtype.NewMap(), &pgconn.StatementDescription{ParamOIDs: []uint32{pgtype.JSONOID}}, []any{kept}))
		require.Equal(t, "12", string(built.ParamValues[0]))
	}
	for value, size := range map[any]int{
		1: 0, "abc": 3, plainID{}: 16, [2]string{"abc", "de"}: 5, status("abc"): 3, sql.NullString{String: "abc", Valid: true}: 3, amount{1}: 4, bytesOf("abc"): 3,
		nested{Name: strings.Repeat("x", 10_000)}: 10_000,
	} {
		_, got, ok := dialect{}.KeepArgument(value)
		require.True(t, ok)
		require.GreaterOrEqual(t, got, size, "%T", value)
	}
}

// amountCodec is a codec of the program's, which knows amount.
type amountCodec struct{ pgtype.TextCodec }

func (c amountCodec) PlanEncode(m *pgtype.Map, oid uint32, format int16, v any) pgtype.EncodePlan {
	if _, ok := v.(amount); ok {
		return amountPlan{}
	}
	return c.TextCodec.PlanEncode(m, oid, format, v)
}

type amountPlan struct{}

func (amountPlan) Encode(any, []byte) ([]byte, error) { return []byte("by the codec"), nil }

func TestACodecThatKnowsATypeIsAskedForIt(t *testing.T) {
	m := pgtype.NewMap()
	m.RegisterType(&pgtype.Type{Name: "amount", OID: 99999, Codec: amountCodec{}})
	kept, _, ok := dialect{}.KeepArgument(amount{1})
	require.True(t, ok)
	_, ok = toEncode(m, 99999, kept)
	require.False(t, ok, "pgx would not call Value")
	_, ok = toEncode(m, pgtype.TextOID, kept)
	require.True(t, ok)
}
