package ahead

import (
	"bytes"
	"errors"

	"github.com/jackc/pgx/v5/pgproto3"
)

var (
	errBusy  = errors.New("postgres: nothing can be sent between a statement that begins a transaction, or has the settings of a context, and its answer")
	errApart = errors.New("postgres: a transaction, or the settings of a context (WithSettings), cannot begin with several statements that end apart: execute another one first, such as SELECT")
)

// mostKept is the size of the largest packet whose memory is used again.
const mostKept = 16 << 10

// Write implements io.Writer. p is one write of pgx: one or more whole messages.
func (c *Conn) Write(p []byte) (int, error) {
	if len(p) > 0 && (p[0] == 'P' || p[0] == 'B') {
		c.count(p)
	}
	if !c.busy.Load() {
		return c.w.Write(p)
	}
	packet, front, err := c.put(p)
	switch {
	case err != nil:
		return 0, err
	case packet == nil:
		return len(p), nil
	}
	n, err := c.pass(packet)
	if len(packet) > mostKept {
		c.packet = nil
	}
	return min(max(0, n-front), len(p)), err
}

// count counts the statements of p, whole messages, that have names. The name of a Bind's statement
// follows that of its portal.
func (c *Conn) count(p []byte) {
	for {
		msg, err := firstMessage(p)
		if err != nil || msg == nil {
			return
		}
		p = p[len(msg):]
		switch body := msg[headerSize:]; msg[0] {
		case 'P':
			if len(body) > 0 && body[0] != 0 {
				c.prepared.Add(1)
			}
		case 'B':
			if _, name, _ := bytes.Cut(body, []byte{0}); len(name) > 0 && name[0] != 0 {
				c.executed.Add(1)
			}
		}
	}
}

// put returns p with what goes in front of it, and the size of that. nil: nothing is to be written, and
// pgx gets err or an answer that waits in out.
func (c *Conn) put(p []byte) (packet []byte, front int, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	defer c.changed()
	f := readFlight(p)
	if f.prepares && c.begin == Refused {
		return nil, 0, c.refuse(f)
	}
	ahead := c.aheadOf(f)
	if err := c.admit(f, ahead); err != nil {
		return nil, 0, err
	}
	asks := c.asks(f)
	if ahead.messages == nil {
		c.owed += f.syncs
		if asks {
			c.packet = c.ask(append(c.packet[:0], p...))
			return c.packet, 0, nil
		}
		return p, 0, nil
	}
	c.expects, c.opens, c.sets = ahead.answers, len(ahead.answers), 0
	if c.begin == Held {
		c.opens -= len(begun)
	}
	if f.executes {
		c.sets = len(c.settings.answers)
	}
	c.trails = f.simple && c.begin == NoBegin && c.status == 'I'
	c.needsSync = f.simple && !c.trails
	c.sent = c.sent || f.executes || c.texts.messages != nil
	c.begin, c.texts, c.owed = NoBegin, statements{}, 1
	c.packet = append(append(c.packet[:0], ahead.messages...), p...)
	if asks {
		c.packet = c.ask(c.packet)
	}
	if c.trails {
		c.packet = append(c.packet, transactionEnd...)
	}
	return c.packet, len(ahead.messages), nil
}

// admit returns the error of an f that cannot be written now, with ahead in front of it.
func (c *Conn) admit(f flight, ahead statements) error {
	switch {
	case f.prepares && c.expects != "":
		return errBusy
	case ahead.messages == nil:
		return nil
	case !c.isReady():
		return errBusy
	case f.apart:
		return errApart
	}
	return nil
}

// aheadOf returns what goes in front of f.
func (c *Conn) aheadOf(f flight) (all statements) {
	if !f.prepares {
		return all
	}
	if c.begin == Held {
		all.add(c.beginSQL)
	}
	all.append(c.texts)
	if f.executes {
		all.append(c.settings)
	}
	return all
}

// refuse makes pgx read that the transaction has failed. For the server none is open.
func (c *Conn) refuse(f flight) error {
	switch {
	case c.owed > 0:
		return errBusy // our answer must not overtake the server's
	case f.syncs == 0:
		return errApart
	}
	for range f.syncs {
		c.out = encode(c.out, errorResponse(&Aborted), &pgproto3.ReadyForQuery{TxStatus: 'I'})
	}
	return nil
}

// pass writes to the network, through the gate.
func (c *Conn) pass(p []byte) (int, error) {
	c.gate.passing.Add(1)
	defer c.gate.passing.Add(-1)
	return c.w.Write(p)
}
