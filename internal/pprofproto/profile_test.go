package pprofproto

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// field is one field of a message: a number, or bytes.
type field struct {
	tag    uint64
	number uint64
	bytes  []byte
}

func fieldsOf(t *testing.T, m []byte) (fields []field) {
	next := func() uint64 {
		n, size := binary.Uvarint(m)
		require.Positive(t, size)
		m = m[size:]
		return n
	}
	for len(m) > 0 {
		tag := next()
		f := field{tag: tag >> 3, number: next()}
		if tag&7 == sized {
			f.bytes, m = m[:f.number], m[f.number:]
		}
		fields = append(fields, f)
	}
	return fields
}

func varints(t *testing.T, m []byte) (numbers []uint64) {
	for len(m) > 0 {
		n, size := binary.Uvarint(m)
		require.Positive(t, size)
		numbers, m = append(numbers, n), m[size:]
	}
	return numbers
}

// TestAProfileIsReadBack reads with nothing but the wire format. The integration tests
// read with pprof's own library.
func TestAProfileIsReadBack(t *testing.T) {
	a, b := Frame{"main.a", "a.go", 10}, Frame{"main.b", "b.go", 20}
	again := Frame{"main.a", "a.go", 11}
	var out bytes.Buffer
	require.NoError(t, (&Profile{
		Types:   []ValueType{{"held", "nanoseconds"}, {"count", "count"}},
		Default: "held",
		Samples: []Sample{{[]Frame{a, b}, []int64{5, 1}}, {[]Frame{again, b}, []int64{-1, 300}}},
		At:      time.Unix(0, 77),
		For:     time.Second,
	}).Write(&out))
	z, err := gzip.NewReader(&out)
	require.NoError(t, err)
	raw, err := io.ReadAll(z)
	require.NoError(t, err)

	var table []string
	var samples []Sample
	functions, locations := map[uint64]Frame{}, map[uint64]Frame{}
	fields := fieldsOf(t, raw)
	for _, f := range fields { // what others refer to
		switch f.tag {
		case profileStringTable:
			table = append(table, string(f.bytes))
		}
	}
	require.Empty(t, table[0])
	for _, f := range fields {
		if f.tag == profileFunction {
			m := fieldsOf(t, f.bytes)
			functions[m[0].number] = Frame{Func: table[m[1].number], File: table[m[3].number]}
			require.Equal(t, m[1].number, m[2].number, "the system's name is the name")
		}
	}
	for _, f := range fields {
		if f.tag == profileLocation {
			m := fieldsOf(t, f.bytes)
			line := fieldsOf(t, m[1].bytes)
			frame := functions[line[0].number]
			frame.Line = int(line[1].number)
			locations[m[0].number] = frame
		}
	}
	for _, f := range fields {
		switch f.tag {
		case profileSample:
			m := fieldsOf(t, f.bytes)
			var s Sample
			for _, id := range varints(t, m[0].bytes) {
				s.Stack = append(s.Stack, locations[id])
			}
			for _, v := range varints(t, m[1].bytes) {
				s.Values = append(s.Values, int64(v))
			}
			samples = append(samples, s)
		case profileTimeNanos:
			require.EqualValues(t, 77, f.number)
		case profileDurationNanos:
			require.EqualValues(t, time.Second, f.number)
		case profileDefaultType:
			require.Equal(t, "held", table[f.number])
		}
	}
	require.Equal(t, []Sample{{[]Frame{a, b}, []int64{5, 1}}, {[]Frame{again, b}, []int64{-1, 300}}}, samples)
	require.Len(t, functions, 2, "a function is written once")
	require.Len(t, locations, 3)
}
