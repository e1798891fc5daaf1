package carrier

import "bytes"

// onePacket is the largest write that is worth copying.
const onePacket = 16 << 10

// Write implements io.Writer. p is one write of pgx: one or more whole messages.
func (c *Carrier) Write(p []byte) (int, error) {
	if len(p) > 0 && (p[0] == 'P' || p[0] == 'B') {
		c.count(p)
	}
	if !c.busy.Load() {
		return c.w.Write(p)
	}
	f := readFlight(p)
	for {
		c.mu.Lock()
		way := c.route(f, p)
		c.mu.Unlock()
		switch way {
		case nowhere:
			return len(p), nil
		case unchanged:
			return c.pass(p)
		case asGoodbye:
			return c.pass(goodbye)
		case behindOurs:
			return c.send(p)
		case not:
			return 0, errLoaded
		case afterOurs:
			if _, err := c.pass(c.packet); err != nil {
				return 0, err
			}
		case later:
			if err := c.catchUp(); err != nil {
				return 0, err
			}
		}
	}
}

// count counts the statements of p, whole messages, that have names. The name of a Bind's statement follows that of its portal.
func (c *Carrier) count(p []byte) {
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

// way is where a write of pgx goes.
type way uint8

const (
	unchanged  way = iota // to the server
	behindOurs            // to the server, behind our messages and in their packet
	afterOurs             // to the server when our messages, which go first, were answered
	later                 // is decided when more answers have come
	nowhere               // the carrier has answered it
	asGoodbye             // the end of it goes to the server
	not                   // it fails: settings would not hold for all of it
)

// route decides where f, which is p, goes.
func (c *Carrier) route(f flight, p []byte) way {
	switch c.state {
	case passing, trailing, ending:
		return unchanged
	case awaiting:
		if f.kind != query || !bytes.HasPrefix(f.text, []byte("begin")) {
			return unchanged
		}
		c.head = appendStatement(c.head[:0], string(f.text))
		c.enter(holding)
		c.answer("BEGIN", 'T')
		return nowhere
	case loaded:
		switch {
		case !c.cargo.early && (f.kind == mixed || f.kind == copying):
			return not
		case !c.cargo.goesBefore(f):
			return unchanged
		}
		return c.carry(f)
	}
	switch {
	case f.kind == farewell:
		return asGoodbye // nobody waits for the answers to the messages before the goodbye
	case f.kind == copying:
		if c.state == aborted {
			return nowhere // of a COPY that has not begun
		}
		return unchanged
	case c.state == carrying:
		return later
	}
	return c.routeInTransaction(f, p)
}

// routeInTransaction is route while a BEGIN is held or has failed.
func (c *Carrier) routeInTransaction(f flight, p []byte) way {
	switch {
	case f.harmless():
		c.owed += f.syncs
		return unchanged
	case c.owed > 0:
		return later // our own answer must not overtake the server's
	case c.state == aborted:
		c.refuse(f, p)
		return nowhere
	case f.ends():
		c.enter(passing)
		c.answer(string(bytes.ToUpper(f.text)), 'I')
		return nowhere
	}
	return c.carry(f)
}

// carry makes the packet of our messages, which go in front of f.
func (c *Carrier) carry(f flight) way {
	c.packet, c.answers, c.step, c.cause, c.skips = c.packet[:0], "", 0, nil, false
	if c.begins = c.state == holding; c.begins {
		c.packet, c.answers = append(c.packet, c.head...), statementAnswers
	}
	if len(c.cargo.messages) > 0 {
		c.packet = append(c.packet, c.cargo.messages...)
		c.answers += c.cargo.answers
	}
	c.enter(carrying)
	switch {
	case f.kind == mixed:
		// f has several statements, each with its own Sync: if our messages fail, the server
		// would discard only the first. Or f has one statement whose Sync has not come yet.
		c.sync = syncBetween
		c.packet = append(c.packet, syncMessage...)
		c.answers += "Z"
		return afterOurs
	case f.kind != query:
		c.sync = syncByPgx
	case c.begins:
		c.sync = syncIfFails
	default:
		c.sync = syncBehind
	}
	return behindOurs
}

// send writes our messages, p and our end of the transaction, if there is one behind p. It returns how many bytes of
// p were sent.
func (c *Carrier) send(p []byte) (n int, err error) {
	ours := len(c.packet)
	var last []byte
	if c.sync == syncBehind { // only Write writes c.sync
		last = transactionEnd
	}
	if len(p) <= onePacket {
		c.packet = append(append(c.packet, p...), last...)
		n, err = c.pass(c.packet)
		return min(max(0, n-ours), len(p)), err
	}
	if _, err = c.pass(c.packet); err != nil {
		return 0, err
	}
	if n, err = c.pass(p); err == nil && last != nil {
		_, err = c.pass(last)
	}
	return n, err
}

// pass writes to the network, through the gate.
func (c *Carrier) pass(p []byte) (int, error) {
	c.gate.passing.Add(1)
	defer c.gate.passing.Add(-1)
	return c.w.Write(p)
}
