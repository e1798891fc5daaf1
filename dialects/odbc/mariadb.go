//go:build odbc && cgo

package odbc

import (
	"context"
	"database/sql/driver"
	"fmt"
	"regexp"
	"strconv"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/classify/mysql"
	"github.com/pooldriver/pooldriver/dialects/internal/myerror"
)

// mariadb is MariaDB, and MySQL. ODBC has no way to send COM_RESET_CONNECTION.
type mariadb struct {
	defaults
	mysql.Texts

	asMySQL bool // it has no @@in_transaction
}

func (m mariadb) name() string {
	if m.asMySQL {
		return "MySQL"
	}
	return "MariaDB"
}

func (mariadb) remote() bool { return true }

func (m mariadb) traits(common dialects.Traits) dialects.Traits {
	common.PreparedKeepsTypes = m.asMySQL
	return common
}

// renewsQueries: the Connector/ODBC breaks its connection when a query has other
// columns than at its last execution.
func (mariadb) renewsQueries() bool { return true }

// diagnose leaves out what this session cannot use: it has no roles, its TxStatus does not show the
// end of a transaction, and the statement itself handles StaleStatement.
func (mariadb) diagnose(err error) (found dialects.Diagnosis) {
	switch {
	case outgrown(err):
		return 0
	case serverLost(err):
		return dialects.ServerLeaving
	}
	for _, d := range records(err) {
		found |= myerror.Diagnose(d.NativeError, d.Message)
	}
	return found & (dialects.ServerLeaving | dialects.AuthFailed | dialects.TxEnded | dialects.TooManyPrepared | dialects.Conflict | dialects.ServerFull)
}

// outgrown: if the columns of a query have changed since it was prepared, the Connector/ODBC does
// not read the server's answer. The connection is then useless.
func outgrown(err error) bool {
	return saysAny(err, "The number of parameters in bound buffers differs")
}

var selectWord = regexp.MustCompile(`(?i)^\s*SELECT\s`)

// harmless: a query that leaves nothing behind may be treated as not executed.
func (mariadb) harmless(err error, query string) bool {
	return outgrown(err) && selectWord.MatchString(query) && mysql.Classify(query) == dialects.Clean
}

// stale: the server no longer knows the prepared statement. Nothing was executed.
func (mariadb) stale(err error, _ string) bool {
	return hasNative(err, myerror.UnknownStatement) && saysAny(err, "given to mysqld_stmt_execute")
}

// begin: SET TRANSACTION is for the next transaction, which begins with its first statement. Its
// level is said by name; the others are those of the driver's dialect, dialects/mysql.
func (mariadb) begin(opts driver.TxOptions) (before, inside string, err error) {
	before, err = characteristics(opts, ", ")
	return before, "", err
}

func (m mariadb) learn(ctx context.Context, s *session) error {
	row, err := s.askRow(ctx, "SELECT CONNECTION_ID(), @@autocommit, (SELECT HOST FROM information_schema.PROCESSLIST WHERE ID = CONNECTION_ID())", 3)
	if err != nil {
		return err
	}
	s.number, _ = strconv.ParseInt(row[0], 10, 64)
	s.noAutocommit = row[1] == "0"
	s.mark = row[2]
	return nil
}

func (m mariadb) status(ctx context.Context, s *session) dialects.TxStatus {
	open, autocommit, err := m.transaction(ctx, s)
	switch {
	case s.conn.lost != nil:
		return dialects.TxLost
	case err != nil:
		return dialects.TxUnknown
	case !autocommit && !s.noAutocommit:
		return dialects.TxImplicit
	case open:
		return dialects.TxOpen
	}
	return dialects.TxNone
}

// transaction asks the server. MySQL has no variable for the answer, but outside of a transaction
// it forgets a savepoint at once.
func (m mariadb) transaction(ctx context.Context, s *session) (open, autocommit bool, err error) {
	if !m.asMySQL {
		row, err := s.askRow(ctx, "SELECT @@in_transaction, @@autocommit", 2)
		if err != nil {
			return false, false, err
		}
		return row[0] != "0", row[1] != "0", nil
	}
	answer, err := s.askOne(ctx, "SELECT @@autocommit")
	if err != nil {
		return false, false, err
	}
	if err := s.conn.execute(ctx, savepoint); err != nil {
		return false, false, err
	}
	err = s.conn.execute(ctx, endOfSavepoint)
	if hasNative(err, myerror.NoSuchSavepoint) {
		return false, answer != "0", nil
	}
	return err == nil, answer != "0", err
}

// rollback also turns autocommit on again if the program has turned it off.
func (m mariadb) rollback(ctx context.Context, s *session) error {
	if err := s.conn.execute(ctx, "ROLLBACK"); err != nil {
		return err
	}
	if _, autocommit, err := m.transaction(ctx, s); err != nil || autocommit || s.noAutocommit {
		return err
	}
	return s.conn.execute(ctx, "SET autocommit = 1")
}

// kill: if the DSN now leads to another server, or to a server that has begun to count anew, the
// number belongs to another connection. That connection hardly has the same client address and
// port.
func (mariadb) kill(s *session) (sure, query string, inDatabase bool) {
	return fmt.Sprintf("SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = %d AND HOST = X'%x'", s.number, s.mark),
		fmt.Sprintf("KILL %d", s.number), false
}
