package mysql

import (
	"errors"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/myerror"
)

// diagnose knows errors by their numbers. An idle connection that the server
// ends for its own sake (4031) says nothing about the others. Of the errors of
// several servers the first is diagnosed; that one of them refused the credential
// is said besides.
func diagnose(err error) dialects.Diagnosis {
	said := diagnoseFirst(err)
	if said&dialects.AuthFailed == 0 && authFailed(err) {
		said |= dialects.AuthFailed
	}
	return said
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
	number := int(errorNumber(err))
	switch {
	case myerror.TxEnders.Has(number):
		return dialects.TxEnded
	case myerror.LoginRefused.Has(number):
		return dialects.AuthFailed
	case myerror.Leaving.Has(number):
		return dialects.ServerLeaving
	case myerror.ReadOnly.Has(number):
		return dialects.RoleDoubt
	}
	switch number {
	case myerror.UnknownCommand:
		// What a node of Galera says to everything while it is not part of its
		// cluster ("WSREP has not yet prepared node for application use").
		if mentions(err, "wsrep") {
			return dialects.ServerLeaving
		}
	case myerror.OptionPrevents:
		// "… is running with the --read-only option so …", --super-read-only
		// and --innodb-read-only; also --secure-file-priv, and others. The
		// option's name is in no language.
		if mentions(err, "read-only") || mentions(err, "read_only") {
			return dialects.RoleDoubt
		}
	case myerror.LockWaitTimeout:
		// With innodb_rollback_on_timeout the transaction, by default the statement.
		return dialects.TxDoubt
	case myerror.TooManyPrepared:
		return dialects.TooManyPrepared
	case myerror.UnknownStatement:
		// EXECUTE has the same number, also within a procedure that has
		// committed something before. The command is named last. A message in
		// another language may end in another way; then the program gets the
		// error, as it does for 1615: the server has prepared the statement
		// anew three times by then, and a procedure's EXECUTE says it as well.
		var server *mysql.MySQLError
		if errors.As(err, &server) && strings.HasSuffix(server.Message, "given to mysqld_stmt_execute") {
			return dialects.StaleStatement
		}
	}
	return 0
}

// errorNumber is the server's number for err, or 0 if it is not the server's.
func errorNumber(err error) uint16 {
	var server *mysql.MySQLError
	if errors.As(err, &server) {
		return server.Number
	}
	return 0
}

// mentions reports whether the server's message has a word in it, in small
// letters or capital ones.
func mentions(err error, word string) bool {
	var server *mysql.MySQLError
	return errors.As(err, &server) && strings.Contains(strings.ToLower(server.Message), word)
}
