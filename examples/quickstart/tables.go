package main

import (
	"context"
	"database/sql"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/stdlib"
)

const (
	products = 8
	stock    = 100
)

var tables = []struct{ name, columns string }{
	{"quickstart_products", "id integer primary key, stock integer not null"},
	{"quickstart_orders", "customer integer not null, product integer not null, amount integer not null"},
	{"quickstart_invoices", "customer varchar(100) not null, amount integer not null"},
	{"quickstart_letters", "customer varchar(100) not null, text varchar(100) not null"},
}

func createTables(ctx context.Context, db *sql.DB) error {
	if err := dropTables(ctx, db); err != nil {
		return err
	}
	for _, table := range tables {
		if _, err := db.ExecContext(ctx, "create table "+table.name+" ("+table.columns+")"); err != nil {
			return err
		}
	}
	for id := range products {
		if _, err := db.ExecContext(ctx, bind(db, "insert into quickstart_products (id, stock) values (?, ?)"), id, stock); err != nil {
			return err
		}
	}
	return nil
}

func dropTables(ctx context.Context, db *sql.DB) error {
	for _, table := range tables {
		if _, err := db.ExecContext(ctx, "drop table if exists "+table.name); err != nil {
			return err
		}
	}
	return nil
}

// count returns how many rows a table has.
func count(ctx context.Context, db *sql.DB, table string) (n int, err error) {
	err = db.QueryRowContext(ctx, "select count(*) from "+table).Scan(&n)
	return n, err
}

// bind writes placeholders the way the database wants them.
func bind(db *sql.DB, query string) string {
	if _, postgres := db.Driver().(*stdlib.Driver); !postgres {
		return query
	}
	for i := 1; strings.Contains(query, "?"); i++ {
		query = strings.Replace(query, "?", fmt.Sprintf("$%d", i), 1)
	}
	return query
}
