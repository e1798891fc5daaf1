// Package myerror has the error numbers of MySQL and MariaDB, by the names that their
// manuals give them, and what several of them have in common.
package myerror

import "slices"

// The servers' numbers.
const (
	CheckRead                = 1020
	ConnectionLimit          = 1040
	AccessDenied             = 1045
	UnknownCommand           = 1047
	ServerShutdown           = 1053
	NormalShutdown           = 1077
	ShutdownComplete         = 1079
	ForcingClose             = 1080
	NoSuchThread             = 1094
	KillDenied               = 1095
	AbortingConnection       = 1152
	NewAbortingConnection    = 1184
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
	SessionWasKilled         = 3169 // MySQL
)

// Set is a set of numbers.
type Set []int

// Has reports whether number is in s.
func (s Set) Has(number int) bool { return slices.Contains(s, number) }

var (
	// LoginRefused: the server refuses the user, or the password.
	LoginRefused = Set{AccessDenied, AccessDeniedNoPassword, MustChangePassword, AccountLocked}

	// Leaving: the server ends this connection, and probably the others too. A
	// connection that it ends because it was idle (4031) says nothing of the others.
	Leaving = Set{
		ServerShutdown, NormalShutdown, ShutdownComplete, ForcingClose,
		AbortingConnection, NewAbortingConnection, ConnectionKilled, SessionWasKilled, OfflineMode,
	}

	// Full: the server has no place for another connection.
	Full = Set{ConnectionLimit, UserLimit, UserResourceLimitReached}

	// TxEnders: the server has rolled back the whole transaction. No driver takes the
	// transaction's state from an error. CheckRead: the row was changed since it was
	// read (MariaDB with innodb_snapshot_isolation, the default since 11.6.2).
	TxEnders = Set{LockDeadlock, CheckRead, LockTableFull}

	// ReadOnly: the server, or the transaction, does not write.
	ReadOnly = Set{ReadOnlyTransaction, ReadOnlyMode, InnoDBReadOnly}
)
