package mysql

import (
	"database/sql/driver"
	"errors"
	"net"
	"reflect"
	"sync/atomic"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/driverfield"
)

// The flags of the server's status that matter here.
const (
	statusInTransaction = 1 << 0
	statusAutocommit    = 1 << 1
)

// inner has three values of the driver's connection that the driver does not export: the server's
// status flags, as of its last answer, whether the driver has closed the connection, and what it
// reads and writes. They are read from the driver's own fields. If a version of the driver has them
// in other fields, known is false, the status is unknown, or speaks is nil.
type inner struct {
	known  bool
	status *uint16      // written by whoever uses the connection
	closed *atomic.Bool // also set by the driver's watcher of the context
	speaks net.Conn     // the wire, or TLS over it; the driver sets it at connect only
}

const driverPackage = "github.com/go-sql-driver/mysql"

func lookInto(conn driver.Conn) inner {
	v := reflect.ValueOf(conn)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct || v.Elem().Type().PkgPath() != driverPackage {
		return inner{}
	}
	const unseen = "transactions that a text has begun or ended are not seen"
	of := v.Elem().Type()
	status, closed := driverfield.Of[uint16](of, "status", unseen), driverfield.Of[atomic.Bool](of, "closed", unseen)
	speaks := driverfield.Of[net.Conn](of, "netConn", "over TLS a session that was changed is closed, and not reset in place")
	var in inner
	p := v.UnsafePointer()
	if status.Known() && closed.Known() {
		in.known, in.status, in.closed = true, status.In(p), closed.In(p)
	}
	if speaks.Known() {
		in.speaks = *speaks.In(p)
	}
	return in
}

// autocommit reports whether statements are transactions of their own.
func (i inner) autocommit() bool { return i.known && *i.status&statusAutocommit != 0 }

// transaction is the state by the server's last answer. Without autocommit the next
// statement opens a transaction that nobody asked for by BEGIN, and the server's flags do
// not tell a BEGIN from a first statement.
func (i inner) transaction() dialects.TxStatus {
	if !i.known {
		return dialects.TxUnknown
	}
	if i.closed.Load() {
		return dialects.TxLost
	}
	return i.lastTransaction()
}

// lastTransaction is transaction, also for a connection that is closed.
func (i inner) lastTransaction() dialects.TxStatus {
	if !i.known {
		return dialects.TxUnknown
	}
	switch {
	case !i.autocommit():
		return dialects.TxImplicit
	case *i.status&statusInTransaction != 0:
		return dialects.TxOpen
	}
	return dialects.TxNone
}

// errAutocommitOff: every statement would open a transaction, which ends with the statement's
// checkout, and COMMIT would meet another transaction.
var errAutocommitOff = errors.New("autocommit is off at connect, by autocommit=0 in the DSN, or by the server's global variable or init_connect: " +
	"each statement would open a transaction that is rolled back when its connection goes back; write autocommit=1 into the DSN, and begin transactions by BeginTx")

// checkAutocommit returns an error for a connection whose autocommit is off after its first answer.
func (i inner) checkAutocommit() error {
	if i.known && !i.autocommit() {
		return errAutocommitOff
	}
	return nil
}
