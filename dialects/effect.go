package dialects

import "strings"

// Effect says what a statement leaves behind in its session, and whether it
// writes, as far as its text shows. It is a set of bits: the effect of several
// statements is the bitwise or of their effects. The zero value is Clean. Dirty reports whether a
// session has changed: some bits say nothing about the session.
//
// A classifier sees only the text. It cannot see that a trigger, a view or a function in a query
// changes the session; in PostgreSQL also a function called in the notation of an attribute, SELECT
// t.f FROM t. The reset mode "always" is for these cases.
type Effect uint32

// Clean is the effect of a statement that leaves nothing behind.
const Clean Effect = 0

const (
	// Suspect marks a statement that may have left something behind, although its text does not
	// show that: CALL, DO, an unknown function. The connection is cleaned before it is lent again;
	// it is not pinned.
	Suspect Effect = 1 << iota

	// Stateful marks a statement that changes the session: SET, a temporary
	// table, LISTEN, an advisory lock, a user variable, USE. It pins the
	// connection to its borrower, and the connection is cleaned afterwards.
	Stateful

	// TxControl marks a statement that may open or end a transaction: BEGIN,
	// START TRANSACTION, SAVEPOINT, COMMIT, ROLLBACK, SET autocommit, and
	// everything whose text may hide one of them (CALL). If the server can be asked for the
	// transaction's state, the server's answer counts. This bit is for dialects that cannot ask.
	TxControl

	// ForgetPrepared marks a statement after which a statement that was prepared earlier on the
	// same connection may have another meaning or none: USE, SET search_path, SET ROLE, SET
	// sql_mode, DEALLOCATE. The connection's statement cache is emptied.
	ForgetPrepared

	// NamedPrepared marks SQL-level PREPARE, EXECUTE and DEALLOCATE: the
	// session may own statements that no driver knows of.
	NamedPrepared

	// Unresettable marks a statement that no cleaning can undo: a seed, an open dblink connection,
	// a running backup. The connection is closed instead of cleaned.
	Unresettable

	// Writes marks a statement that may change data in the database's file
	// while another connection reads. Only a dialect whose driver has the trait WritesAlone sets
	// this bit.
	Writes

	// Renames marks a ForgetPrepared after which the server would still execute an earlier prepared
	// statement with the database, the SQL mode and the character set of the time of its
	// preparation (MySQL, MariaDB: USE, SET NAMES). Prepared anew, the statement would mean
	// something else.
	Renames

	// Rereads marks a statement after which the server may read a text in another way, although its
	// names mean the same: it reads literals and quotes by the session's settings when it prepares
	// a text (SET timezone, SET standard_conforming_strings). Only settings that are known not to
	// matter there are without this mark. A statement that was prepared under other settings is not
	// used again.
	Rereads
)

// Dirty reports whether a connection that ran a statement of this effect must be cleaned or closed
// before another borrower gets the connection.
func (e Effect) Dirty() bool { return e&(Suspect|Stateful|Unresettable) != 0 }

// String names the bits, for tests and logs: "clean", "stateful|tx-control".
func (e Effect) String() string {
	if e == Clean {
		return "clean"
	}
	names := [...]string{"suspect", "stateful", "tx-control", "forget-prepared", "named-prepared", "unresettable", "writes", "renames", "rereads"}
	var set []string
	for i, name := range names {
		if e&(1<<i) != 0 {
			set = append(set, name)
		}
	}
	return strings.Join(set, "|")
}
