package mysql

import (
	"errors"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/pooldriver/pooldriver/dialects"
)

// Error numbers of the servers, by the names their manuals give them.
const (
	erAccessDenied             = 1045
	erAccessDeniedNoPassword   = 1698
	erMustChangePassword       = 1862
	erAccountLocked            = 3118
	erServerShutdown           = 1053
	erNormalShutdown           = 1077
	erShutdownComplete         = 1079
	erForcingClose             = 1080
	erAbortingConnection       = 1152
	erNewAbortingConnection    = 1184
	erConnectionKilled         = 1927 // MariaDB
	erSessionWasKilled         = 3169 // MySQL
	erUnknownStatement         = 1243
	erNoSuchThread             = 1094
	erConnectionLimit          = 1040
	erUserLimit                = 1203
	erUserResourceLimitReached = 1226
	erLockDeadlock             = 1213
	erTooManyPrepared          = 1461
)

// diagnose knows errors by their numbers. An idle connection that the server
// ends for its own sake (4031) says nothing about the others.
func diagnose(err error) dialects.Diagnosis {
	switch errorNumber(err) {
	case erAccessDenied, erAccessDeniedNoPassword, erMustChangePassword, erAccountLocked:
		return dialects.AuthFailed
	case erServerShutdown, erNormalShutdown, erShutdownComplete, erForcingClose,
		erAbortingConnection, erNewAbortingConnection, erConnectionKilled, erSessionWasKilled:
		return dialects.ServerLeaving
	case erLockDeadlock:
		// The server rolls back, and the driver takes no status from an error.
		return dialects.TxEnded
	case erTooManyPrepared:
		return dialects.TooManyPrepared
	case erUnknownStatement:
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
