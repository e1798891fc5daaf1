package mysql

import (
	"context"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/myerror"
)

// A test in one transaction: package sandbox.

var (
	_ dialects.Sandboxer     = (*session)(nil)
	_ dialects.SandboxJudge  = dialect{}
	_ dialects.LockExplainer = dialect{}
)

// sandboxTraits: the name of the lock contains a hash of the database's name, short enough for both
// servers. MySQL 9 has no MD5.
var sandboxTraits = dialects.SandboxTraits{
	Begin:  "START TRANSACTION",
	Lock:   "SELECT GET_LOCK(CONCAT('sandbox_', LEFT(SHA2(IFNULL(DATABASE(), ''), 256), 40)), 1)",
	Unlock: "DO RELEASE_LOCK(CONCAT('sandbox_', LEFT(SHA2(IFNULL(DATABASE(), ''), 256), 40)))",
}

func (s *session) Sandbox() dialects.SandboxTraits { return sandboxTraits }

// Interrupt kills the statement, on a connection of its own.
func (s *session) Interrupt(ctx context.Context) error {
	return s.killer.interrupt(ctx, s.asVictim())
}

// interrupt stops the statement that a connection executes.
func (k *killer) interrupt(ctx context.Context, v victim) error {
	if v.thread == 0 {
		return errProxied
	}
	k.users.Add(1)
	defer k.leave()
	asked := false
	_, err := k.step(ctx, v, "KILL QUERY", &asked)
	return err
}

// CleanInTx cannot clean: a reset of the connection ends the transaction.
func (s *session) CleanInTx(context.Context, dialects.Effect) (kept bool, err error) {
	return false, dialects.ErrCannotClean
}

// SandboxesAlone: InnoDB locks gaps between rows, so that two tests that insert different rows can
// deadlock, and the server rolls the whole transaction of one of them back.
func (dialect) SandboxesAlone() bool { return true }

// commits are the statements before which MySQL and MariaDB commit the transaction that is open
// (MySQL's manual, "Statements That Cause an Implicit Commit").
var commits = regexp.MustCompile(`(?i)^\s*(?:(?:create|drop)\s+(?:or\s+replace\s+)?(?:table|database|schema|(?:unique\s+|fulltext\s+|spatial\s+)?index|view|trigger|procedure|function|event|user|role|sequence|server|tablespace|algorithm|definer|aggregate|online|offline)\b` +
	`|(?:alter|rename|truncate|grant|revoke|install|uninstall|analyze|optimize|repair|cache\s+index|load\s+index)\b|lock\s+tables?\b|unlock\s+tables\b|flush\b|reset\b|set\s+password\b|xa\s)`)

// Refuses knows the statements that would commit what the test has written.
func (dialect) Refuses(text string) string {
	for part := range strings.SplitSeq(text, ";") {
		if m := commits.FindString(part); m != "" {
			return "MySQL and MariaDB commit the open transaction before " + strings.Join(strings.Fields(strings.ToUpper(m)), " ") + ", and a sandbox is one"
		}
	}
	return ""
}

var setsIsolation = regexp.MustCompile(`(?is)^\s*set\s+(?:session\s+|local\s+)?transaction\s+isolation\s+level\s+[a-z]+(?:\s+[a-z]+)?\s*;?\s*$`)

// Ignores knows SET TRANSACTION ISOLATION LEVEL, which is an error after the first query.
func (dialect) Ignores(text string) bool { return setsIsolation.MatchString(text) }

var writes = regexp.MustCompile(`(?i)^\s*(?:insert|update|delete|replace|load\s+data)\b`)

// ReadsOnly returns the servers' error for a statement that writes in a transaction that is read
// only. The servers take READ ONLY only when a transaction begins.
func (dialect) ReadsOnly(text string) error {
	if !writes.MatchString(text) {
		return nil
	}
	return &mysql.MySQLError{Number: myerror.ReadOnlyTransaction, SQLState: [5]byte{'2', '5', '0', '0', '6'},
		Message: "Cannot execute statement in a READ ONLY transaction"}
}

// LeavesNothing knows a text that the server does not understand.
func (dialect) LeavesNothing(err error) bool { return errorNumber(err) == myerror.ParseError }

// LockLost knows a deadlock and the end of a wait for a lock. The errors name nobody.
func (dialect) LockLost(err error) (lost bool, blockers []uint64) {
	switch errorNumber(err) {
	case myerror.LockDeadlock, myerror.LockWaitTimeout:
		return true, nil
	}
	return false, nil
}
