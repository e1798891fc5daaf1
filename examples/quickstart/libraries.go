package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"

	"github.com/pooldriver/pooldriver"
)

// invoices and letters stand for two libraries. Each was given a *sql.DB, takes
// a context, and knows neither of the other nor of pooldriver.

type invoices struct{ db *sql.DB }

func (i invoices) write(ctx context.Context, customer string, amount int) error {
	_, err := i.db.ExecContext(ctx, bind(i.db, "insert into quickstart_invoices (customer, amount) values (?, ?)"), customer, amount)
	return err
}

type letters struct{ db *sql.DB }

var errNoAddress = errors.New("letters: customer without an address")

// send has a transaction of its own. Inside another one it is a savepoint.
func (l letters) send(ctx context.Context, customer, text string) error {
	tx, err := l.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.ExecContext(ctx, bind(l.db, "insert into quickstart_letters (customer, text) values (?, ?)"), customer, text); err != nil {
		return err
	}
	if customer == "Bob" {
		return errNoAddress
	}
	return tx.Commit()
}

// sell uses both in one transaction: what runs with the context of InTx belongs
// to it.
func sell(ctx context.Context, db *sql.DB, customer string) error {
	books, post := invoices{db}, letters{db}
	return pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error {
		if err := books.write(ctx, customer, 30); err != nil {
			return err
		}
		return post.send(ctx, customer, "Thank you!")
	})
}

func twoLibraries(ctx context.Context, out io.Writer, db *sql.DB) error {
	fmt.Fprintf(out, "\n  One transaction across two libraries, each with a table of its own\n")
	for _, sale := range []struct {
		customer, text string
		want           error
	}{
		{customer: "Ada", text: "both succeed          in the tables: %d invoice, %d letter"},
		{customer: "Bob", text: "the second fails      in the tables: %d invoice, %d letter, as before", want: errNoAddress},
	} {
		if err := sell(ctx, db, sale.customer); !errors.Is(err, sale.want) {
			return fmt.Errorf("selling to %s gave %w", sale.customer, err)
		}
		written, err := count(ctx, db, "quickstart_invoices")
		if err != nil {
			return err
		}
		sent, err := count(ctx, db, "quickstart_letters")
		if err != nil {
			return err
		}
		if written != 1 || sent != 1 { // Ada's
			return fmt.Errorf("after %s there are %d invoices and %d letters", sale.customer, written, sent)
		}
		fmt.Fprintf(out, "    "+sale.text+"\n", written, sent)
	}
	return nil
}
