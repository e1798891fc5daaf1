package mysql

import (
	"errors"
	"slices"

	"github.com/go-sql-driver/mysql"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/myerror"
)

// diagnose knows errors by their numbers. If err has the errors of several servers, it
// diagnoses the first, and adds AuthFailed if any of them refused the credential.
func diagnose(err error) dialects.Diagnosis {
	found := diagnoseFirst(err)
	if found&dialects.AuthFailed == 0 && authFailed(err) {
		found |= dialects.AuthFailed
	}
	return found
}

// authFailed looks at all branches of err: a list joins the errors of its servers.
func authFailed(err error) bool {
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself: errors.As finds one branch only
	case *mysql.MySQLError:
		return diagnoseFirst(e)&dialects.AuthFailed != 0
	case interface{ Unwrap() error }:
		return authFailed(e.Unwrap())
	case interface{ Unwrap() []error }:
		return slices.ContainsFunc(e.Unwrap(), authFailed)
	}
	return false
}

func diagnoseFirst(err error) dialects.Diagnosis {
	var server *mysql.MySQLError
	if !errors.As(err, &server) {
		return 0
	}
	return myerror.Diagnose(int(server.Number), server.Message)
}

// errorNumber is the server's number for err, or 0 if it is not the server's.
func errorNumber(err error) uint16 {
	var server *mysql.MySQLError
	if errors.As(err, &server) {
		return server.Number
	}
	return 0
}
