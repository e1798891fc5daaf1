// Package pprofproto writes profiles in the format of pprof: the message Profile of
// github.com/google/pprof/proto/profile.proto, as a protocol buffer, compressed. It knows
// the few fields that a profile by call site needs.
package pprofproto

import (
	"compress/gzip"
	"encoding/binary"
	"io"
	"time"
)

// Profile is a profile of samples that have the same values.
type Profile struct {
	Types   []ValueType // of the values of each sample
	Default string      // the Type of the values that pprof shows first
	Samples []Sample
	At      time.Time     // when it was taken
	For     time.Duration // the time that it covers
}

// ValueType describes a value: "held", "nanoseconds".
type ValueType struct{ Type, Unit string }

// Sample is the values of one call stack.
type Sample struct {
	Stack  []Frame // the innermost call first
	Values []int64 // one for each of Profile.Types
}

// Frame is one call.
type Frame struct {
	Func, File string
	Line       int
}

// The numbers of the fields in profile.proto.
const (
	profileSampleType    = 1
	profileSample        = 2
	profileLocation      = 4
	profileFunction      = 5
	profileStringTable   = 6
	profileTimeNanos     = 9
	profileDurationNanos = 10
	profileDefaultType   = 14

	valueTypeType = 1
	valueTypeUnit = 2

	sampleLocationID = 1
	sampleValue      = 2

	locationID   = 1
	locationLine = 4

	lineFunctionID = 1
	lineLine       = 2

	functionID         = 1
	functionName       = 2
	functionSystemName = 3
	functionFilename   = 4
)

// Write writes the profile.
func (p *Profile) Write(w io.Writer) error {
	z := gzip.NewWriter(w)
	if _, err := z.Write(p.encode()); err != nil {
		return err
	}
	return z.Close()
}

// encode builds the message. Functions and locations are written once each, and strings
// stand in a table whose first entry is empty.
func (p *Profile) encode() []byte {
	e := encoder{
		strings:   map[string]uint64{"": 0},
		table:     []string{""},
		functions: make(map[Frame]uint64),
		locations: make(map[Frame]uint64),
	}
	for _, t := range p.Types {
		var m message
		m.number(valueTypeType, e.text(t.Type))
		m.number(valueTypeUnit, e.text(t.Unit))
		e.out.bytes(profileSampleType, m)
	}
	for _, s := range p.Samples {
		var m, stack, values message
		for _, f := range s.Stack {
			stack = binary.AppendUvarint(stack, e.location(f))
		}
		for _, v := range s.Values {
			values = binary.AppendUvarint(values, uint64(v))
		}
		m.bytes(sampleLocationID, stack)
		m.bytes(sampleValue, values)
		e.out.bytes(profileSample, m)
	}
	e.out.number(profileTimeNanos, uint64(p.At.UnixNano()))
	e.out.number(profileDurationNanos, uint64(p.For))
	e.out.number(profileDefaultType, e.text(p.Default))
	for _, text := range e.table {
		e.out.bytes(profileStringTable, []byte(text))
	}
	return e.out
}

// encoder is a message that is being built, with the strings, functions and locations numbered so
// far.
type encoder struct {
	out       message
	strings   map[string]uint64
	table     []string
	functions map[Frame]uint64 // by name and file
	locations map[Frame]uint64
}

func (e *encoder) text(s string) uint64 {
	n, known := e.strings[s]
	if !known {
		n = uint64(len(e.table))
		e.strings[s] = n
		e.table = append(e.table, s)
	}
	return n
}

func (e *encoder) function(f Frame) uint64 {
	f.Line = 0
	n, known := e.functions[f]
	if !known {
		n = uint64(len(e.functions) + 1)
		e.functions[f] = n
		var m message
		m.number(functionID, n)
		m.number(functionName, e.text(f.Func))
		m.number(functionSystemName, e.text(f.Func))
		m.number(functionFilename, e.text(f.File))
		e.out.bytes(profileFunction, m)
	}
	return n
}

func (e *encoder) location(f Frame) uint64 {
	n, known := e.locations[f]
	if !known {
		n = uint64(len(e.locations) + 1)
		e.locations[f] = n
		var line, m message
		line.number(lineFunctionID, e.function(f))
		line.number(lineLine, uint64(f.Line))
		m.number(locationID, n)
		m.bytes(locationLine, line)
		e.out.bytes(profileLocation, m)
	}
	return n
}

// message is a protocol buffer. Each field has a tag: its number and its encoding.
type message []byte

const (
	varint = 0
	sized  = 2
)

func (m *message) number(field int, n uint64) {
	*m = binary.AppendUvarint(*m, uint64(field)<<3|varint)
	*m = binary.AppendUvarint(*m, n)
}

func (m *message) bytes(field int, b []byte) {
	*m = binary.AppendUvarint(*m, uint64(field)<<3|sized)
	*m = binary.AppendUvarint(*m, uint64(len(b)))
	*m = append(*m, b...)
}
