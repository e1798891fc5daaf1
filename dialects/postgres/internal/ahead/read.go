package ahead

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pooldriver/pooldriver/dialects"
)

// Read implements io.Reader.
func (c *Conn) Read(p []byte) (n int, err error) {
	if !c.busy.Load() {
		n, err = c.r.Read(p)
		c.note(p[:n])
		return n, err
	}
	for {
		if n, through := c.take(p); n > 0 {
			return n, nil
		} else if through {
			n, err = c.r.Read(p)
			c.note(p[:n])
			return n, err
		}
		// An error that comes together with bytes comes again without bytes.
		n, err = c.r.Read(p)
		if n == 0 {
			return 0, err
		}
		if err = c.receive(p[:n]); err != nil {
			return 0, err
		}
	}
}

// note remembers the last bytes that pgx gets.
func (c *Conn) note(b []byte) {
	if keep := len(c.last) - len(b); keep > 0 {
		copy(c.last[:], c.last[len(b):])
		copy(c.last[keep:], b)
	} else {
		copy(c.last[:], b[len(b)-len(c.last):])
	}
}

// take hands out what is ready for pgx. through: from now on everything passes.
func (c *Conn) take(p []byte) (n int, through bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	n = copy(p, c.out)
	c.out = append(c.out[:0], c.out[n:]...)
	c.note(p[:n])
	c.changed()
	return n, !c.busy.Load()
}

// receive sorts what has come: whole messages go to out, but for the answers to what went ahead.
func (c *Conn) receive(b []byte) error {
	c.mu.Lock()
	c.in = append(c.in, b...)
	syncs, err := c.sort()
	c.changed()
	c.mu.Unlock()
	if syncs && err == nil {
		_, _ = c.pass(syncMessage) // the next read shows a failure
	}
	return err
}

// sort moves messages from in to out. If nothing is left to be sorted, the beginning of a message moves,
// too. syncs: the server waits for a Sync that pgx does not send.
func (c *Conn) sort() (syncs bool, _ error) {
	done := 0
	for {
		msg, err := firstMessage(c.in[done:])
		if err != nil {
			return false, err
		}
		if msg == nil {
			break
		}
		done += len(msg)
		syncs = syncs || c.needsSync && c.expects != "" && msg[0] == 'E'
		if msg, err = c.forPgx(msg); err != nil {
			return false, err
		}
		c.out = append(c.out, msg...)
	}
	if c.changed(); !c.Loaded() && !c.trails {
		c.out, done = append(c.out, c.in[done:]...), len(c.in)
	}
	c.in = append(c.in[:0], c.in[done:]...)
	return syncs, nil
}

// forPgx returns what pgx reads for the server's next message: nil if it is not for pgx.
func (c *Conn) forPgx(msg []byte) ([]byte, error) {
	switch kind := msg[0]; {
	case kind == 'N' || kind == 'A' || kind == 'S': // notices, notifications and settings come at any time
		return msg, nil
	case c.expects != "" && kind == c.expects[0]:
		c.expects = c.expects[1:]
		return nil, nil
	case c.expects != "" && kind == 'E':
		return c.failed(msg), nil
	case c.expects != "":
		return nil, fmt.Errorf("postgres: the server answered BEGIN or settings with a message of type %q", kind)
	case kind == 'Z' && c.trails:
		c.trails, c.expects, c.opens, c.sets = false, transactionEndAnswers, len(transactionEndAnswers), -1
		return nil, nil // the one that answers our Sync follows, and has the status after all
	case kind == 'Z':
		c.owed, c.status = c.owed-1, msg[headerSize]
	}
	if c.question.state != toBeSent {
		return c.question.untilAnswer(msg), nil
	}
	return msg, nil
}

// failed is called with the error of what went ahead. The server discards the rest, up to the Sync.
func (c *Conn) failed(msg []byte) []byte {
	left := len(c.expects)
	c.expects, c.trails = "", false
	begins := left > c.opens
	if begins {
		c.begin = Refused
	}
	var e pgproto3.ErrorResponse
	switch {
	case !begins && left > c.sets || e.Decode(msg[headerSize:]) != nil:
		return msg
	case begins:
		e.Message = dialects.DeferredBegin + e.Message
		return encode(nil, &e)
	}
	return encode(nil, errorResponse(RefusedSettings(pgconn.ErrorResponseToPgError(&e), c.names)))
}

func errorResponse(e *pgconn.PgError) *pgproto3.ErrorResponse {
	return &pgproto3.ErrorResponse{Severity: e.Severity, SeverityUnlocalized: e.SeverityUnlocalized, Code: e.Code, Message: e.Message, Detail: e.Detail}
}
