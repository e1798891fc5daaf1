package mysql

import (
	"errors"

	"github.com/go-sql-driver/mysql"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/myerror"
)

// diagnose knows errors by their numbers. If err has the errors of several servers, it
// diagnoses the first, and adds AuthFailed or ServerFull if any of them says so.
func diagnose(err error) dialects.Diagnosis {
	return diagnoseFirst(err) | ofAny(err)&(dialects.AuthFailed|dialects.ServerFull)
}

// ofAny looks at all branches of err: a list joins the errors of its servers.
func ofAny(err error) (found dialects.Diagnosis) {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself: errors.As finds one branch only
	case *mysql.MySQLError:
		return diagnoseFirst(e)
	case interface{ Unwrap() error }:
		return ofAny(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, branch := range e.Unwrap() {
			found |= ofAny(branch)
		}
	}
	return found
}

func diagnoseFirst(err error) dialects.Diagnosis {
	var server *mysql.MySQLError
	if !errors.As(err, &server) {
		return 0
	}
	return myerror.Diagnose(int(server.Number), server.Message)
}

// states are the SQLSTATEs of errors for which the server has only HY000, a general error: no room, read-only, a lock that was not to be had.
var states = map[uint16]string{1021: "53100", 1114: "53100", 1037: "53200", 1038: "53200", 1041: "53200", 1836: "25006", 1290: "25006", 1205: "55P03"}

// SQLState implements dialects.StateTeller.
func (dialect) SQLState(err error) string {
	if server, ok := errors.AsType[*mysql.MySQLError](err); ok {
		if state := states[server.Number]; state != "" {
			return state
		}
		return string(server.SQLState[:])
	}
	return ""
}

// errorNumber is the server's number for err, or 0 if it is not the server's.
func errorNumber(err error) uint16 {
	if server, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return server.Number
	}
	return 0
}
