package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync/atomic"
)

var (
	errSoldOut     = errors.New("sold out")
	errChangedMind = errors.New("changed my mind")
)

// shop is the workload. It is written against plain database/sql.
type shop struct {
	db                         *sql.DB
	insertOrder                *sql.Stmt
	placed, cancelled, soldOut atomic.Int64
}

func openShop(ctx context.Context, db *sql.DB) (*shop, error) {
	if err := createTables(ctx, db); err != nil {
		return nil, err
	}
	insertOrder, err := db.PrepareContext(ctx, bind(db, "insert into quickstart_orders (customer, product, amount) values (?, ?, ?)"))
	return &shop{db: db, insertOrder: insertOrder}, err
}

// visit looks at all products and orders one of them, or changes its mind in
// the middle of the transaction.
func (s *shop) visit(ctx context.Context, customer, visit int) error {
	if err := s.browse(ctx); err != nil {
		return err
	}
	product, amount := (customer+visit)%products, 1+visit%3
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }() // does nothing after a commit
	res, err := tx.ExecContext(ctx, bind(s.db, "update quickstart_products set stock = stock - ? where id = ? and stock >= ?"), amount, product, amount)
	if err != nil {
		return err
	}
	if n, err := res.RowsAffected(); err != nil {
		return err
	} else if n == 0 {
		s.soldOut.Add(1)
		return errSoldOut
	}
	if _, err := tx.StmtContext(ctx, s.insertOrder).ExecContext(ctx, customer, product, amount); err != nil {
		return err
	}
	if (customer+visit)%5 == 0 {
		s.cancelled.Add(1)
		return errChangedMind
	}
	if err := tx.Commit(); err != nil {
		return err
	}
	s.placed.Add(1)
	return nil
}

func (s *shop) browse(ctx context.Context) error {
	rows, err := s.db.QueryContext(ctx, bind(s.db, "select id, stock from quickstart_products where stock >= ? order by id"), 0)
	if err != nil {
		return err
	}
	defer rows.Close()
	for rows.Next() {
		var id, left int
		if err := rows.Scan(&id, &left); err != nil {
			return err
		}
	}
	return rows.Err()
}

// check counts: what is left and what was ordered is what was there.
func (s *shop) check(ctx context.Context) error {
	var left, ordered int
	if err := s.db.QueryRowContext(ctx, "select sum(stock) from quickstart_products").Scan(&left); err != nil {
		return err
	}
	if err := s.db.QueryRowContext(ctx, "select coalesce(sum(amount), 0) from quickstart_orders").Scan(&ordered); err != nil {
		return err
	}
	if left+ordered != products*stock {
		return fmt.Errorf("the stock does not add up: %d left and %d ordered of %d", left, ordered, products*stock)
	}
	return nil
}

// leftovers does what no program should: it begins a transaction by hand,
// writes, and forgets it. The next statement must not see it, and it must not
// keep the row locked.
func (s *shop) leftovers(ctx context.Context) error {
	conn, err := s.db.Conn(ctx)
	if err != nil {
		return err
	}
	for _, q := range []string{"begin", "update quickstart_products set stock = -1"} {
		if _, err := conn.ExecContext(ctx, q); err != nil {
			_ = conn.Close()
			return err
		}
	}
	if err := conn.Close(); err != nil {
		return err
	}
	return s.check(ctx)
}
