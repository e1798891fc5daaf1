package anysqlite

import (
	"context"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/driverconn"
)

// question is a statement that always fails. Its error tells whether a transaction is open. VACUUM
// looks first at sqlite3_get_autocommit, then for other running statements, and then at the name of
// the file to write: NULL is no name. It takes no lock, reads no page, and leaves the results of
// changes() and last_insert_rowid(), running statements and the transaction as they are.
const question = "VACUUM INTO NULL"

// The answers, in the order in which SQLite finds them.
const (
	answerOpen = "cannot VACUUM from within a transaction"
	answerBusy = "cannot VACUUM - SQL statements in progress"
	answerNone = "non-text filename"
)

// TxStatus asks SQLite, in about a microsecond. It does not ask while an interruption of the last
// statement is pending: the question would clear the interruption, and so change the driver's
// IsValid.
func (s *Session) TxStatus() dialects.TxStatus {
	if !s.Valid() {
		return dialects.TxUnknown
	}
	return s.AskTx()
}

// AskTx is TxStatus inside of a transaction, whose next statement clears the interruption in any case.
func (s *Session) AskTx() dialects.TxStatus {
	if s.question == nil {
		stmt, err := s.Conn().Prepare(question)
		if err != nil {
			return dialects.TxUnknown
		}
		s.question = stmt
	}
	_, err := driverconn.ExecStmt(context.Background(), s.question, nil)
	if err == nil {
		return dialects.TxUnknown
	}
	switch answer := err.Error(); {
	case strings.Contains(answer, answerOpen):
		return dialects.TxOpen
	case strings.Contains(answer, answerBusy), strings.Contains(answer, answerNone):
		return dialects.TxNone
	}
	return dialects.TxUnknown
}
