package mysql

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

var _ dialects.LockFinder = dialect{}

// The queries for lock waits. Each query has the columns of dialects.LockWait. Row locks are
// InnoDB's. Metadata locks are those of DDL and LOCK TABLES. MariaDB says only that a session waits
// for a metadata lock. The queries for MySQL work since 8.0.
const (
	rowWaitsOfMariaDB = `SELECT r.trx_mysql_thread_id, 'row', b.trx_mysql_thread_id, p.USER, p.COMMAND, p.TIME, IFNULL(p.INFO, '')
		FROM information_schema.innodb_lock_waits w
		JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_trx_id JOIN information_schema.innodb_trx r ON r.trx_id = w.requesting_trx_id
		LEFT JOIN information_schema.processlist p ON p.ID = b.trx_mysql_thread_id WHERE r.trx_mysql_thread_id IN (%s)`
	otherWaitsOfMariaDB = `SELECT ID, STATE, 0, '', '', 0, '' FROM information_schema.processlist WHERE STATE LIKE 'Waiting for%%lock%%' AND ID IN (%s)`
	rowWaitsOfMySQL     = `SELECT r.trx_mysql_thread_id, 'row', b.trx_mysql_thread_id, t.PROCESSLIST_USER, t.PROCESSLIST_COMMAND, t.PROCESSLIST_TIME, IFNULL(t.PROCESSLIST_INFO, '')
		FROM performance_schema.data_lock_waits w
		JOIN information_schema.innodb_trx b ON b.trx_id = w.blocking_engine_transaction_id JOIN information_schema.innodb_trx r ON r.trx_id = w.requesting_engine_transaction_id
		LEFT JOIN performance_schema.threads t ON t.PROCESSLIST_ID = b.trx_mysql_thread_id WHERE r.trx_mysql_thread_id IN (%s)`
	otherWaitsOfMySQL = `SELECT r.PROCESSLIST_ID, 'metadata', t.PROCESSLIST_ID, t.PROCESSLIST_USER, t.PROCESSLIST_COMMAND, t.PROCESSLIST_TIME, IFNULL(t.PROCESSLIST_INFO, '')
		FROM performance_schema.metadata_locks w JOIN performance_schema.threads r ON r.THREAD_ID = w.OWNER_THREAD_ID
		JOIN performance_schema.metadata_locks b ON b.OBJECT_TYPE = w.OBJECT_TYPE AND b.OBJECT_SCHEMA <=> w.OBJECT_SCHEMA AND b.OBJECT_NAME <=> w.OBJECT_NAME
			AND b.LOCK_STATUS = 'GRANTED' AND b.OWNER_THREAD_ID <> w.OWNER_THREAD_ID
		JOIN performance_schema.threads t ON t.THREAD_ID = b.OWNER_THREAD_ID
		WHERE w.LOCK_STATUS = 'PENDING' AND r.PROCESSLIST_ID IN (%s)`
	// For a user without the privileges for the other queries: a user sees the user's own sessions.
	ownWaitsOfMySQL = `SELECT ID, STATE, 0, '', '', 0, '' FROM performance_schema.processlist WHERE STATE LIKE 'Waiting for%%lock%%' AND ID IN (%s)`
)

// LockWaits asks InnoDB and the server. The tables of InnoDB need the privilege PROCESS, those of
// MySQL's performance schema need SELECT.
func (dialect) LockWaits(ctx context.Context, asking dialects.Session, waiting []uint64) (all []dialects.LockWait, err error) {
	s, ok := asking.(*session)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	queries := []string{rowWaitsOfMySQL, otherWaitsOfMySQL, ownWaitsOfMySQL}
	if s.isMariaDB() {
		queries = []string{rowWaitsOfMariaDB, otherWaitsOfMariaDB}
	}
	threads := make([]string, len(waiting))
	for i, n := range waiting {
		threads[i] = strconv.FormatUint(n, 10)
	}
	for _, query := range queries {
		if len(all) > 0 {
			break
		}
		rows, failed := ask(ctx, s.conn, fmt.Sprintf(query, strings.Join(threads, ", ")))
		if err = errors.Join(err, failed); ctx.Err() != nil {
			return all, err
		}
		for _, row := range rows {
			all = append(all, lockWaitOf(row))
		}
	}
	return all, err
}

func lockWaitOf(row []text) dialects.LockWait {
	number := func(t text) uint64 {
		n, _ := strconv.ParseUint(t.string, 10, 64) // 0: not known
		return n
	}
	return dialects.LockWait{
		Waiting: number(row[0]), Lock: row[1].string, Blocker: number(row[2]), Of: row[3].string,
		State: row[4].string, For: time.Duration(number(row[5])) * time.Second, Statement: row[6].string,
	}
}
