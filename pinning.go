package pooldriver

import (
	"github.com/pooldriver/pooldriver/internal/binding"
	"github.com/pooldriver/pooldriver/internal/pinning"
)

// Pin says why a connection is held.
type Pin string

// The reasons, from the weakest to the strongest.
const (
	PinNone           Pin = ""
	PinStatement      Pin = "statement"               // a statement is running
	PinConn           Pin = "conn"                    // a *sql.Conn, or a *sql.Tx whose begin was deferred
	PinRows           Pin = "rows"                    // rows are open
	PinState          Pin = "session state"           // a task has changed its session
	PinRawTransaction Pin = "transaction by hand"     // a statement such as BEGIN has begun it
	PinTransaction    Pin = "transaction"             // BeginTx
	PinRaw            Pin = "driver connection (Raw)" // a function of Raw has it
	// PinListen is the pin of the connection of Connector.Listen. It is beyond Config.MaxConns.
	PinListen Pin = "listen"
)

// pinOf is the pin of a connection that somebody has. While a statement runs, PinStatement stands for
// PinConn.
func pinOf(l *binding.Look) Pin {
	if l.Running && l.Look.Pin == pinning.Conn {
		return PinStatement
	}
	return Pin(l.Pin.String())
}

// advice says how the program gives back a connection that is held for the reason pin. task is the holder's; "": it has none.
func advice(pin Pin, task string) string {
	switch pin {
	case PinStatement:
		return "its statement runs; end the statement's context"
	case PinRows:
		return "close its rows"
	case PinTransaction, PinRawTransaction:
		return "commit its transaction or roll it back"
	case PinState:
		if task != "" {
			return "end its task"
		}
	case PinRaw:
		return "let the function of Raw return"
	}
	return "close its *sql.Conn"
}
