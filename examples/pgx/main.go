// Command pgx has code that sqlc made for pgx, beside code for database/sql: over one pool, and in one transaction.
//
//	go run . 'postgres://app:pw@host/db'
//
// In the database it makes the tables products and orders, and drops them.
package main

import (
	"context"
	"database/sql"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/jackc/pgx/v5"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/examples/pgx/shop"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
)

//go:embed shop/schema.sql
var schema string

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run . 'postgres://user:password@host/database'")
		os.Exit(2)
	}
	if err := run(context.Background(), os.Stdout, os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "pgx:", err)
		os.Exit(1)
	}
}

// store is what the program works with: sqlc's queries, and what database/sql needs.
type store struct {
	pool    *pgxpooldriver.Pool
	db      *sql.DB
	queries *shop.Queries
}

func run(ctx context.Context, out io.Writer, dsn string) (err error) {
	// One connection is enough to show that both share it.
	connector := pooldriver.New(dsn, func(c *pooldriver.Config) { c.MaxConns = 1 })
	pool := pgxpooldriver.New(connector)
	s := store{pool: pool, db: sql.OpenDB(connector), queries: shop.New(pool)}
	defer s.db.Close()
	if _, err := pool.Exec(ctx, schema); err != nil {
		return err
	}
	defer func() {
		_, dropped := pool.Exec(ctx, "DROP TABLE orders, products")
		err = errors.Join(err, dropped)
	}()

	copied, err := s.queries.AddProducts(ctx, []shop.AddProductsParams{{Name: "pen", Stock: 5}, {Name: "pad", Stock: 2}})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "COPY added %d products\n", copied)
	for _, pieces := range []int32{3, 4} {
		switch err := s.order(ctx, "pen", pieces); {
		case errors.Is(err, errSoldOut):
			fmt.Fprintf(out, "%d pens are too many: nothing is left of the order\n", pieces)
		case err != nil:
			return err
		default:
			fmt.Fprintf(out, "%d pens are ordered\n", pieces)
		}
	}
	if err := s.restock(ctx); err != nil {
		return err
	}
	if err := s.report(ctx, out); err != nil {
		return err
	}
	fmt.Fprintf(out, "Real connections opened for all this: %d\n", pool.Stat().NewConnsCount())
	return nil
}

var errSoldOut = errors.New("sold out")

// order writes by database/sql and by sqlc's code. The transaction belongs to the task, so both are in it.
func (s store) order(ctx context.Context, name string, pieces int32) error {
	return pooldriver.InTx(ctx, s.db, nil, func(ctx context.Context, tx *sql.Tx) error {
		product, err := s.queries.ProductByName(ctx, name)
		if err != nil {
			return err
		}
		if _, err := tx.ExecContext(ctx, "INSERT INTO orders (product_id, pieces) VALUES ($1, $2)", product.ID, pieces); err != nil {
			return err
		}
		// A transaction of pgx is a savepoint here.
		return pgx.BeginFunc(ctx, s.pool, func(tx pgx.Tx) error {
			n, err := s.queries.WithTx(tx).Take(ctx, shop.TakeParams{ID: product.ID, Pieces: pieces})
			if err == nil && n == 0 {
				err = errSoldOut
			}
			return err
		})
	})
}

// restock sends a batch while the rows of database/sql are open.
func (s store) restock(ctx context.Context) error {
	return pooldriver.Do(ctx, func(ctx context.Context) error {
		rows, err := s.db.QueryContext(ctx, "SELECT id FROM products WHERE stock < 3 ORDER BY id")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id int64
			if err := rows.Scan(&id); err != nil {
				return err
			}
			var failed error
			s.queries.Restock(ctx, []shop.RestockParams{{ID: id, Pieces: 10}}).Exec(func(_ int, err error) { failed = errors.Join(failed, err) })
			if failed != nil {
				return failed
			}
		}
		return rows.Err()
	})
}

func (s store) report(ctx context.Context, out io.Writer) error {
	products, err := s.queries.Products(ctx)
	if err != nil {
		return err
	}
	for _, p := range products {
		fmt.Fprintf(out, "%s: %d in stock\n", p.Name, p.Stock)
	}
	orders, err := s.queries.CountOrders(ctx)
	if err == nil {
		fmt.Fprintf(out, "%d order\n", orders)
	}
	return err
}
