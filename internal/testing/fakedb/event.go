package fakedb

import (
	"database/sql/driver"
	"fmt"
	"strings"
)

// Call names a method of the driver, as in "Conn.ExecContext".
type Call string

// The calls that are logged and to which faults can be tied.
const (
	OpenConnector Call = "Driver.OpenConnector"
	DriverOpen    Call = "Driver.Open"
	Connect       Call = "Connector.Connect"
	CloseDriver   Call = "Connector.Close"

	ConnClose      Call = "Conn.Close"
	ConnPing       Call = "Conn.Ping"
	ConnPrepare    Call = "Conn.Prepare"
	ConnPrepareCtx Call = "Conn.PrepareContext"
	ConnExec       Call = "Conn.Exec"
	ConnExecCtx    Call = "Conn.ExecContext"
	ConnQuery      Call = "Conn.Query"
	ConnQueryCtx   Call = "Conn.QueryContext"
	ConnBegin      Call = "Conn.Begin"
	ConnBeginCtx   Call = "Conn.BeginTx"
	ConnReset      Call = "Conn.ResetSession"
	ConnValid      Call = "Conn.IsValid"
	ConnCheck      Call = "Conn.CheckNamedValue"

	StmtClose    Call = "Stmt.Close"
	StmtExec     Call = "Stmt.Exec"
	StmtExecCtx  Call = "Stmt.ExecContext"
	StmtQuery    Call = "Stmt.Query"
	StmtQueryCtx Call = "Stmt.QueryContext"
	StmtCheck    Call = "Stmt.CheckNamedValue"
	StmtConvert  Call = "Stmt.ColumnConverter"

	RowsNext    Call = "Rows.Next" // also as NextRow
	RowsScan    Call = "Rows.ScanColumn"
	RowsNextSet Call = "Rows.NextResultSet"
	RowsClose   Call = "Rows.Close"

	TxCommit   Call = "Tx.Commit"
	TxRollback Call = "Tx.Rollback"
)

// Event is one call that reached the driver.
type Event struct {
	Session int // the connection, from 1; 0 where there is none
	Call    Call
	Text    string // the statement, where there is one
	Args    []driver.NamedValue
	Tag     any // what the call's context holds under TagKey
}

// TagKey is the key of a context value that the log keeps: it tells whether
// the caller's own context reached the driver.
type TagKey struct{}

// String is one line, as in "3 Conn.ExecContext INSERT INTO t VALUES (?) [7]".
func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d %s", e.Session, e.Call)
	if e.Text != "" {
		b.WriteString(" " + e.Text)
	}
	if len(e.Args) > 0 {
		values := make([]any, len(e.Args))
		for i, a := range e.Args {
			values[i] = a.Value
		}
		fmt.Fprintf(&b, " %v", values)
	}
	return b.String()
}
