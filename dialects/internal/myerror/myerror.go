// Package myerror knows the error numbers of MySQL and MariaDB, by the names that the
// manuals give them, and what they mean for a connection.
package myerror

import (
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
)

// The servers' numbers.
const (
	CheckRead                = 1020
	ConnectionLimit          = 1040
	AccessDenied             = 1045
	UnknownCommand           = 1047
	ServerShutdown           = 1053
	NormalShutdown           = 1077
	ShutdownComplete         = 1079
	ParseError               = 1064
	ForcingClose             = 1080
	NoSuchThread             = 1094
	KillDenied               = 1095
	AbortingConnection       = 1152
	NewAbortingConnection    = 1184
	CommitFailed             = 1180
	UserLimit                = 1203
	LockWaitTimeout          = 1205
	LockTableFull            = 1206
	LockDeadlock             = 1213
	UserResourceLimitReached = 1226
	UnknownStatement         = 1243
	OptionPrevents           = 1290
	NoSuchSavepoint          = 1305
	TooManyPrepared          = 1461
	AccessDeniedNoPassword   = 1698
	ReadOnlyTransaction      = 1792
	ReadOnlyMode             = 1836
	MustChangePassword       = 1862
	InnoDBReadOnly           = 1874
	ConnectionKilled         = 1927 // MariaDB
	OfflineMode              = 3032
	AccountLocked            = 3118
	ReplicationHookFailed    = 3100 // MySQL, group replication
	RolledBackAtCommit       = 3101 // MySQL, group replication
	SessionWasKilled         = 3169 // MySQL
	TooManyFailedLogins      = 3955 // MySQL
	IdleTimeout              = 4031 // MySQL
	AccountIsLocked          = 4151 // MariaDB
)

// IsFull reports whether the server has no place for another connection.
func IsFull(number int) bool {
	return number == ConnectionLimit || number == UserLimit || number == UserResourceLimitReached
}

// Diagnose says what an error of the server means, by its number and its message.
func Diagnose(number int, message string) dialects.Diagnosis {
	switch number {
	case AccessDenied, AccessDeniedNoPassword, MustChangePassword, AccountLocked, TooManyFailedLogins, AccountIsLocked:
		return dialects.AuthFailed
	case ServerShutdown, NormalShutdown, ShutdownComplete, ForcingClose, AbortingConnection,
		NewAbortingConnection, ConnectionKilled, SessionWasKilled, OfflineMode:
		return dialects.ServerLeaving | dialects.SessionEnded
	case IdleTimeout:
		return dialects.WasIdle | dialects.SessionEnded
	case LockDeadlock, CheckRead, RolledBackAtCommit:
		// An error does not change the driver's state of the transaction. CheckRead: the row has
		// changed since it was read (MariaDB with innodb_snapshot_isolation, the default since
		// 11.6.2). RolledBackAtCommit: the group has certified another transaction that writes the
		// same rows.
		return dialects.TxEnded | dialects.Conflict
	case LockTableFull:
		return dialects.TxEnded
	case LockWaitTimeout:
		// With innodb_rollback_on_timeout the server rolls back the transaction, by default only
		// the statement. The error is no Conflict: the statement has waited for
		// innodb_lock_wait_timeout, 50 s by default, and the holder may keep the lock just as long
		// again.
		return dialects.TxDoubt
	case ReplicationHookFailed:
		// The member has left the group, or is about to leave. Its COMMIT is a ROLLBACK.
		return dialects.TxEnded | dialects.Conflict | dialects.RoleDoubt
	case ReadOnlyTransaction, ReadOnlyMode, InnoDBReadOnly:
		return dialects.RoleDoubt
	case ConnectionLimit, UserLimit:
		return dialects.ServerFull
	case TooManyPrepared:
		return dialects.TooManyPrepared
	case UnknownStatement:
		// EXECUTE has the same number, also inside a procedure, which may have committed
		// something before. Such texts are Suspect, and are never executed again. Functions
		// and triggers cannot EXECUTE. 1615 is not diagnosed: the server has prepared the
		// statement again three times by then.
		return dialects.StaleStatement
	}
	return byMessage(number, strings.ToLower(message))
}

// byMessage says what an error means whose number several errors share. message is in lower case.
func byMessage(number int, message string) dialects.Diagnosis {
	switch number {
	case CommitFailed:
		// "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT": the group's
		// transaction has won. Other errors of the storage engine have the same number.
		if strings.Contains(message, "error 149") {
			return dialects.TxEnded | dialects.Conflict
		}
	case UserResourceLimitReached:
		// Open connections say nothing about an account's other limits, such as
		// MAX_CONNECTIONS_PER_HOUR.
		if strings.Contains(message, "max_user_connections") {
			return dialects.ServerFull
		}
	case UnknownCommand:
		// A node of Galera answers every statement with this error while the node is not a part of
		// its cluster ("WSREP has not yet prepared node for application use").
		if strings.Contains(message, "wsrep") {
			return dialects.ServerLeaving
		}
	case OptionPrevents:
		// "… is running with the --read-only option so …", also --super-read-only and
		// --innodb-read-only. Other options, such as --secure-file-priv, have the same
		// number. The option's name is the same in every language.
		if strings.Contains(message, "read-only") || strings.Contains(message, "read_only") {
			return dialects.RoleDoubt
		}
	}
	return 0
}
