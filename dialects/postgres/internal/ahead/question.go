package ahead

import (
	"bytes"

	"github.com/jackc/pgx/v5/pgproto3"
)

// question is one that goes behind a statement of pgx, before its Sync: the statement's own transaction answers it.
type question struct {
	told  func(wrote bool) // nil: nothing is asked
	state uint8
	wrote bool
}

const (
	toBeSent = iota
	running  // pgx's statement is being answered
	answering
)

// AsksForID asks whether the transaction has an id: then it has done more than read. PostgreSQL has the function since 13.
const AsksForID = "SELECT pg_catalog.pg_current_xact_id_if_assigned() IS NOT NULL"

var (
	asksForID = func() (s statements) {
		s.add(AsksForID)
		return s
	}()
	yes = encode(nil, &pgproto3.DataRow{Values: [][]byte{[]byte("t")}})
)

// Ask asks behind pgx's next statement whether it has written. told gets the answer while pgx reads, unless the
// statement fails, or is one behind which nothing can be asked. DropQuestion follows.
func (c *Conn) Ask(told func(wrote bool)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isReady() {
		c.question = question{told: told}
		c.changed()
	}
}

// DropQuestion drops what Ask has left, unless it was sent.
func (c *Conn) DropQuestion() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.question.state == toBeSent {
		c.question = question{}
		c.changed()
	}
}

// asks reports whether the question goes behind f.
func (c *Conn) asks(f flight) bool {
	return c.question.told != nil && c.question.state == toBeSent && f.executes && !f.simple && !f.apart
}

// ask puts the question in front of the Sync at the end of packet.
func (c *Conn) ask(packet []byte) []byte {
	c.question.state = running
	packet = append(packet[:len(packet)-len(syncMessage)], asksForID.messages...)
	return append(packet, syncMessage...)
}

// untilAnswer returns what pgx reads of the answers to its own statement and the question behind it.
func (q *question) untilAnswer(msg []byte) []byte {
	switch kind := msg[0]; {
	case kind == 'Z':
		if q.state == answering {
			q.told(q.wrote)
		}
		*q = question{}
	case q.state == running && (kind == 'C' || kind == 'I'):
		q.state = answering
	case q.state == answering && kind == 'E':
		q.state = running // nobody is told
	case q.state == answering:
		q.wrote = q.wrote || kind == 'D' && bytes.Equal(msg, yes)
		return nil
	}
	return msg
}
