package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/pooldriver/pooldriver"
)

// oneConnection shows what a task is: one logical session for everything that
// runs with its context, however few connections there are.
func oneConnection(ctx context.Context, out io.Writer, dsn string) error {
	connector := pooldriver.New(dsn, func(c *pooldriver.Config) { c.MaxConns = 1 })
	db := sql.OpenDB(connector)
	defer db.Close()
	if err := createTables(ctx, db); err != nil {
		return err
	}
	fmt.Fprintf(out, "\nTasks, with one real connection\n")
	if err := nestedLoops(ctx, out, db); err != nil {
		return err
	}
	if err := forgotten(ctx, out, db, connector); err != nil {
		return err
	}
	if err := twoLibraries(ctx, out, db); err != nil {
		return err
	}
	if err := dropTables(ctx, db); err != nil {
		return err
	}
	fmt.Fprintf(out, "\n  Real connections opened for all this: %d\n", connector.Stats().Pool.Creates)
	return nil
}

func nestedLoops(ctx context.Context, out io.Writer, db *sql.DB) error {
	fmt.Fprintf(out, "\n  Loop over open rows, with a query, a write and a transaction for each row\n")
	if err := plain(ctx, out); err != nil {
		return err
	}
	return pooldriver.Do(ctx, func(ctx context.Context) error {
		n, err := restock(ctx, db)
		if err == nil {
			fmt.Fprintf(out, "    in a task             %d products restocked\n", n)
		}
		return err
	})
}

// plain runs the same loop with the bare SQLite driver. The rows have the only
// connection, and the loop waits for it while it holds the rows: for ever, if
// its context had no deadline.
func plain(ctx context.Context, out io.Writer) error {
	db, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return err
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	if err := createTables(ctx, db); err != nil {
		return err
	}
	const patience = 500 * time.Millisecond
	short, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	n, err := restock(short, db)
	if !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("plain database/sql was expected to hang, and has restocked %d products: %w", n, err)
	}
	fmt.Fprintf(out, "    plain database/sql    hangs, stopped after %v with %d products restocked: %v\n", patience, n, err)
	return nil
}

// restock is written against plain database/sql, without a thought of
// connections.
func restock(ctx context.Context, db *sql.DB) (n int, err error) {
	rows, err := db.QueryContext(ctx, "select id from quickstart_products order by id")
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		var id, underWay int
		if err := rows.Scan(&id); err != nil {
			return n, err
		}
		// The shop's own orders are those of customer -1.
		query := bind(db, "select count(*) from quickstart_orders where customer = -1 and product = ?")
		if err := db.QueryRowContext(ctx, query, id).Scan(&underWay); err != nil {
			return n, err
		}
		if underWay == 0 {
			insert := bind(db, "insert into quickstart_orders (customer, product, amount) values (-1, ?, 10)")
			if _, err := db.ExecContext(ctx, insert, id); err != nil {
				return n, err
			}
		}
		if err := delivered(ctx, db, id); err != nil {
			return n, err
		}
		n++
	}
	return n, rows.Err()
}

// delivered puts what the shop has ordered into its stock.
func delivered(ctx context.Context, db *sql.DB, product int) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	for _, q := range []string{
		"update quickstart_products set stock = stock + 10 where id = ?",
		"delete from quickstart_orders where customer = -1 and product = ?",
	} {
		if _, err := tx.ExecContext(ctx, bind(db, q), product); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// forgotten does what no program should: it begins a transaction, writes, and
// neither commits nor rolls back. Plain database/sql would miss the connection
// from then on. Here the end of the task rolls back, and logs a warning.
func forgotten(ctx context.Context, out io.Writer, db *sql.DB, connector *pooldriver.Connector) error {
	before, err := count(ctx, db, "quickstart_products")
	if err != nil {
		return err
	}
	rollbacks := connector.Stats().Rollbacks

	task, end := pooldriver.WithTask(ctx)
	defer end()
	tx, err := db.BeginTx(task, nil)
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(task, "delete from quickstart_products"); err != nil {
		return err
	}
	inside, err := count(task, db, "quickstart_products") // joins the task's transaction
	if err != nil {
		return err
	}
	end()

	after, err := count(ctx, db, "quickstart_products")
	if err != nil {
		return err
	}
	if before != products || inside != 0 || after != before {
		return fmt.Errorf("the forgotten transaction has left something: %d products before, %d inside, %d after", before, inside, after)
	}
	fmt.Fprintf(out, "\n  A forgotten transaction, which deletes all products\n")
	fmt.Fprintf(out, "    products              %d before, %d in the transaction, %d after the task's end\n", before, inside, after)
	fmt.Fprintf(out, "    Stats().Rollbacks     %d more\n", connector.Stats().Rollbacks-rollbacks)
	return nil
}
