package ahead

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pooldriver/pooldriver/dialects"
)

// The messages are those of the PostgreSQL protocol manual, 55.7. The types of answers: ParseComplete is
// 1, BindComplete 2, DataRow D, CommandComplete C, CloseComplete 3, ReadyForQuery Z.

const (
	headerSize = 5                   // type, and a length that counts itself but not the type
	ready      = "Z\x00\x00\x00\x05" // a ReadyForQuery, up to its status
	idle       = ready + "I"         // a ReadyForQuery outside of a transaction
)

var (
	syncMessage = []byte("S\x00\x00\x00\x04")
	goodbye     = []byte("X\x00\x00\x00\x04")
	pings       = []byte("-- ping\x00") // pgx's empty statement

	// transactionEnd goes behind a simple query with settings that is in no transaction. The server
	// opens one for them: the query ends it on PostgreSQL 17, and does not on 18. There a Sync right
	// behind the query leaves the session between two transactions, and every BEGIN after it fails
	// ("StartTransactionCommand: unexpected state STARTED", XX000): a Parse in front of the Sync begins
	// a command, which the Sync ends. The statement has neither name nor text, and is closed at once.
	transactionEnd        = append(encode(nil, &pgproto3.Parse{}, &pgproto3.Close{ObjectType: 'S'}), syncMessage...)
	transactionEndAnswers = "13" // before its ReadyForQuery
)

// statements are messages, and the types of the server's answers to them.
type statements struct {
	messages []byte
	answers  string
}

// begun is the answer to a BEGIN by add as far as a transaction is open.
const begun = "12C"

// add adds a text. The messages close the unnamed statement again: a simple query would have removed it
// too, and nobody may execute text in place of that statement.
func (s *statements) add(text string) {
	s.messages = encode(s.messages, &pgproto3.Parse{Query: text}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Close{ObjectType: 'S'})
	s.answers += "12C3"
}

// settingsStatement is the name of a short-lived prepared statement. Without a name it would replace
// the unnamed statement that pgx may be about to execute.
const settingsStatement = "pooldriver_settings"

// set adds settings, local to the transaction. The first Close is for a statement that has failed before
// its own Close.
func (s *statements) set(settings []dialects.ContextSetting) {
	text, parameters := SetsLocally(settings)
	parse, bind := &pgproto3.Parse{Name: settingsStatement, Query: text}, &pgproto3.Bind{PreparedStatement: settingsStatement, Parameters: parameters}
	end := &pgproto3.Close{ObjectType: 'S', Name: settingsStatement}
	s.messages = encode(s.messages, end, parse, bind, &pgproto3.Execute{}, end)
	s.answers += "312DC3"
}

// SetsLocally is a query that sets settings until the end of its transaction, with its parameters.
func SetsLocally(settings []dialects.ContextSetting) (text string, parameters [][]byte) {
	var calls []string
	for i, set := range settings {
		parameters = append(parameters, []byte(set.Name), []byte(set.Value))
		calls = append(calls, fmt.Sprintf("pg_catalog.set_config($%d, $%d, true)", 2*i+1, 2*i+2))
	}
	return "SELECT " + strings.Join(calls, ", "), parameters
}

// Names are the names of settings.
func Names(settings []dialects.ContextSetting) (names []string) {
	for _, set := range settings {
		names = append(names, set.Name)
	}
	return names
}

// append adds more to s.
func (s *statements) append(more statements) {
	s.messages = append(s.messages, more.messages...)
	s.answers += more.answers
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

// flight is one write of pgx: whole messages.
type flight struct {
	simple   bool // a simple query
	executes bool // a statement
	prepares bool // a statement, or executes one
	syncs    int  // ReadyForQuery messages that answer it
	apart    bool // it has several statements that end apart, or one whose end has not come yet
}

// readFlight reads p. A ping executes nothing, and neither does what ends with the connection's end.
func readFlight(p []byte) (f flight) {
	if bytes.HasSuffix(p, goodbye) {
		return flight{}
	}
	synced := false
	for rest := p; len(rest) > 0; {
		msg, err := firstMessage(rest)
		if err != nil || msg == nil {
			return flight{prepares: true, executes: true, apart: true}
		}
		rest = rest[len(msg):]
		synced = false
		switch body := msg[headerSize:]; msg[0] {
		case 'Q':
			f.simple, f.syncs, synced = true, f.syncs+1, true
			f.executes = f.executes || len(body) > 1 && !bytes.Equal(body, pings)
		case 'E', 'F':
			f.executes = true
		case 'P', 'B':
			f.prepares = true
		case 'S':
			f.syncs, synced = f.syncs+1, true
		}
	}
	f.prepares = f.prepares || f.executes
	f.apart = f.syncs != 1 || !synced
	return f
}

// RefusedSettings is the server's error about settings, without the values that it may contain. It
// keeps the fields by which the pool decides. An operator's intervention, such as a kill or a
// cancellation, keeps its own words.
func RefusedSettings(e *pgconn.PgError, names []string) *pgconn.PgError {
	const intervention = "57"
	struck := &pgconn.PgError{Severity: e.Severity, SeverityUnlocalized: e.SeverityUnlocalized, Code: e.Code, Message: e.Message}
	if !strings.HasPrefix(e.Code, intervention) {
		struck.Message = "the server refuses one of the settings " + strings.Join(names, ", ") + " of the context"
	}
	return struck
}

// Aborted is the server's error for everything in a failed transaction.
var Aborted = pgconn.PgError{
	Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "25P02", // in_failed_sql_transaction
	Message: "current transaction is aborted, commands ignored until end of transaction block",
	Detail:  "The transaction could not begin.",
}
