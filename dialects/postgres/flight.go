package postgres

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/jackc/pgx/v5/pgproto3"
)

// The messages are those of the PostgreSQL protocol manual, 55.7.

const headerSize = 5 // type, and a length that counts itself but not the type

const (
	ready = "Z\x00\x00\x00\x05" // a ReadyForQuery, up to its status
	idle  = ready + "I"         // a ReadyForQuery outside of a transaction
)

var (
	syncMessage = []byte("S\x00\x00\x00\x04")
	goodbye     = []byte("X\x00\x00\x00\x04")
)

// firstMessage returns the message at the beginning of b; nil: the message is not complete.
func firstMessage(b []byte) ([]byte, error) {
	if len(b) < headerSize {
		return nil, nil
	}
	size := uint64(binary.BigEndian.Uint32(b[1:])) + 1
	switch {
	case size < headerSize:
		return nil, fmt.Errorf("a message of type %q has the length %d", b[0], size-1)
	case size > uint64(len(b)):
		return nil, nil
	}
	return b[:size], nil
}

// flight is one write of pgx, read as protocol messages.
type flight struct {
	kind     flightKind
	text     []byte // of a query
	syncs    int    // ReadyForQuery messages that answer it
	executes bool   // a statement is executed
}

type flightKind uint8

const (
	mixed    flightKind = iota // anything else
	query                      // one simple query
	series                     // of the extended protocol, up to its only Sync
	closing                    // Close and Sync alone
	copying                    // the data of a COPY, or its end
	farewell                   // it ends with the connection's end
)

// readFlight looks at what pgx sends: whole messages.
func readFlight(p []byte) flight {
	var n counts
	for rest := p; len(rest) > 0; {
		msg, err := firstMessage(rest)
		if err != nil || msg == nil {
			return flight{kind: mixed}
		}
		rest = rest[len(msg):]
		switch {
		case msg[0] == 'X':
			return flight{kind: farewell}
		case msg[0] == 'Q' && n.total == 0 && len(rest) == 0:
			text, _, _ := bytes.Cut(msg[headerSize:], []byte{0})
			f := flight{kind: query, text: text, syncs: 1}
			f.executes = !f.harmless()
			return f
		}
		n.add(msg[0])
	}
	return flight{kind: n.kind(), syncs: n.syncs, executes: n.executes > 0}
}

// counts are the messages of a flight.
type counts struct {
	total, syncs int
	closes       int // Close and Sync
	extended     int // of the extended protocol, also the closes
	executes     int
	copies       int  // of a COPY
	last         byte // the type of the last message
}

func (n *counts) add(kind byte) {
	n.total++
	n.last = kind
	switch kind {
	case 'S':
		n.syncs++
		n.closes++
		n.extended++
	case 'C':
		n.closes++
		n.extended++
	case 'E':
		n.executes++
		n.extended++
	case 'P', 'B', 'D':
		n.extended++
	case 'd', 'c', 'f':
		n.copies++
	}
}

func (n *counts) kind() flightKind {
	switch {
	case n.copies == n.total:
		return copying
	case n.closes == n.total && n.last == 'S':
		return closing
	case n.extended == n.total && n.last == 'S' && n.syncs == 1:
		return series
	}
	return mixed
}

// harmless: f changes nothing, whether a transaction is open, failed, or not begun. The texts are
// those of pings, of pgx and of others, which have nothing to execute.
func (f flight) harmless() bool {
	switch f.kind {
	case closing:
		return true
	case query:
		return len(f.text) == 0 || string(f.text) == "-- ping"
	}
	return false
}

// ends: f is the end of a transaction, as pgx and this package write it.
func (f flight) ends() bool {
	return f.kind == query && (bytes.EqualFold(f.text, []byte("commit")) || bytes.EqualFold(f.text, []byte("rollback")))
}

// hold makes the messages of a BEGIN. They close the unnamed statement again: a simple query would
// have removed it too, and nobody may execute BEGIN in place of that statement.
func (c *carrier) hold(begin []byte) {
	if bytes.Equal(c.begin, begin) {
		return
	}
	c.begin = bytes.Clone(begin)
	c.head = c.head[:0]
	for _, m := range []pgproto3.FrontendMessage{
		&pgproto3.Parse{Query: string(begin)}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Close{ObjectType: 'S'},
	} {
		c.head = encode(c.head, m)
	}
}

// answer makes pgx read that a command was executed, and the status after it.
func (c *carrier) answer(tag string, status byte) {
	c.out = encode(c.out, &pgproto3.CommandComplete{CommandTag: []byte(tag)})
	c.ready(status)
}

func (c *carrier) ready(status byte) {
	c.out = encode(c.out, &pgproto3.ReadyForQuery{TxStatus: status})
}

// refuse answers p as a server does whose transaction has failed. It knows only the plain ends of a
// transaction. It discards messages of the extended protocol up to the Sync.
func (c *carrier) refuse(f flight, p []byte) {
	if f.ends() {
		c.enter(passing)
		c.cause = nil
		c.answer("ROLLBACK", 'I')
		return
	}
	for len(p) > 0 {
		msg, err := firstMessage(p)
		if err != nil || msg == nil {
			return // pgx writes no such flight
		}
		p = p[len(msg):]
		switch kind := msg[0]; {
		case kind == 'S':
			c.skipping = false
			c.ready('E')
		case c.skipping || kind == 'H' || kind == 'd' || kind == 'c' || kind == 'f':
		case kind == 'C':
			c.out = encode(c.out, &pgproto3.CloseComplete{})
		case kind == 'Q' || kind == 'F':
			c.fail()
			c.ready('E')
		default:
			c.fail()
			c.skipping = true
		}
	}
}

// fail makes pgx read the error of BEGIN, if pgx has not seen it yet, or the error that a server
// gives for everything in a failed transaction.
func (c *carrier) fail() {
	if c.cause != nil {
		c.out = append(c.out, c.cause...)
		c.cause = nil
		return
	}
	c.out = encode(c.out, &pgproto3.ErrorResponse{
		Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "25P02", // in_failed_sql_transaction
		Message: "current transaction is aborted, commands ignored until end of transaction block",
		Detail:  "The transaction could not begin.",
	})
}

// encode appends m, which is never too long.
func encode(b []byte, m pgproto3.Message) []byte {
	b, err := m.Encode(b)
	if err != nil {
		panic("postgres: " + err.Error())
	}
	return b
}
