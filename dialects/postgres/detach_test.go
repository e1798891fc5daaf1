package postgres

import (
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"
)

func TestPgxKeepsItsRowsWhereWeLook(t *testing.T) {
	require.True(t, rowsField.Known())
}

// The race detector finds a codec that is used by both: the codec of an enum writes.
func TestDetachedColumnsMayBeScannedBesideTheirConnection(t *testing.T) {
	live := pgtype.NewMap()
	enum := &pgtype.Type{Name: "color", OID: 90001, Codec: &pgtype.EnumCodec{}}
	list := &pgtype.Type{Name: "_color", OID: 90002, Codec: &pgtype.ArrayCodec{ElementType: enum}}
	pair := &pgtype.Type{Name: "pair", OID: 90003, Codec: &pgtype.CompositeCodec{Fields: []pgtype.CompositeCodecField{{Name: "c", Type: enum}}}}
	span := &pgtype.Type{Name: "span", OID: 90004, Codec: &pgtype.RangeCodec{ElementType: enum}}
	spans := &pgtype.Type{Name: "spans", OID: 90005, Codec: &pgtype.MultirangeCodec{ElementType: span}}
	var fields []pgconn.FieldDescription
	for _, typ := range []*pgtype.Type{enum, list, pair, span, spans} {
		live.RegisterType(typ)
		fields = append(fields, pgconn.FieldDescription{DataTypeOID: typ.OID, Format: pgtype.TextFormatCode})
	}
	detached := &columns{fields: fields, types: copyTypes(live, fields)}
	for i, field := range fields {
		own, ok := detached.types.TypeForOID(field.DataTypeOID)
		require.True(t, ok)
		shared, _ := live.TypeForOID(field.DataTypeOID)
		require.NotSame(t, shared, own, shared.Name)
		require.Equal(t, shared.Name, own.Name, i)
	}
	integer, _ := detached.types.TypeForOID(pgtype.Int4OID)
	shared, _ := live.TypeForOID(pgtype.Int4OID)
	require.Same(t, shared, integer, "what has no enum is shared")

	var group sync.WaitGroup
	group.Go(func() {
		for range 100 {
			var got []pgtype.Text
			_, err := detached.Scan(1, []byte("{red,green}"), &got)
			if err != nil || len(got) != 2 {
				t.Error(got, err)
			}
		}
	})
	for range 100 {
		var got []pgtype.Text
		require.NoError(t, live.Scan(list.OID, pgtype.TextFormatCode, []byte("{red,green}"), &got))
	}
	group.Wait()
}

func TestScalarsAreLeftToDatabaseSQL(t *testing.T) {
	type itself *itself
	for _, c := range []struct {
		dest any
		want bool
	}{
		{new(string), true}, {new(*string), true}, {new([]byte), true}, {new(any), true}, {new(time.Time), true},
		{new(pgtype.Text), true}, {new(uint8), true}, {new(*float32), true}, {new(time.Duration), true},
		{new([]string), false}, {new([2]int), false}, {new(pgtype.Range[pgtype.Int4]), false}, {new(pgtype.FlatArray[byte]), false},
		{new(uintptr), false}, {new(complex64), false}, {new(itself), false}, {new(pgtype.PreallocBytes), false},
	} {
		require.Equal(t, c.want, convertsValue(reflect.TypeOf(c.dest)), "%T", c.dest)
	}
}
