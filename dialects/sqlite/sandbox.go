package sqlite

import (
	"context"
	"regexp"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
)

// A test in one transaction: package sandbox.

var (
	_ dialects.Sandboxer    = (*session)(nil)
	_ dialects.SandboxJudge = dialect{}
)

// sandboxTraits: the test begins as the writer, because SQLite has only one. An interruption rolls
// the whole transaction back.
var sandboxTraits = dialects.SandboxTraits{Begin: "BEGIN IMMEDIATE", Uninterrupted: true}

func (s *session) Sandbox() dialects.SandboxTraits { return sandboxTraits }

// Interrupt is never called.
func (s *session) Interrupt(context.Context) error { return nil }

// CleanInTx cannot clean more than Clean can.
func (s *session) CleanInTx(ctx context.Context, effect dialects.Effect) (kept bool, err error) {
	return s.Clean(ctx, effect)
}

// SandboxesAlone: SQLite has one writer at a time.
func (dialect) SandboxesAlone() bool { return true }

// outsideOnly are the statements that SQLite refuses in a transaction, or ignores there.
var outsideOnly = regexp.MustCompile(`(?i)^\s*(?:vacuum\b|(?:attach|detach)\b|pragma\s+(?:\w+\.)?(?:foreign_keys|journal_mode)\s*[=(])`)

// Refuses knows the statements that work only outside of transactions. A PRAGMA foreign_keys that is
// ignored would let tests pass that fail in production.
func (dialect) Refuses(text string) string {
	if m := outsideOnly.FindString(text); m != "" {
		return "SQLite executes " + strings.Join(strings.Fields(strings.TrimRight(m, "=( ")), " ") + " only outside of a transaction, and a sandbox is one: put such settings into the DSN"
	}
	return ""
}

// ReadsOnly returns nil: the driver's transactions that are read only may write, too.
func (dialect) ReadsOnly(string) error { return nil }
