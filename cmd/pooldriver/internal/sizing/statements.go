// Package sizing measures how many statements a server answers with how many connections, and says
// which number of connections is enough.
package sizing

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strings"
)

// Statement is one statement of the mix.
type Statement struct {
	Text string
	Args []any
}

// ErrNothing is the error of a mix without statements.
var ErrNothing = errors.New("there is no statement to run")

// Read reads statements: those of a file of SQL, which end with semicolons at the ends of lines, or those
// that a server has recorded in its log (PostgreSQL with log_statement or log_min_duration_statement;
// general_log of MySQL and MariaDB). A statement that stands there more often is run more often.
func Read(r io.Reader) (all []Statement, err error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	switch s := strings.ReplaceAll(string(text), "\r\n", "\n"); {
	case postgresLine.MatchString(s):
		all = readPostgres(s)
	case mysqlLine.MatchString(s):
		all = readMySQL(s)
	default:
		all = readSQL(s)
	}
	if len(all) == 0 {
		return nil, ErrNothing
	}
	return all, nil
}

// comment is a line of SQL that is only a comment.
var comment = regexp.MustCompile(`(?m)^\s*--.*$`)

func readSQL(text string) (all []Statement) {
	for part := range strings.SplitSeq(comment.ReplaceAllString(text, "")+"\n", ";\n") {
		if part = strings.TrimRight(strings.TrimSpace(part), ";"); part != "" {
			all = append(all, Statement{Text: part})
		}
	}
	return all
}

var (
	// postgresLine is a line that begins a statement. Before it is what log_line_prefix says.
	postgresLine = regexp.MustCompile(`(?m)^.*LOG:  (?:duration: [\d.]+ ms  )?(?:statement|execute [^:]*): `)
	// postgresParams is the entry after it, if the statement has parameters.
	postgresParams = regexp.MustCompile(`^.*DETAIL:  [Pp]arameters: (.*)$`)
	// postgresParam is one parameter: $1 = 'it''s', $2 = NULL.
	postgresParam = regexp.MustCompile(`\$\d+ = (NULL|'(?:[^']|'')*')`)
	// postgresOther begins every other entry of the log.
	postgresOther = regexp.MustCompile(`(?:LOG|DETAIL|ERROR|FATAL|HINT|STATEMENT|WARNING|NOTICE|CONTEXT):  `)
)

func readPostgres(text string) (all []Statement) {
	reading := false // the lines of a statement
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if at := postgresLine.FindStringIndex(line); at != nil {
			all, reading = append(all, Statement{Text: line[at[1]:]}), true
			continue
		}
		if params := postgresParams.FindStringSubmatch(line); params != nil && len(all) > 0 {
			last := &all[len(all)-1]
			last.Args = nil
			for _, p := range postgresParam.FindAllStringSubmatch(params[1], -1) {
				last.Args = append(last.Args, unquoted(p[1]))
			}
		}
		if reading = reading && !postgresOther.MatchString(line); reading {
			all[len(all)-1].Text += "\n" + strings.TrimPrefix(line, "\t")
		}
	}
	return all
}

// unquoted is a parameter as its text, which the server reads as the type that it expects.
func unquoted(literal string) any {
	if literal == "NULL" {
		return nil
	}
	return strings.ReplaceAll(literal[1:len(literal)-1], "''", "'")
}

// mysqlLine is a line of the general log. MySQL has the time on each, MariaDB only where it changes.
var mysqlLine = regexp.MustCompile(`(?m)^[\dTZ:.+ \t-]*\s\d+ (Query|Execute|Prepare|Connect|Quit|Close stmt|Reset stmt|Init DB|Statistics|Ping|Change user)(?:\t|$)`)

func readMySQL(text string) (all []Statement) {
	lines := bufio.NewScanner(strings.NewReader(text))
	lines.Buffer(nil, 64<<20)
	reading := false
	for lines.Scan() {
		line := lines.Text()
		at := mysqlLine.FindStringSubmatchIndex(line)
		if at == nil {
			if reading {
				all[len(all)-1].Text += "\n" + line
			}
			continue
		}
		if command := line[at[2]:at[3]]; command == "Query" || command == "Execute" { // with literals in the place of arguments
			all, reading = append(all, Statement{Text: line[at[1]:]}), true
			continue
		}
		reading = false
	}
	return all
}

// Readers runs each statement once in a transaction that may not write, and returns those that the server
// accepts. refused has the errors of the others, by their texts. SQLite knows no such transaction: its
// connections must be query_only.
func Readers(ctx context.Context, db *sql.DB, all []Statement) (readers []Statement, refused map[string]error, err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = conn.Close() }()
	refused = map[string]error{}
	known := map[string]bool{}
	for _, s := range all {
		if !known[s.Text] {
			known[s.Text] = true
			switch err := once(ctx, conn, s); {
			case ctx.Err() != nil:
				return nil, nil, fmt.Errorf("trying each statement once: %w", ctx.Err())
			case err != nil:
				refused[s.Text] = err
			}
		}
		if refused[s.Text] == nil {
			readers = append(readers, s)
		}
	}
	return readers, refused, nil
}

// controls are statements about transactions and sessions. Each statement of the mix runs on any connection,
// so they mean nothing, and they could end the transaction that may not write.
var controls = regexp.MustCompile(`(?i)^\s*(BEGIN|START|COMMIT|END|ROLLBACK|ABORT|SAVEPOINT|RELEASE|SET|RESET|DISCARD|PREPARE|EXECUTE|DEALLOCATE|LISTEN|UNLISTEN|USE|LOCK|UNLOCK|PRAGMA|ATTACH|DETACH|COPY|DECLARE|FETCH|CLOSE|CALL|DO|KILL|LOAD|XA)\b|\bINTO\s+(?:OUTFILE|DUMPFILE)\b`)

// once runs a statement in a transaction that is rolled back.
func once(ctx context.Context, conn *sql.Conn, s Statement) error {
	if controls.MatchString(s.Text) {
		return errors.New("it is about transactions or the session")
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{ReadOnly: true})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	return run(ctx, tx, s)
}

// querier is a *sql.DB, or a transaction.
type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// run runs a statement, and reads its rows.
func run(ctx context.Context, on querier, s Statement) error {
	rows, err := on.QueryContext(ctx, s.Text, s.Args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
	}
	return rows.Err()
}
