package postgres

import (
	"bytes"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgproto3"
)

// carrier is what pgx reads from and writes to. It passes everything on
// unchanged until it is armed or loaded.
//
// When armed, the carrier itself answers the BEGIN that pgx writes next, holds it, and sends it in
// front of the next statement, in the same packet. When loaded, it sends settings there, after a
// BEGIN that it holds. It removes the server's answers to its own messages.
//
// BEGIN is sent by the extended protocol without a Sync of its own. If BEGIN fails, the server
// discards every message up to the next Sync (PostgreSQL protocol, 55.2.3), also the statement. In
// the extended protocol pgx sends this Sync; for a simple query the carrier sends the Sync when it
// sees the error. So a statement can never run outside of the transaction, its text is what the
// program wrote, and its error leaves the transaction open and failed as usual. BEGIN in the text
// of a simple query would not do so: after a syntax error no transaction would be open. With two
// simple queries, the second would run in autocommit if BEGIN fails by a late request to cancel, or
// on a standby that knows no SERIALIZABLE.
//
// After a failed BEGIN the carrier plays the server of an aborted transaction until the
// transaction's end: pgx, and whoever asks pgx for its status, cannot tell the difference, and
// nothing is executed. Harmless messages go to the server all the same, such as Close, which pgx
// does not expect to fail. Their ReadyForQuery comes back with the status of the play.
//
// Settings are local to the transaction. Without a BEGIN this is the transaction that the server
// opens for the messages up to the next Sync: the settings and the statement. A simple query does
// not end this transaction on every version of the server (on PostgreSQL 17 the status after it is
// T), so the carrier sends a Sync after it.
//
// One goroutine at a time calls Write and Read, with one exception: a COPY FROM reads in one
// goroutine and writes its data in another. Then mu orders the two; neither waits for the network
// while it holds mu.
type carrier struct {
	r        io.Reader
	w        io.Writer
	frontend *pgproto3.Frontend
	gate     *gate // below, nil in tests

	// busy: the carrier must do more than pass bytes on. arm sets busy, and the read that finds
	// nothing left to do resets it.
	busy atomic.Bool

	mu       sync.Mutex // protects following fields
	state    carrying
	simple   bool   // carried: before a simple query
	alone    bool   // carried: with a Sync of the carrier; the answers are not for pgx
	trails   bool   // carried: a Sync of ours follows the statement
	step     int    // carried: how many answers to our messages have come
	answers  string // carried: their types
	opens    int    // carried: how many answers have come when a transaction is open
	owed     int    // ReadyForQuery messages that the server has yet to send to pgx
	skipping bool   // void: messages are dropped until pgx's Sync
	begin    []byte // the text of BEGIN,
	head     []byte // and its messages
	cargo    cargo  // for the next statement
	packet   []byte // scratch
	cause    []byte // BEGIN's error, if pgx has not been told yet
	in       []byte // read and not understood yet
	out      []byte // for pgx to read

	tail [len(idle)]byte // the last bytes that pgx has read; only its reader uses it
}

// carrying is the state of a carrier.
type carrying uint8

const (
	passing  carrying = iota // everything passes unchanged
	armed                    // waiting for pgx's BEGIN
	held                     // BEGIN, until there is a statement
	loaded                   // with settings, until there is a statement
	carried                  // BEGIN or settings were sent, their answer has not come
	trailing                 // the statement's answer comes, and then the answer to our Sync
	void                     // BEGIN failed, and the program has not ended the transaction
)

// arm makes the carrier wait for pgx's BEGIN. If the next byte that comes is not the first of a
// message, arm does nothing and returns false: the beginning of a message may have come after the
// last ReadyForQuery.
func (c *carrier) arm() bool {
	if string(c.tail[:]) != idle {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != passing || !c.betweenMessages() {
		return false
	}
	c.state = armed
	c.busy.Store(true)
	return true
}

// betweenMessages reports whether pgx has read a ReadyForQuery, and nothing after it has come.
func (c *carrier) betweenMessages() bool {
	return string(c.tail[:len(ready)]) == ready && c.frontend.ReadBufferLen() == 0 && len(c.in)+len(c.out) == 0
}

// disarm takes arm back if no BEGIN has come.
func (c *carrier) disarm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state == armed {
		c.state = passing
	}
}

// enter changes the state. The gate is shut while something may be played.
func (c *carrier) enter(state carrying) {
	c.state = state
	if c.gate != nil {
		c.gate.shut.Store(state != passing)
	}
}

// pass writes to the network, through the gate.
func (c *carrier) pass(p []byte) (int, error) {
	if c.gate != nil {
		c.gate.passing.Add(1)
		defer c.gate.passing.Add(-1)
	}
	return c.w.Write(p)
}

// Write implements io.Writer. p is one write of pgx: one or more whole messages.
func (c *carrier) Write(p []byte) (int, error) {
	if !c.busy.Load() {
		return c.w.Write(p)
	}
	f := readFlight(p)
	for {
		c.mu.Lock()
		if c.mustWait(f) {
			c.mu.Unlock()
			if err := c.catchUp(); err != nil {
				return 0, err
			}
			continue
		}
		if c.state == loaded && !c.cargo.early && (f.kind == mixed || f.kind == copying) {
			c.mu.Unlock()
			return 0, errLoaded
		}
		packet, ours := c.route(f, p)
		c.mu.Unlock()
		switch {
		case packet == nil:
			return len(p), nil
		case ours > 0:
			return c.send(packet, ours, p)
		default:
			return c.pass(packet)
		}
	}
}

// mustWait: the treatment of f depends on answers that have not come, or f's own answer must not
// overtake them.
func (c *carrier) mustWait(f flight) bool {
	switch {
	case f.kind == farewell || f.kind == copying:
		return false
	case c.state == carried:
		return true
	case c.state == held || c.state == void:
		return c.owed > 0 && !f.harmless()
	}
	return false
}

// route decides what is sent for p; nil: nothing. ours counts the bytes in front of p that are not
// p's. If p is not in the packet, p is sent after it.
func (c *carrier) route(f flight, p []byte) (packet []byte, ours int) {
	switch c.state {
	case passing, trailing:
		return p, 0
	case loaded:
		if !c.cargo.goesBefore(f) {
			return p, 0
		}
		return c.carry(f, p)
	case armed:
		if f.kind != query || !bytes.HasPrefix(f.text, []byte("begin")) {
			return p, 0
		}
		c.hold(f.text)
		c.alone = false // an earlier BEGIN may have set it
		c.enter(held)
		c.answer("BEGIN", 'T')
		return nil, 0
	}
	switch {
	case f.kind == farewell:
		return goodbye, 0 // nobody waits for the answers to the messages before the goodbye
	case f.kind == copying && c.state == void:
		return nil, 0 // of a COPY that has not begun
	case f.kind == copying:
		return p, 0
	case f.harmless():
		c.owed += f.syncs
		return p, 0
	case c.state == void:
		c.refuse(f, p)
		return nil, 0
	case f.ends():
		c.enter(passing)
		c.answer(string(bytes.ToUpper(f.text)), 'I')
		return nil, 0
	}
	return c.carry(f, p)
}

// carry makes the packet of our messages and p. If p is not in the packet, p is sent after it.
func (c *carrier) carry(f flight, p []byte) (packet []byte, ours int) {
	c.packet, c.answers, c.opens, c.step = c.packet[:0], "", 0, 0
	if c.state == held {
		c.packet = append(c.packet, c.head...)
		c.answers, c.opens = beginAnswers, beginOpens
	}
	c.simple, c.alone = f.kind == query, f.kind == mixed
	c.trails = c.simple && c.state == loaded
	if len(c.cargo.messages) > 0 {
		c.packet = append(c.packet, c.cargo.messages...)
		c.answers += c.cargo.answers
	}
	c.enter(carried)
	if c.alone {
		// p has several statements, each with its own Sync: if our messages fail, the server
		// would discard only the first. Or p has one statement whose Sync has not come yet.
		c.packet = append(c.packet, syncMessage...)
		c.answers += "Z"
		return c.packet, len(c.packet)
	}
	ours = len(c.packet)
	if len(p) <= onePacket {
		c.packet = append(c.packet, p...)
		if c.trails {
			c.packet = append(c.packet, syncMessage...)
		}
	}
	return c.packet, ours
}

// The types of the server's answers. ParseComplete is 1, BindComplete 2, DataRow D,
// CommandComplete C, CloseComplete 3, ReadyForQuery Z.
const (
	beginAnswers    = "12C3"
	beginOpens      = 3 // so many answers have come when the transaction is open
	settingsAnswers = "312DC3"
)

// onePacket is the largest write that is worth copying.
const onePacket = 16 << 10

// send writes a packet that begins with our messages, and then p, unless p is in the packet. It
// returns how many bytes of p were sent.
func (c *carrier) send(packet []byte, ours int, p []byte) (int, error) {
	n, err := c.pass(packet)
	if err != nil {
		return min(max(0, n-ours), len(p)), err
	}
	if len(packet) > ours {
		return len(p), nil
	}
	c.mu.Lock()
	alone, trails := c.alone, c.trails
	c.mu.Unlock()
	if alone {
		return c.Write(p) // when the answer has come
	}
	if n, err = c.pass(p); err == nil && trails {
		_, err = c.pass(syncMessage)
	}
	return n, err
}

// Read implements io.Reader.
func (c *carrier) Read(p []byte) (n int, err error) {
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

func (c *carrier) readSorted(p []byte) (int, error) {
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
func (c *carrier) take(p []byte) int {
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
func (c *carrier) catchUp() error {
	buf := make([]byte, 4096)
	for {
		c.mu.Lock()
		waiting := c.state == carried || c.state != passing && c.owed > 0
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
func (c *carrier) receive(buf []byte) error {
	n, err := c.r.Read(buf)
	if n == 0 && err != nil {
		return err
	}
	c.mu.Lock()
	c.in = append(c.in, buf[:n]...)
	sync, err := c.sort()
	c.mu.Unlock()
	if err == nil && sync {
		// The next read shows a failure.
		_, _ = c.pass(syncMessage)
	}
	return err
}

// sort moves whole messages from in to out, except the answers to our messages. sync: the server
// waits for a Sync that nobody else will send.
func (c *carrier) sort() (sync bool, _ error) {
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
		sync = sync || c.state == carried && msg[0] == 'E' && c.simple && !c.trails
		msg, mine, err := c.sortOne(msg)
		if err != nil {
			return false, err
		}
		if !mine {
			c.out = append(c.out, msg...)
		}
	}
	c.in = append(c.in[:0], c.in[done:]...)
	return sync, nil
}

// sortOne looks at the next message of the server. mine: it is an answer to our messages. Otherwise
// the message that sortOne returns is for pgx.
func (c *carrier) sortOne(msg []byte) (_ []byte, mine bool, _ error) {
	switch kind := msg[0]; {
	case c.state == armed || c.state == loaded || kind == 'N' || kind == 'A' || kind == 'S':
		// Notices, notifications and settings come at any time.
	case c.state == carried:
		return c.answered(msg)
	case c.state == trailing:
		if mine = kind == 'Z'; mine {
			c.enter(passing)
		}
	case kind == 'Z':
		c.owed--
		msg[len(msg)-1] = c.status()
		mine, c.alone = c.alone, false
	}
	return msg, mine, nil
}

// status is the status of the transaction that is played.
func (c *carrier) status() byte {
	if c.state == void {
		return 'E'
	}
	return 'T'
}

// answered takes the next answer to our messages. mine: the answer is not for pgx. pgx gets the
// refusal of a setting without its value.
func (c *carrier) answered(msg []byte) (_ []byte, mine bool, _ error) {
	switch {
	case msg[0] == c.answers[c.step]:
		if c.step++; c.step == len(c.answers) {
			c.delivered()
		}
		return nil, true, nil
	case msg[0] != 'E':
		return nil, false, fmt.Errorf("the server answered BEGIN or settings with a message of type %q", msg[0])
	case c.step < c.opens:
		c.enter(void)
		c.skipping, c.owed, c.cause = false, 1, nil
		if c.alone {
			c.cause = bytes.Clone(msg)
		}
		return msg, c.alone, nil
	case c.alone:
		c.step = len(c.answers) - 1 // the transaction is open and failed: the server will report this again
		return nil, true, nil
	}
	if len(c.cargo.names) > 0 && (c.opens == 0 || c.step >= len(beginAnswers)) {
		msg = c.cargo.refused(msg)
	}
	c.enter(passing) // from here on the server itself says what has failed
	return msg, false, nil
}

// delivered is called when the server has executed our messages.
func (c *carrier) delivered() {
	if c.trails {
		c.enter(trailing)
	} else {
		c.enter(passing)
	}
}
