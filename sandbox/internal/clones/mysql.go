package clones

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/pooldriver/pooldriver/internal/dsn"
)

// mysql makes databases on MySQL and MariaDB, which know no templates: a recipe says how. Locks are those of GET_LOCK. The
// note of a database is the comment of a table there, noteTable. A template has it when it is complete, and a clone when
// it is kept.
type mysql struct{ sqlServer }

const noteTable = "sandbox_note"

// The two servers have no endless wait in common for GET_LOCK: a process waits a day for the migrations of another one.
var onMySQL = sqlDialect{
	keepAlive: "SET SESSION wait_timeout = 604800",
	identity:  "SELECT current_user(), database(), ''",
	lock:      "SELECT GET_LOCK(?, 86400)",
	tryLock:   "SELECT GET_LOCK(?, 0)",
	unlock:    "DO RELEASE_LOCK(?)",
	has:       "SELECT EXISTS (SELECT 1 FROM information_schema.tables WHERE table_schema = ? AND table_name = '" + noteTable + "')",
	notes: `SELECT CONCAT(d.schema_name, ' ', COALESCE(t.table_comment, '')) FROM information_schema.schemata d
		LEFT JOIN information_schema.tables t ON t.table_schema = d.schema_name AND t.table_name = '` + noteTable + `'
		WHERE LOCATE(?, d.schema_name) = 1`,
	connected: func(ctx context.Context, conn *sql.Conn, database string) (bool, error) {
		ids, err := mysqlSessions(ctx, conn, database)
		return len(ids) > 0, err
	},
}

func openMySQL(ctx context.Context, p Plan) (server, error) {
	s := &mysql{sqlServer{plan: p, dialect: onMySQL}}
	return s, s.connect(ctx)
}

func (s *mysql) prepare(ctx context.Context) (recipe, error) { return s.prepareBy(ctx, s) }

// makeTemplate implements templateMaker.
func (s *mysql) makeTemplate(ctx context.Context) error {
	if err := s.remove(ctx, s.template); err != nil { // of a process that was killed
		return s.explainDenied(err)
	}
	if err := s.exec(ctx, "CREATE DATABASE "+s.template); err != nil {
		return s.explainDenied(err)
	}
	if err := s.migrate(ctx, s.template); err != nil {
		return errors.Join(err, s.remove(context.WithoutCancel(ctx), s.template))
	}
	return nil
}

func (s *mysql) migrate(ctx context.Context, name string) error {
	to, err := dsn.MySQLDatabase(s.plan.DSN, name)
	if err != nil {
		return err
	}
	return s.plan.migrate(ctx, to)
}

func (s *mysql) make(ctx context.Context, r recipe, _ string) (name, to string, err error) {
	name = s.next()
	if err := s.lock(ctx, name); err != nil {
		return "", "", err
	}
	if err = s.copy(ctx, r, name); err == nil {
		to, err = dsn.MySQLDatabase(s.plan.DSN, name)
	}
	if err != nil {
		return "", "", errors.Join(err, s.remove(context.WithoutCancel(ctx), name))
	}
	return name, to, nil
}

// copy makes the clone by the template's recipe. If the template has something that the recipe does not know, or the copy
// fails, the migrations make the clone.
func (s *mysql) copy(ctx context.Context, r recipe, name string) error {
	if r.complete {
		err := s.execAll(ctx, r.statements(name)...)
		if err == nil || ctx.Err() != nil {
			return err
		}
	}
	if err := s.execAll(ctx, "DROP DATABASE IF EXISTS "+name, "CREATE DATABASE "+name+r.defaults); err != nil {
		return err
	}
	return s.migrate(ctx, name)
}

func (s *mysql) keep(ctx context.Context, name, test string) (string, error) {
	return name, s.note(ctx, name, keptNote+test)
}

// maxNote is the most bytes of a note: a table's comment has at most 2,048 characters.
const maxNote = 2000

func (s *mysql) note(ctx context.Context, name, note string) error {
	table := name + "." + noteTable
	note = strings.ToValidUTF8(note[:min(len(note), maxNote)], "")
	return s.execAll(ctx, "CREATE TABLE IF NOT EXISTS "+table+" (nothing INT)", "ALTER TABLE "+table+" COMMENT = "+quoteText(note))
}

// remove drops a database, if it exists. Sessions that still use it are ended first: the drop would wait for their
// transactions.
func (s *mysql) remove(ctx context.Context, name string) error {
	ids, err := mysqlSessions(ctx, s.conn, name)
	if err != nil {
		return fmt.Errorf("looking for the sessions that use the database %s: %w", name, err)
	}
	for _, id := range ids {
		_ = s.exec(ctx, "KILL "+strconv.FormatInt(id, 10)) // it may have ended by itself
	}
	return s.exec(ctx, "DROP DATABASE IF EXISTS "+name)
}

// mysqlSessions are those of the user whose current database it is.
func mysqlSessions(ctx context.Context, conn *sql.Conn, database string) (ids []int64, err error) {
	rows, err := conn.QueryContext(ctx, "SHOW PROCESSLIST")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var id int64
	var at sql.NullString
	// Id, User, Host, db; MariaDB has more columns than MySQL.
	to := []any{&id, new(any), new(any), &at}
	for len(to) < len(columns) {
		to = append(to, new(any))
	}
	for rows.Next() {
		if err := rows.Scan(to...); err != nil {
			return nil, err
		}
		if at.String == database {
			ids = append(ids, id)
		}
	}
	return ids, rows.Err()
}

// explainDenied says what a user without rights needs. The driver tells an error's number by a type of its own, which this
// package does not link, and in the text.
func (s *mysql) explainDenied(err error) error {
	for _, denied := range []string{"Error 1044", "Error 1142", "Error 1227"} {
		if strings.Contains(err.Error(), denied) {
			return fmt.Errorf("the user of the DSN may not create databases whose names begin with sandbox_ (GRANT ALL ON `sandbox\\_%%`.* TO … allows it; sandbox.DB needs no such right): %w", err)
		}
	}
	return err
}
