package pgxpooldriver

import (
	"reflect"
	"slices"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Rows are scanned without the lock of their session, because a scan may call code of the program, which may use its
// task. Meanwhile the connection may have another user, and a pgtype.Map is for one user at a time. So rows are scanned
// by copies of the connection's types, which the connection keeps for its next rows.

// side is what a connection of pgx keeps for us.
type side struct {
	mode      pgx.QueryExecMode // the mode in which pgx executes by default
	described bool              // pgx has a cache of descriptions

	mu      sync.Mutex
	free    []*decoder
	version int // counts forgetTypes
}

const (
	sideKey     = "github.com/pooldriver/pooldriver/pgxpooldriver"
	mostFree    = 4
	mostKept    = 64 << 10 // bytes of memory for a row that a decoder keeps
	firstOwnOID = 16384    // PostgreSQL's FirstNormalObjectId: types of the program begin here
)

// sideOf is called while the connection has no other user.
func sideOf(c *pgx.Conn) *side {
	data := c.PgConn().CustomData()
	s, ok := data[sideKey].(*side)
	if !ok {
		config := c.Config()
		s = &side{mode: config.DefaultQueryExecMode, described: config.DescriptionCacheCapacity > 0}
		data[sideKey] = s
	}
	return s
}

// forgetTypes has later rows copy the types again.
func forgetTypes(c *pgx.Conn) {
	if c == nil {
		return
	}
	s := sideOf(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free = nil
	s.version++
}

// decoder scans rows. One Rows has it at a time.
type decoder struct {
	side    *side
	version int
	types   *pgtype.Map
	owned   map[uint32]bool // types that were replaced by ownEnums

	fields []pgconn.FieldDescription
	values [][]byte // the values of the present row, slices of data
	data   []byte
	plans  []pgtype.ScanPlan
	dests  []reflect.Type // for which the plans were made
}

// takeDecoder is called while the connection has no other user.
func takeDecoder(c *pgx.Conn) *decoder {
	s := sideOf(c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if n := len(s.free); n > 0 {
		d := s.free[n-1]
		s.free = s.free[:n-1]
		return d
	}
	of := c.TypeMap()
	d := &decoder{side: s, version: s.version, types: of.Copy()}
	d.types.TryWrapScanPlanFuncs = slices.Clone(of.TryWrapScanPlanFuncs)
	return d
}

// giveBack ends the use of a decoder.
func (d *decoder) giveBack() {
	clear(d.plans)
	clear(d.dests)
	d.plans, d.dests = d.plans[:0], d.dests[:0]
	clear(d.values)
	if d.values = d.values[:0]; cap(d.data) > mostKept {
		d.data = nil
	}
	s := d.side
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.version == s.version && len(s.free) < mostFree {
		s.free = append(s.free, d)
	}
}

// describe begins a result with these columns.
func (d *decoder) describe(fields []pgconn.FieldDescription) {
	same := slices.EqualFunc(d.fields, fields, func(a, b pgconn.FieldDescription) bool {
		return a.DataTypeOID == b.DataTypeOID && a.Format == b.Format
	})
	d.fields = append(d.fields[:0], fields...)
	if same {
		return // so are the plans: a batch often repeats a query
	}
	d.plans, d.dests = d.plans[:0], d.dests[:0]
	for _, f := range fields {
		if f.DataTypeOID < firstOwnOID || d.owned[f.DataTypeOID] {
			continue
		}
		if t, ok := d.types.TypeForOID(f.DataTypeOID); ok {
			if own := ownEnums(t); own != t {
				d.types.RegisterType(own)
			}
		}
		if d.owned == nil {
			d.owned = map[uint32]bool{}
		}
		d.owned[f.DataTypeOID] = true
	}
}

// ownEnums returns t if t contains no enum, else a copy of t whose enum has its own codec: the codec of an enum writes
// when it reads.
func ownEnums(t *pgtype.Type) *pgtype.Type {
	codec := func(c pgtype.Codec) *pgtype.Type { return &pgtype.Type{Codec: c, Name: t.Name, OID: t.OID} }
	switch c := t.Codec.(type) {
	case *pgtype.EnumCodec:
		return codec(new(pgtype.EnumCodec))
	case *pgtype.ArrayCodec:
		if own := ownEnums(c.ElementType); own != c.ElementType {
			return codec(&pgtype.ArrayCodec{ElementType: own, Delimiter: c.Delimiter})
		}
	case *pgtype.RangeCodec:
		if own := ownEnums(c.ElementType); own != c.ElementType {
			return codec(&pgtype.RangeCodec{ElementType: own})
		}
	case *pgtype.MultirangeCodec:
		if own := ownEnums(c.ElementType); own != c.ElementType {
			return codec(&pgtype.MultirangeCodec{ElementType: own})
		}
	case *pgtype.CompositeCodec:
		fields := slices.Clone(c.Fields)
		for i := range fields {
			fields[i].Type = ownEnums(fields[i].Type)
		}
		if !slices.Equal(fields, c.Fields) {
			return codec(&pgtype.CompositeCodec{Fields: fields})
		}
	}
	return t
}

// hold copies the row that pgx has read: pgx uses its memory again when anybody reads on.
func (d *decoder) hold(row [][]byte) {
	size := 0
	for _, v := range row {
		size += len(v)
	}
	d.data, d.values = slices.Grow(d.data[:0], size), d.values[:0]
	for _, v := range row {
		d.values = append(d.values, appended(&d.data, v))
	}
}

// appended copies v, which fits, to the end of data.
func appended(data *[]byte, v []byte) []byte {
	switch {
	case v == nil:
		return nil // NULL
	case len(v) == 0:
		return []byte{} // a slice of no data may be nil
	}
	from := len(*data)
	*data = append(*data, v...)
	return (*data)[from:len(*data):len(*data)]
}

// cloned copies a row into memory of its own.
func cloned(row [][]byte) [][]byte {
	var d decoder
	d.hold(row)
	return d.values
}
