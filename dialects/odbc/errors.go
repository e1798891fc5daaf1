//go:build odbc && cgo

package odbc

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"

	odbcdriver "github.com/alexbrainman/odbc"

	"github.com/pooldriver/pooldriver/dialects/internal/myerror"
	"github.com/pooldriver/pooldriver/internal/redact"
)

// lostError is the error of a connection that is gone. For database/sql it is driver.ErrBadConn.
type lostError struct {
	what  string
	cause error // may be nil: the driver tells only ErrBadConn
	ours  bool  // given up here: the error says nothing about the server
}

func (e *lostError) Error() string {
	if e.cause == nil || errors.Is(e.cause, driver.ErrBadConn) {
		return e.what
	}
	return e.what + ": " + e.cause.Error()
}

func (e *lostError) Unwrap() error { return e.cause }

func (e *lostError) Is(target error) bool { return target == driver.ErrBadConn }

// errAbandoned: a statement's context has ended, and the statement has not.
var errAbandoned = &lostError{what: "dialects/odbc: the connection was given up when the context of a statement ended", ours: true}

var errClosed = &lostError{what: "dialects/odbc: the connection is closed", ours: true}

// serverLost reports whether err is about a connection that was lost and not given up.
func serverLost(err error) bool {
	var lost *lostError
	return errors.As(err, &lost) && !lost.ours
}

// otherDatabase: the connections of one pool must be alike.
func otherDatabase(before, now string) error {
	return fmt.Errorf("the data source led to %s before and leads to %s now; use a pool for each", before, now)
}

// records are the diagnostic records of an error of the driver.
func records(err error) []odbcdriver.DiagRecord {
	var e *odbcdriver.Error
	if !errors.As(err, &e) {
		return nil
	}
	return e.Diag
}

func hasState(err error, wanted ...string) bool {
	return slices.ContainsFunc(records(err), func(d odbcdriver.DiagRecord) bool { return slices.Contains(wanted, d.State) })
}

// hasNative reports whether number is the database's own number of the error.
func hasNative(err error, number int) bool {
	return slices.ContainsFunc(records(err), func(d odbcdriver.DiagRecord) bool { return d.NativeError == number })
}

func saysAny(err error, texts ...string) bool {
	return slices.ContainsFunc(records(err), func(d odbcdriver.DiagRecord) bool {
		return slices.ContainsFunc(texts, func(text string) bool { return strings.Contains(d.Message, text) })
	})
}

// doubtful reports whether an error may mean that the connection is gone. Such errors have the
// general classes of ODBC or the classes of connections: psqlODBC says HY000 for "the connection
// has been lost". (A class of SQL means that the server answers.)
func doubtful(err error) bool {
	var e *odbcdriver.Error
	if !errors.As(err, &e) {
		return false
	}
	if len(e.Diag) == 0 {
		return true
	}
	return slices.ContainsFunc(e.Diag, func(d odbcdriver.DiagRecord) bool {
		return slices.ContainsFunc(doubtfulClasses, func(class string) bool { return strings.HasPrefix(d.State, class) })
	})
}

var doubtfulClasses = []string{"HY", "08", "57", "58", "S1", "01", "70"}

// isTooMany: the server has no place for another connection.
func isTooMany(err error) bool {
	return hasState(err, "53300") || slices.ContainsFunc(records(err), func(d odbcdriver.DiagRecord) bool { return myerror.IsFull(d.NativeError) }) ||
		saysAny(err, "too many connections", "Too many connections", "too many clients")
}

// scrub removes secrets from an error of the driver, and leaves the states and numbers that
// identify the error. A secret of no more than three letters stays: its absence would give it away.
func scrub(err error, secrets []string) error {
	strike := func(s string) string {
		for _, secret := range secrets {
			if len(secret) >= 4 {
				s = redact.Strike(s, secret)
			}
		}
		return s
	}
	if err.Error() == strike(err.Error()) {
		return err
	}
	var e *odbcdriver.Error
	if !errors.As(err, &e) {
		return errors.New(strike(err.Error()))
	}
	clean := &odbcdriver.Error{APIName: e.APIName}
	for _, d := range e.Diag {
		d.Message = strike(d.Message)
		clean.Diag = append(clean.Diag, d)
	}
	return clean
}

// explainDial adds what to do, if the driver manager's own words do not say it.
func explainDial(err error) error {
	switch {
	case hasState(err, "IM002"):
		return fmt.Errorf("%w; define the data source in odbc.ini (odbcinst -j says which), or name a driver of odbcinst.ini (odbcinst -q -d lists them)", err)
	case saysAny(err, "Can't open lib"):
		return fmt.Errorf("%w; install the database's ODBC driver (Debian: odbc-postgresql, odbc-mariadb, libsqliteodbc) and name it as odbcinst -q -d lists it", err)
	}
	return err
}
