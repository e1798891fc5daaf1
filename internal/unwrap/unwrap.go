// Package unwrap looks through the wrappers that tracing and metrics libraries put around
// the connections and connectors of database/sql drivers, and around network connections.
//
// There is no standard way to do that. The search knows the ways of such libraries: one of
// three methods, or an exported field with the name of the interface, as an embedded interface has.
package unwrap

import (
	"database/sql/driver"
	"io"
	"net"
	"reflect"
)

// depth bounds the search: a wrapper may return itself.
const depth = 8

// Conn returns the innermost connection that can be found behind c. It is c if c wraps
// nothing, or does not show what it wraps.
func Conn(c driver.Conn) driver.Conn { return innermost(c, behindConn) }

// Connector returns the innermost connector that can be found behind c, as Conn does.
func Connector(c driver.Connector) driver.Connector { return innermost(c, behindConnector) }

// NetConn returns the innermost network connection that can be found behind nc, as Conn does: TLS shows
// what it lies on.
func NetConn(nc net.Conn) net.Conn { return innermost(nc, behindNetConn) }

// Shown returns c with the driver of the innermost connector behind it: the driver of a
// wrapper may be the wrapper's own.
func Shown(c driver.Connector) driver.Connector { return shown{c} }

type shown struct{ driver.Connector }

func (s shown) Driver() driver.Driver { return Connector(s.Connector).Driver() }

// Close closes the connector, if it can be closed.
func (s shown) Close() error {
	if c, ok := s.Connector.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

func innermost[T any](outer T, behind func(T) (T, bool)) T {
	for range depth {
		inner, ok := behind(outer)
		if !ok {
			break
		}
		outer = inner
	}
	return outer
}

func behindConn(c driver.Conn) (driver.Conn, bool) {
	var inner driver.Conn
	switch w := c.(type) {
	case interface{ Unwrap() driver.Conn }:
		inner = w.Unwrap()
	case interface{ Raw() driver.Conn }: // XSAM/otelsql
		inner = w.Raw()
	case interface{ WrappedConn() driver.Conn }: // DataDog/dd-trace-go
		inner = w.WrappedConn()
	default:
		return field[driver.Conn](c, "Conn") // qustavo/sqlhooks, uptrace/otelsql
	}
	return inner, inner != nil
}

func behindNetConn(nc net.Conn) (net.Conn, bool) {
	if w, ok := nc.(interface{ NetConn() net.Conn }); ok { // *tls.Conn
		inner := w.NetConn()
		return inner, inner != nil
	}
	inner, ok := field[net.Conn](nc, "Conn") // cloudsqlconn
	return inner, ok && inner != nil
}

func behindConnector(c driver.Connector) (driver.Connector, bool) {
	if w, ok := c.(interface{ Unwrap() driver.Connector }); ok {
		inner := w.Unwrap()
		return inner, inner != nil
	}
	return field[driver.Connector](c, "Connector") // XSAM/otelsql
}

// field returns the exported field of v, which is a struct or points to a struct.
func field[T any](v any, name string) (inner T, ok bool) {
	s := reflect.ValueOf(v)
	if s.Kind() == reflect.Pointer {
		s = s.Elem()
	}
	if s.Kind() != reflect.Struct {
		return inner, false
	}
	// Only the struct's own fields: a field that an embedded pointer promotes panics if the pointer
	// is nil.
	if f, found := s.Type().FieldByName(name); !found || !f.IsExported() || len(f.Index) > 1 {
		return inner, false
	}
	inner, ok = s.FieldByName(name).Interface().(T)
	return inner, ok
}
