package mysql

import (
	"database/sql/driver"
	"reflect"
	"sync/atomic"
	"unsafe"

	"github.com/pooldriver/pooldriver/dialects"
)

// The flags of the server's status that matter here.
const (
	statusInTransaction = 1 << 0
	statusAutocommit    = 1 << 1
)

// inner is what the driver's connection knows and does not tell: the server's
// status flags, as of its last answer, and whether the driver has closed it.
// Both are read where the driver keeps them. Where a version of the driver
// keeps them elsewhere, known is false and the status is unknown; a test fails
// then.
type inner struct {
	known  bool
	status reflect.Value // uint16; written by whoever uses the connection
	closed *atomic.Bool  // also set by the driver's watcher of the context
}

const driverPackage = "github.com/go-sql-driver/mysql"

func lookInto(conn driver.Conn) inner {
	v := reflect.ValueOf(conn)
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct || v.Elem().Type().PkgPath() != driverPackage {
		return inner{}
	}
	status, closed := v.Elem().FieldByName("status"), v.Elem().FieldByName("closed")
	if !status.IsValid() || status.Kind() != reflect.Uint16 || !closed.IsValid() || closed.Type() != reflect.TypeFor[atomic.Bool]() {
		return inner{}
	}
	// The type was checked, and the connection is reachable through conn for
	// as long as the pointer is used. Reading through reflect would not be
	// atomic.
	return inner{known: true, status: status, closed: (*atomic.Bool)(unsafe.Pointer(closed.UnsafeAddr()))}
}

// autocommit reports whether statements are transactions of their own.
func (i inner) autocommit() bool { return i.known && i.status.Uint()&statusAutocommit != 0 }

// transaction is the state by the server's last answer. Where the connection
// had autocommit at first and no longer has, the next statement opens a
// transaction nobody asked for by BEGIN. Where the DSN itself turned it off that
// is what the program wants, and only one that is open counts. Without
// autocommit the server's flags do not tell a BEGIN from a first statement.
func (i inner) transaction(autocommitAtConnect bool) dialects.TxStatus {
	if !i.known {
		return dialects.TxUnknown
	}
	if i.closed.Load() {
		return dialects.TxLost
	}
	return i.lastTransaction(autocommitAtConnect)
}

// lastTransaction is that also of a connection that is closed.
func (i inner) lastTransaction(autocommitAtConnect bool) dialects.TxStatus {
	if !i.known {
		return dialects.TxUnknown
	}
	inTransaction := i.status.Uint()&statusInTransaction != 0
	switch {
	case !i.autocommit() && (inTransaction || autocommitAtConnect):
		return dialects.TxImplicit
	case inTransaction:
		return dialects.TxOpen
	}
	return dialects.TxNone
}
