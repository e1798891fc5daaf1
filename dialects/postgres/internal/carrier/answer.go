package carrier

import (
	"bytes"
	"fmt"
)

// Read implements io.Reader.
func (c *Carrier) Read(p []byte) (n int, err error) {
	if c.busy.Load() {
		n, err = c.readSorted(p)
	} else {
		n, err = c.r.Read(p)
	}
	if keep := len(c.tail) - n; keep > 0 {
		copy(c.tail[:], c.tail[n:])
		copy(c.tail[keep:], p[:n])
	} else {
		copy(c.tail[:], p[n-len(c.tail):n])
	}
	return n, err
}

func (c *Carrier) readSorted(p []byte) (int, error) {
	for {
		c.mu.Lock()
		n := c.take(p)
		through := c.state == passing
		c.mu.Unlock()
		switch {
		case n > 0:
			return n, nil
		case through:
			return c.r.Read(p)
		}
		if err := c.receive(p); err != nil {
			return 0, err
		}
	}
}

// take hands out what is ready for pgx.
func (c *Carrier) take(p []byte) int {
	if c.state == passing {
		c.out = append(c.out, c.in...)
		c.in = c.in[:0]
		c.busy.Store(len(c.out) > 0)
	}
	n := copy(p, c.out)
	c.out = append(c.out[:0], c.out[n:]...)
	return n
}

// catchUp reads until the server owes nothing that must come before pgx's next message. What pgx
// must see waits in out.
func (c *Carrier) catchUp() error {
	buf := make([]byte, 4096)
	for {
		c.mu.Lock()
		waiting := c.state == carrying || c.state != passing && c.owed > 0
		c.mu.Unlock()
		if !waiting {
			return nil
		}
		if err := c.receive(buf); err != nil {
			return err
		}
	}
}

// receive reads once, and sorts what has come. An error that comes together with bytes comes again
// without bytes.
func (c *Carrier) receive(buf []byte) error {
	n, err := c.r.Read(buf)
	if n == 0 && err != nil {
		return err
	}
	c.mu.Lock()
	c.in = append(c.in, buf[:n]...)
	needsSync, err := c.sort()
	c.mu.Unlock()
	if err == nil && needsSync {
		_, _ = c.pass(syncMessage) // the next read shows a failure
	}
	return err
}

// sort moves whole messages from in to out, except the answers to our messages. needsSync: the
// server waits for a Sync that nobody else will send.
func (c *Carrier) sort() (needsSync bool, _ error) {
	done := 0
	for c.state != passing {
		msg, err := firstMessage(c.in[done:])
		if err != nil {
			return false, err
		}
		if msg == nil {
			break
		}
		done += len(msg)
		needsSync = needsSync || c.state == carrying && c.sync == syncIfFails && msg[0] == 'E'
		if msg, err = c.forPgx(msg); err != nil {
			return false, err
		}
		c.out = append(c.out, msg...)
	}
	c.in = append(c.in[:0], c.in[done:]...)
	return needsSync, nil
}

// forPgx returns what pgx reads for the server's next message: nil if it answers our messages.
func (c *Carrier) forPgx(msg []byte) ([]byte, error) {
	switch kind := msg[0]; {
	case c.state == awaiting || c.state == loaded || kind == 'N' || kind == 'A' || kind == 'S':
		// Notices, notifications and settings come at any time.
	case c.state == carrying:
		return c.answered(msg)
	case c.state == ending && (kind == endingAnswers[0] || kind == endingAnswers[1]):
		return nil, nil
	case kind != 'Z':
	case c.state == trailing:
		c.enter(ending)
		return nil, nil // the Z that answers our Sync follows, and has the status after all
	case c.state == ending:
		c.enter(passing)
	default:
		c.owed--
		msg[len(msg)-1] = 'T' // the server knows of no transaction
		if c.state == aborted {
			msg[len(msg)-1] = 'E'
		}
	}
	return msg, nil
}

// answered is forPgx while the answers to our messages come. pgx gets the refusal of a setting
// without its value.
func (c *Carrier) answered(msg []byte) ([]byte, error) {
	beginFailed := c.begins && c.step < beginOpens
	switch {
	case msg[0] == c.answers[c.step]:
		if c.step++; c.step == len(c.answers) {
			c.delivered()
		}
		return nil, nil
	case msg[0] != 'E':
		return nil, fmt.Errorf("the server answered BEGIN or settings with a message of type %q", msg[0])
	case c.sync == syncBetween:
		c.step = len(c.answers) - 1 // the answer to our Sync
		if beginFailed {
			c.cause = bytes.Clone(msg)
		}
		return nil, nil // if the transaction is open and failed, the server reports this again
	case beginFailed:
		c.enter(aborted)
		c.owed = 1
		return msg, nil
	}
	if len(c.cargo.names) > 0 && (!c.begins || c.step >= len(statementAnswers)) {
		msg = c.cargo.refused(msg)
	}
	c.enter(passing) // from here on the server itself says what has failed
	return msg, nil
}

// delivered is called when all answers to our messages have come.
func (c *Carrier) delivered() {
	switch {
	case c.cause != nil:
		c.enter(aborted)
	case c.sync == syncBehind:
		c.enter(trailing)
	default:
		c.enter(passing)
	}
}
