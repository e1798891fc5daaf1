package sandboxes

import (
	"context"
	"database/sql"
	"fmt"
)

// What sqlc generates for two queries, with emit_prepared_queries: db.go, models.go and query.sql.go.

type DBTX interface {
	ExecContext(context.Context, string, ...interface{}) (sql.Result, error)
	PrepareContext(context.Context, string) (*sql.Stmt, error)
	QueryContext(context.Context, string, ...interface{}) (*sql.Rows, error)
	QueryRowContext(context.Context, string, ...interface{}) *sql.Row
}

func New(db DBTX) *Queries {
	return &Queries{db: db}
}

func Prepare(ctx context.Context, db DBTX) (*Queries, error) {
	q := Queries{db: db}
	var err error
	if q.createNoteStmt, err = db.PrepareContext(ctx, createNote); err != nil {
		return nil, fmt.Errorf("error preparing query CreateNote: %w", err)
	}
	if q.listNotesStmt, err = db.PrepareContext(ctx, listNotes); err != nil {
		return nil, fmt.Errorf("error preparing query ListNotes: %w", err)
	}
	return &q, nil
}

func (q *Queries) Close() error {
	var err error
	if q.createNoteStmt != nil {
		if cerr := q.createNoteStmt.Close(); cerr != nil {
			err = fmt.Errorf("error closing createNoteStmt: %w", cerr)
		}
	}
	if q.listNotesStmt != nil {
		if cerr := q.listNotesStmt.Close(); cerr != nil {
			err = fmt.Errorf("error closing listNotesStmt: %w", cerr)
		}
	}
	return err
}

func (q *Queries) query(ctx context.Context, stmt *sql.Stmt, query string, args ...interface{}) (*sql.Rows, error) {
	switch {
	case stmt != nil && q.tx != nil:
		return q.tx.StmtContext(ctx, stmt).QueryContext(ctx, args...)
	case stmt != nil:
		return stmt.QueryContext(ctx, args...)
	default:
		return q.db.QueryContext(ctx, query, args...)
	}
}

func (q *Queries) queryRow(ctx context.Context, stmt *sql.Stmt, query string, args ...interface{}) *sql.Row {
	switch {
	case stmt != nil && q.tx != nil:
		return q.tx.StmtContext(ctx, stmt).QueryRowContext(ctx, args...)
	case stmt != nil:
		return stmt.QueryRowContext(ctx, args...)
	default:
		return q.db.QueryRowContext(ctx, query, args...)
	}
}

type Queries struct {
	db             DBTX
	tx             *sql.Tx
	createNoteStmt *sql.Stmt
	listNotesStmt  *sql.Stmt
}

func (q *Queries) WithTx(tx *sql.Tx) *Queries {
	return &Queries{
		db:             tx,
		tx:             tx,
		createNoteStmt: q.createNoteStmt,
		listNotesStmt:  q.listNotesStmt,
	}
}

type Ledger struct {
	ID   int32
	Note sql.NullString
}

const createNote = `-- name: CreateNote :one
INSERT INTO ledger (
  id, note
) VALUES (
  $1, $2
)
RETURNING id, note
`

type CreateNoteParams struct {
	ID   int32
	Note string
}

func (q *Queries) CreateNote(ctx context.Context, arg CreateNoteParams) (Ledger, error) {
	row := q.queryRow(ctx, q.createNoteStmt, createNote, arg.ID, arg.Note)
	var i Ledger
	err := row.Scan(&i.ID, &i.Note)
	return i, err
}

const listNotes = `-- name: ListNotes :many
SELECT id, note FROM ledger
ORDER BY id
`

func (q *Queries) ListNotes(ctx context.Context) ([]Ledger, error) {
	rows, err := q.query(ctx, q.listNotesStmt, listNotes)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var items []Ledger
	for rows.Next() {
		var i Ledger
		if err := rows.Scan(&i.ID, &i.Note); err != nil {
			return nil, err
		}
		items = append(items, i)
	}
	if err := rows.Close(); err != nil {
		return nil, err
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return items, nil
}
