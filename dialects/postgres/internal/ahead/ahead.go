// Package ahead sends statements in front of a statement of pgx, in the same write: a BEGIN, settings,
// statements of a sandbox; and a question behind it. pgx does not see the server's answers to them.
package ahead

import (
	"context"
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/wire"
)

// Conn is what pgx reads from and writes to, above TLS. It passes everything on unchanged until Begin
// or Carry is called. What pgx then does not send, because its context is over or an argument cannot be
// encoded, takes nothing with it.
//
// What goes ahead is sent by the extended protocol, without a Sync. If it fails, the server discards
// every message up to the next Sync (PostgreSQL protocol, 55.2.3), also pgx's statement, whose error it
// then is. In the extended protocol pgx sends this Sync. Behind a simple query Conn sends one when it
// reads the error, or, if settings are all that goes ahead, at once: see transactionEnd.
//
// One goroutine at a time calls Write and Read, with one exception: a COPY FROM, and a write that waits
// for the network, read in another goroutine. Then mu orders the two; neither waits for the network
// while it holds mu.
type Conn struct {
	r    io.Reader
	w    io.Writer
	gate *gate // below TLS

	// busy: more is to be done than to pass bytes on. It is false again after a read that finds
	// nothing left to do. Only then last is written without mu.
	busy atomic.Bool
	last [len(idle)]byte // the last bytes that pgx has read

	prepared, executed atomic.Uint64 // messages for statements that have names

	mu       sync.Mutex // protects following fields
	begin    BeginState
	beginSQL string
	texts    statements // go ahead once, also of a statement that is prepared
	settings statements // go ahead of each statement that is executed
	names    []string   // of settings that may be refused
	sent     bool       // Carry: what it was given has been sent
	question question

	packet    []byte
	expects   string // the types of the server's answers to what went ahead
	opens     int    // BEGIN has succeeded when so many of them are left
	sets      int    // settings are being answered when so many of them, or fewer, are left
	needsSync bool   // behind pgx's simple query, if what went ahead fails
	trails    bool   // transactionEnd is behind pgx's simple query
	owed      int    // loaded: so many ReadyForQuery messages are to come for pgx
	status    byte   // of the last ReadyForQuery
	in        []byte // read from the server: the beginning of a message
	out       []byte // for pgx to read
}

// BeginState is how far a BEGIN has come.
type BeginState uint8

// The states of a BEGIN.
const (
	NoBegin BeginState = iota // or it was sent: the server knows the rest
	Held                      // until there is a statement
	Refused                   // by the server: pgx's statements fail until EndBegin
)

// Install gives each connection of config a Conn. pgx dials a server, puts TLS around the connection,
// and then builds a frontend for it.
func Install(config *pgconn.Config) {
	dial, build := config.DialFunc, config.BuildFrontend
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &gate{Conn: nc}, nil
	}
	config.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		nc, _ := w.(net.Conn)
		g := wire.Under[*gate](nc)
		if g == nil {
			return build(r, w)
		}
		g.above = &Conn{r: r, w: w, gate: g}
		return build(g.above, g.above)
	}
}

// Of returns the Conn of a connection; nil if it has none.
func Of(pg *pgconn.PgConn) *Conn {
	if g := wire.Under[*gate](pg.Conn()); g != nil {
		return g.above
	}
	return nil
}

// Begin makes pgx's next statement carry text, which begins a transaction. It returns false, and changes
// nothing, unless the next byte that comes is the first of a message, and the server has no transaction
// open.
func (c *Conn) Begin(text string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.begin != NoBegin || !c.isReady() || c.status != 'I' {
		return false
	}
	c.begin, c.beginSQL = Held, text
	c.changed()
	return true
}

// BeginState is the state of the BEGIN.
func (c *Conn) BeginState() BeginState {
	if !c.Loaded() {
		return NoBegin
	}
	return c.beginState()
}

func (c *Conn) beginState() BeginState {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.begin
}

// EndBegin forgets the BEGIN, and returns its state. It is called before the end of the transaction is
// sent.
func (c *Conn) EndBegin() BeginState {
	c.mu.Lock()
	defer c.mu.Unlock()
	was := c.begin
	c.begin = NoBegin
	c.changed()
	return was
}

// Carry makes pgx's statements carry texts and settings, until Drop. The texts go ahead once, also of a
// statement that is prepared: an error of the Parse would fail the transaction before a savepoint is
// there. It returns false, and changes nothing, unless the next byte that comes is the first of a
// message.
func (c *Conn) Carry(texts []string, settings []dialects.ContextSetting) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isReady() {
		return false
	}
	c.texts, c.settings, c.names, c.sent = statements{}, statements{}, nil, false
	for _, text := range texts {
		c.texts.add(text)
	}
	if len(settings) > 0 {
		c.settings.set(settings)
		c.names = Names(settings)
	}
	c.changed()
	return true
}

// Drop ends Carry. sent reports whether a statement has carried what Carry was given.
func (c *Conn) Drop() (sent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.texts, c.settings = statements{}, statements{} // the names stay: the answer may still be to come
	c.changed()
	return c.sent
}

// Loaded reports whether the next statement of pgx does not reach the server as it is.
func (c *Conn) Loaded() bool { return c.gate.shut.Load() }

// Kept counts the messages of pgx that prepare a statement with a name, and those that execute one.
func (c *Conn) Kept() (prepared, executed uint64) {
	return c.prepared.Load(), c.executed.Load()
}

// changed is called when something has changed that Write and Read decide by.
func (c *Conn) changed() {
	loaded := c.begin != NoBegin || c.texts.messages != nil || c.settings.messages != nil || c.expects != "" || c.question.told != nil
	c.gate.shut.Store(loaded)
	c.busy.Store(loaded || c.trails || len(c.in)+len(c.out) > 0)
}

// isReady reports whether pgx has read all that was to come, and the next byte is the first of a message.
// While something waits to be sent, pgx gets whole messages, so the latter is known.
func (c *Conn) isReady() bool {
	if c.Loaded() {
		return c.expects == "" && c.owed == 0
	}
	c.owed, c.status = 0, c.last[len(ready)]
	return len(c.in)+len(c.out) == 0 && string(c.last[:len(ready)]) == ready
}
