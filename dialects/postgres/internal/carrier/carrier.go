// Package carrier is a layer between pgx and the network that sends messages of its own in front of
// a statement of pgx, in the statement's packet: a BEGIN, settings, statements of a sandbox. pgx
// does not see the server's answers to them.
package carrier

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

// Carrier is what pgx reads from and writes to, above TLS. It passes everything on unchanged until
// AwaitBegin, CarrySettings or CarryAhead is called.
//
// The carrier itself answers the BEGIN that pgx writes after AwaitBegin, holds it, and sends it in
// front of the next statement. It sends BEGIN by the extended protocol, without a Sync. If BEGIN
// fails, the server discards every message up to the next Sync (PostgreSQL protocol, 55.2.3), also
// the statement. In the extended protocol pgx sends this Sync; for a simple query the carrier sends
// it when it sees the error. So a statement never runs outside of the transaction, its text is what
// the program wrote, and its error leaves the transaction open and failed as usual. docs/adr/0009
// has the alternatives.
//
// After a failed BEGIN the carrier answers as the server of a failed transaction does, until pgx
// ends the transaction. Harmless messages go to the server all the same, such as Close, which pgx
// does not expect to fail. Their ReadyForQuery gets the status of the failed transaction.
//
// Settings are local to the transaction. Without a BEGIN this is the transaction that the server
// opens for the messages up to the next Sync: the settings and the statement. A simple query does
// not end this transaction on every version of the server: on PostgreSQL 18 the status after it is
// T. So the carrier sends a Sync after it, and a Parse in front of the Sync: a Sync that comes
// right behind a simple query leaves the session of PostgreSQL 18 between two transactions, and
// every BEGIN after it fails ("StartTransactionCommand: unexpected state STARTED", XX000).
//
// One goroutine at a time calls Write and Read, with one exception: a COPY FROM reads in one
// goroutine and writes its data in another. Then mu orders the two; neither waits for the network
// while it holds mu.
type Carrier struct {
	r        io.Reader
	w        io.Writer
	frontend *pgproto3.Frontend // pgx's, which reads from the carrier
	gate     *gate              // below TLS

	// busy: the carrier must do more than pass bytes on. It is false again after a read that finds
	// nothing left to do.
	busy atomic.Bool
	tail [len(idle)]byte // the last bytes that pgx has read; only Read writes it

	prepared, executed atomic.Uint64 // messages for statements that have names

	mu      sync.Mutex // protects following fields, except for packet
	state   state
	head    []byte // the messages of the BEGIN that is held
	cargo   cargo  // goes in front of the next statement, behind head
	packet  []byte // our messages; only Write uses it
	begins  bool   // our messages begin with head
	sync    syncing
	answers string // the types of the server's answers to our messages
	step    int    // so many answers have come
	cause   []byte // the error of BEGIN, if pgx has not read it
	skips   bool   // aborted: pgx's messages are dropped until its Sync
	owed    int    // holding, aborted: ReadyForQuery messages that are to come for pgx
	in      []byte // read from the server, and not sorted yet
	out     []byte // for pgx to read
}

// state is what the carrier does.
type state uint8

const (
	passing  state = iota // everything passes unchanged
	awaiting              // the next write of pgx may be a BEGIN
	holding               // a BEGIN, until there is a statement
	loaded                // with a cargo, until there is a statement
	carrying              // our messages were sent, and not all their answers have come
	trailing              // the statement's answer comes, and then the answers to our ending
	ending                // the answers to our ending come
	aborted               // BEGIN has failed, and pgx has not ended the transaction
)

// syncing says which Sync belongs to our messages.
type syncing uint8

const (
	syncByPgx   syncing = iota // pgx's, at the end of its series
	syncBetween                // ours, between our messages and pgx's
	syncBehind                 // ours, at the end of the ending behind pgx's simple query
	syncIfFails                // ours, when our messages have failed: a simple query has none
)

// enter changes the state.
func (c *Carrier) enter(s state) {
	c.state = s
	c.gate.shut.Store(s != passing && s != awaiting)
	if s != passing {
		c.busy.Store(true)
	}
}

// Install gives each connection of config a carrier. pgx dials a server, puts TLS around the
// connection, and then builds a frontend for it.
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
		g.carrier = newCarrier(r, w, g, build)
		return g.carrier.frontend
	}
}

func newCarrier(r io.Reader, w io.Writer, g *gate, build pgconn.BuildFrontendFunc) *Carrier {
	c := &Carrier{r: r, w: w, gate: g}
	c.frontend = build(c, c)
	return c
}

// Of returns the carrier of a connection; nil if it has none.
func Of(pg *pgconn.PgConn) *Carrier {
	if g := wire.Under[*gate](pg.Conn()); g != nil {
		return g.carrier
	}
	return nil
}

// AwaitBegin makes the carrier hold the BEGIN that pgx writes next. It returns false, and changes
// nothing, in a transaction, and if the next byte that comes may not be the first of a message.
func (c *Carrier) AwaitBegin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.state != passing || !c.betweenMessages() || string(c.tail[:]) != idle {
		return false
	}
	c.enter(awaiting)
	return true
}

// betweenMessages reports whether pgx has read a ReadyForQuery, and nothing after it has come: the
// beginning of a message may have come after it.
func (c *Carrier) betweenMessages() bool {
	return string(c.tail[:len(ready)]) == ready && c.frontend.ReadBufferLen() == 0 && len(c.in)+len(c.out) == 0
}

// CarrySettings makes the next statement that pgx executes carry settings. It returns false, and
// changes nothing, if the next byte that comes may not be the first of a message.
func (c *Carrier) CarrySettings(settings []dialects.ContextSetting) bool {
	var next cargo
	next.addSettings(settings)
	return c.load(next)
}

// CarryAhead makes the next statement that pgx executes or prepares carry texts, and then settings:
// an error of the Parse would fail the transaction before a savepoint is there. It returns false as
// CarrySettings does.
func (c *Carrier) CarryAhead(texts []string, settings []dialects.ContextSetting) bool {
	next := cargo{early: true}
	for _, text := range texts {
		next.messages = appendStatement(next.messages, text)
		next.answers += statementAnswers
	}
	if len(settings) > 0 {
		next.addSettings(settings)
	}
	return c.load(next)
}

// Kept counts the messages of pgx that prepare a statement with a name, and those that execute one.
func (c *Carrier) Kept() (prepared, executed uint64) {
	return c.prepared.Load(), c.executed.Load()
}

// Passing reports whether everything that pgx writes next reaches the server unchanged.
func (c *Carrier) Passing() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.state == passing
}

func (c *Carrier) load(next cargo) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state == holding:
	case c.state == passing && c.betweenMessages():
		c.enter(loaded)
	default:
		return false
	}
	c.cargo = next
	return true
}

// Unload takes back AwaitBegin, CarrySettings or CarryAhead if pgx has not written what they wait
// for. sent reports whether a statement has carried what CarrySettings or CarryAhead was given.
func (c *Carrier) Unload() (sent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cargo.messages = nil // the names stay: the answer may still be to come
	sent = c.state != loaded && c.state != holding
	if c.state == loaded || c.state == awaiting {
		c.enter(passing)
	}
	return sent
}
