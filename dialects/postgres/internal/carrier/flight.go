package carrier

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
	// transactionEnd goes behind a simple query. Its statement has neither name nor text, and is closed at once.
	transactionEnd = append(encode(nil, &pgproto3.Parse{}, &pgproto3.Close{ObjectType: 'S'}), syncMessage...)
	goodbye        = []byte("X\x00\x00\x00\x04")
)

// The types of the server's answers. ParseComplete is 1, BindComplete 2, DataRow D,
// CommandComplete C, CloseComplete 3, ReadyForQuery Z.
const (
	statementAnswers = "12C3" // to appendStatement
	beginOpens       = 3      // after so many of them a transaction is open
	settingsAnswers  = "312DC3"
	endingAnswers    = "13" // to transactionEnd, before its ReadyForQuery
)

// appendStatement appends the messages that execute text. They close the unnamed statement again: a
// simple query would have removed it too, and nobody may execute text in place of that statement.
func appendStatement(b []byte, text string) []byte {
	return encode(b, &pgproto3.Parse{Query: text}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Close{ObjectType: 'S'})
}

// encode appends messages, which are never too long.
func encode(b []byte, messages ...pgproto3.Message) []byte {
	for _, m := range messages {
		var err error
		if b, err = m.Encode(b); err != nil {
			panic("postgres: " + err.Error())
		}
	}
	return b
}

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

// readFlight reads whole messages.
func readFlight(p []byte) flight {
	types := make([]byte, 0, 16)
	for rest := p; len(rest) > 0; {
		msg, err := firstMessage(rest)
		if err != nil || msg == nil {
			return flight{kind: mixed}
		}
		rest = rest[len(msg):]
		switch {
		case msg[0] == 'X':
			return flight{kind: farewell}
		case msg[0] == 'Q' && len(types) == 0 && len(rest) == 0:
			text, _, _ := bytes.Cut(msg[headerSize:], []byte{0})
			f := flight{kind: query, text: text, syncs: 1}
			f.executes = !f.harmless()
			return f
		}
		types = append(types, msg[0])
	}
	return flight{kind: kindOf(types), syncs: bytes.Count(types, []byte("S")), executes: bytes.Contains(types, []byte("E"))}
}

// kindOf is the kind of a flight with messages of these types. Parse is P, Bind B, Describe D,
// Execute E, Close C, Sync S; CopyData d, CopyDone c, CopyFail f.
func kindOf(types []byte) flightKind {
	only := func(allowed string) bool { return len(bytes.Trim(types, allowed)) == 0 }
	syncs := bytes.HasSuffix(types, []byte("S"))
	switch {
	case only("dcf"):
		return copying
	case only("CS") && syncs:
		return closing
	case only("PBDECS") && syncs && bytes.Count(types, []byte("S")) == 1:
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

// ends: f is the end of a transaction, as pgx and the dialect write it.
func (f flight) ends() bool {
	return f.kind == query && (bytes.EqualFold(f.text, []byte("commit")) || bytes.EqualFold(f.text, []byte("rollback")))
}
