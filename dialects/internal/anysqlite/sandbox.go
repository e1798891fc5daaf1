package anysqlite

import (
	"context"
	"errors"
	"regexp"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
)

// A test in one transaction: package sandbox.

var (
	_ dialects.SandboxChecker = (*Session)(nil)
	_ dialects.SandboxJudge   = Dialect{}
)

// sandboxTraits: the test begins as the writer, because SQLite has only one. An interruption rolls
// the whole transaction back.
var sandboxTraits = dialects.SandboxTraits{
	Begin: "BEGIN IMMEDIATE", Uninterrupted: true,
	CommitOutside:   errors.New("SQL logic error: cannot commit - no transaction is active (1)"),
	RollbackOutside: errors.New("SQL logic error: cannot rollback - no transaction is active (1)"),
	Begins:          regexp.MustCompile(`^begin(?: deferred| immediate| exclusive)?(?: transaction(?: \S+)?)?$`),
}

func (s *Session) Sandbox() dialects.SandboxTraits { return sandboxTraits }

// Interrupt is never called.
func (s *Session) Interrupt(context.Context) error { return nil }

// CleanInTx cannot clean more than Clean can.
func (s *Session) CleanInTx(ctx context.Context, effect dialects.Effect) (kept bool, err error) {
	return s.Clean(ctx, effect)
}

// errForeignKey is SQLite's error of a COMMIT, in the driver's words.
var errForeignKey = errors.New("constraint failed: FOREIGN KEY constraint failed (787)")

// CheckDeferred looks for rows without the rows that they refer to, if the schema has foreign keys
// that are checked at COMMIT. SQLite checks them when the outermost savepoint ends, and that is the
// test's. Rows that were without them before the test are found, too.
func (s *Session) CheckDeferred(ctx context.Context) error {
	deferred, err := firstRow(ctx, s.Conn(), "SELECT count(*) FROM sqlite_schema, pragma_foreign_keys AS k WHERE k.foreign_keys AND sqlite_schema.sql LIKE '%DEFERRED%'")
	if err != nil || len(deferred) == 0 || deferred[0] == int64(0) {
		return err
	}
	broken, err := firstRow(ctx, s.Conn(), "SELECT count(*) FROM pragma_foreign_key_check")
	if err != nil || len(broken) == 0 || broken[0] == int64(0) {
		return err
	}
	return errForeignKey
}

// SandboxesAlone: SQLite has one writer at a time.
func (Dialect) SandboxesAlone() bool { return true }

// outsideOnly are the statements that SQLite refuses in a transaction, or ignores there.
var outsideOnly = regexp.MustCompile(`(?i)^\s*(?:vacuum\b|(?:attach|detach)\b|pragma\s+(?:\w+\.)?(?:foreign_keys|journal_mode)\s*[=(])`)

// Refuses knows the statements that work only outside of transactions. A PRAGMA foreign_keys that is
// ignored would let tests pass that fail in production.
func (Dialect) Refuses(text string) string {
	if m := outsideOnly.FindString(text); m != "" {
		return "SQLite executes " + strings.Join(strings.Fields(strings.TrimRight(m, "=( ")), " ") + " only outside of a transaction, and a sandbox is one: put such settings into the DSN"
	}
	return ""
}

// Ignores is false: SQLite has no isolation levels.
func (Dialect) Ignores(string) bool { return false }

// ReadsOnly returns nil: the driver's transactions that are read only may write, too.
func (Dialect) ReadsOnly(string) error { return nil }

// LeavesNothing is true: what a statement does to its session is undone with the statement.
func (Dialect) LeavesNothing(error) bool { return true }
