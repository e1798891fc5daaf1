// Package shop is a small shop, as an example of code that is tested with a sandbox. Its tests can
// be run in several ways:
//
//	go -C examples/sandbox test .                                        SQLite, a database for each test
//	go -C examples/sandbox test . -dsn 'postgres://…'                    the same on a server
//	go -C examples/sandbox test . -dsn 'postgres://…' -way truncation    one database, emptied for each test
//
// The program in timing compares the ways.
package shop

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// Migrations are the files of the migrations, in their order.
//
//go:embed migrations
var Migrations embed.FS

// Migrate makes the tables of an empty database. A real program has a library for this.
func Migrate(ctx context.Context, db *sql.DB) error {
	names, err := fs.Glob(Migrations, "migrations/*.sql")
	if err != nil {
		return err
	}
	for _, name := range names {
		text, err := fs.ReadFile(Migrations, name)
		if err != nil {
			return err
		}
		for statement := range strings.SplitSeq(string(text), ";\n") {
			if strings.TrimSpace(statement) == "" {
				continue
			}
			if _, err := db.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

// ErrSoldOut is the error of an order for more pieces than there are.
var ErrSoldOut = errors.New("sold out")

// Shop sells. It uses a global handle like many programs: a test gives it its own.
type Shop struct {
	DB *sql.DB
	// Numbered says that parameters are $1 and not ?.
	Numbered bool
}

// Order takes the pieces out of the stock, and returns what the customer pays.
func (s Shop) Order(ctx context.Context, order, customer, product, pieces int) (cents int, err error) {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return 0, err
	}
	defer tx.Rollback()
	result, err := tx.ExecContext(ctx, s.bind("UPDATE products SET stock = stock - ? WHERE id = ? AND stock >= ?"), pieces, product, pieces)
	if err != nil {
		return 0, err
	}
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		return 0, errors.Join(err, ErrSoldOut)
	}
	if err := tx.QueryRowContext(ctx, s.bind("SELECT cents FROM products WHERE id = ?"), product).Scan(&cents); err != nil {
		return 0, err
	}
	cents *= pieces
	if _, err := tx.ExecContext(ctx, s.bind("INSERT INTO orders (id, customer, state, cents) VALUES (?, ?, 'new', ?)"), order, customer, cents); err != nil {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, s.bind("INSERT INTO order_lines (id, order_id, product, pieces) VALUES (?, ?, ?, ?)"), order, order, product, pieces); err != nil {
		return 0, err
	}
	if _, err := tx.ExecContext(ctx, s.bind("INSERT INTO audit (id, order_id, text) VALUES (?, ?, 'ordered')"), order, order); err != nil {
		return 0, err
	}
	return cents, tx.Commit()
}

// Paid marks an order as paid.
func (s Shop) Paid(ctx context.Context, order, cents int) error {
	tx, err := s.DB.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if _, err := tx.ExecContext(ctx, s.bind("INSERT INTO payments (id, order_id, cents) VALUES (?, ?, ?)"), order, order, cents); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, s.bind("UPDATE orders SET state = 'paid' WHERE id = ?"), order); err != nil {
		return err
	}
	return tx.Commit()
}

// Open counts the orders that nobody has paid.
func (s Shop) Open(ctx context.Context) (n int, err error) {
	err = s.DB.QueryRowContext(ctx, "SELECT count(*) FROM orders WHERE state = 'new'").Scan(&n)
	return n, err
}

func (s Shop) bind(query string) string {
	for i := 1; s.Numbered && strings.Contains(query, "?"); i++ {
		query = strings.Replace(query, "?", fmt.Sprintf("$%d", i), 1)
	}
	return query
}
