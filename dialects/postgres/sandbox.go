package postgres

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pooldriver/pooldriver/dialects"
)

// A test in one transaction: package sandbox.

var (
	_ dialects.SandboxCarrier = (*session)(nil)
	_ dialects.SandboxKeeper  = (*session)(nil)
)

var sandboxTraits = dialects.SandboxTraits{
	Begin: "BEGIN", ErrorFailsTx: true, ReadOnly: "SET TRANSACTION READ ONLY", Scripts: true,
	FailedCommit: pgx.ErrTxCommitRollback,
	Begins:       regexp.MustCompile(`^(?:begin(?: work| transaction)?|start transaction)(?: ` + txMode + `(?:(?: ,)? ` + txMode + `)*)?$`),
}

const txMode = `(?:isolation level (?:serializable|repeatable read|read (?:un)?committed)|read only|read write|(?:not )?deferrable)`

func (s *session) Sandbox() dialects.SandboxTraits { return sandboxTraits }

// Interrupt sends a request to cancel. The server closes the connection of the request when it has
// sent the signal, and a backend that waits for a statement drops the signal.
func (s *session) Interrupt(ctx context.Context) error { return s.pg.CancelRequest(ctx) }

// CleanInTx is what Clean sends. All of it may run in a transaction.
func (s *session) CleanInTx(ctx context.Context, effect dialects.Effect) (kept bool, err error) {
	text, keepsPrepared := s.kind.cleaning(effect)
	if text == "" {
		return false, dialects.ErrCannotClean
	}
	if err := s.simple(ctx, text); err != nil {
		return false, err
	}
	s.settingsChange(nil)
	s.before = nil
	if err := s.restoreReported(ctx); err != nil {
		return false, err
	}
	if keepsPrepared {
		return true, nil
	}
	s.pipelined.forget()
	return false, s.pgx.DeallocateAll(ctx)
}

// CarryAhead sends texts and settings ahead.
func (s *session) CarryAhead(texts []string, settings []dialects.ContextSetting) bool {
	return s.ahead != nil && s.ahead.Carry(texts, settings)
}

// DropAhead ends CarryAhead.
func (s *session) DropAhead() (sent bool) { return s.ahead.Drop() }

// Value asks for a setting. A setting that does not exist is empty, as it is after the transaction
// that has set it.
func (s *session) Value(ctx context.Context, name string) (string, error) {
	r := s.pg.ExecParams(ctx, "SELECT pg_catalog.current_setting($1, true)", [][]byte{[]byte(name)}, nil, nil, nil).Read()
	if r.Err != nil {
		return "", r.Err
	}
	if len(r.Rows) != 1 {
		return "", fmt.Errorf("the server does not tell the value of %s", name)
	}
	return string(r.Rows[0][0]), nil
}

// Deferred asks for the constraints and constraint triggers that are initially deferred.
func (s *session) Deferred(ctx context.Context) ([]string, error) {
	const query = `SELECT DISTINCT pg_catalog.format('%I.%I', n.nspname, c.conname)
		FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_namespace n ON n.oid = c.connamespace WHERE c.condeferred`
	r := s.pg.ExecParams(ctx, query, nil, nil, nil, nil).Read()
	var names []string
	for _, row := range r.Rows {
		names = append(names, string(row[0]))
	}
	return names, r.Err
}

// Check runs what waits for COMMIT. SET CONSTRAINTS ALL IMMEDIATE would last until the end of the
// test: the constraints that are initially deferred are deferred again.
func (s *session) Check(deferred []string) string {
	text := "SET CONSTRAINTS ALL IMMEDIATE"
	if len(deferred) > 0 {
		text += "; SET CONSTRAINTS " + strings.Join(deferred, ", ") + " DEFERRED"
	}
	return text
}

// Undo sets settings back and ends temporary tables.
func (s *session) Undo(l *dialects.SandboxLocals) string {
	var undo []string
	for _, table := range l.Empty {
		undo = append(undo, "DELETE FROM "+table)
	}
	if len(l.Drop) > 0 {
		undo = append(undo, "DROP TABLE IF EXISTS "+strings.Join(l.Drop, ", "))
	}
	for _, name := range l.Settings {
		undo = append(undo, fmt.Sprintf("SELECT pg_catalog.set_config(%s, %s, true)", literal(name), literal(l.Before[name])))
	}
	return strings.Join(undo, "; ")
}

// literal quotes a text, whatever standard_conforming_strings says.
func literal(s string) string {
	return "E'" + strings.NewReplacer(`\`, `\\`, `'`, `''`).Replace(s) + "'"
}
