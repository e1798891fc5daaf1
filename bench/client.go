package main

import (
	"context"
	"database/sql"
	"errors"
)

// client is a pool of connections to a database, as a program uses it.
type client interface {
	// query asks for one row, with a parameter.
	query(ctx context.Context, n int64) error
	// exec changes the row of that account.
	exec(ctx context.Context, account int64) error
	// transaction changes the row so many times.
	transaction(ctx context.Context, account int64, statements int) error
	// list reads the ids of the first accounts.
	list(ctx context.Context) ([]int64, error)
	// balance reads one account.
	balance(ctx context.Context, account int64) error
	// hold takes a connection and returns the function that gives it back.
	hold(ctx context.Context) (release func(), err error)
	close()
}

// texts are a database's statements.
type texts struct{ query, exec, list, balance string }

const (
	accounts = 1000 // rows of the table
	listed   = 10   // rows of the list
)

// sqlClient is a client of database/sql, whatever is below.
type sqlClient struct {
	db    *sql.DB
	texts texts
}

// openSQL returns the client of a *sql.DB that keeps as many connections as it may
// have.
func openSQL(db *sql.DB, err error, conns int, t texts) (client, error) {
	if err != nil {
		return nil, err
	}
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return sqlClient{db, t}, nil
}

// openOurs returns the client of a *sql.DB with our pool below, which has its own
// bound: what database/sql pools are virtual connections. A mistake in the DSN is
// the first statement's error.
func openOurs(db *sql.DB, t texts) (client, error) {
	db.SetMaxIdleConns(1000)
	return sqlClient{db, t}, nil
}

// preparedClient prepares its single statements once, by hand: what keeping them
// can give at the most.
type preparedClient struct {
	sqlClient
	ask, change, read *sql.Stmt
}

// preparing wraps a client of database/sql. A statement that cannot be prepared is
// the opening's error.
func preparing(c client, err error) (client, error) {
	if err != nil {
		return nil, err
	}
	p := preparedClient{sqlClient: c.(sqlClient)}
	for _, s := range []struct {
		text string
		to   **sql.Stmt
	}{{p.texts.query, &p.ask}, {p.texts.exec, &p.change}, {p.texts.balance, &p.read}} {
		if *s.to, err = p.db.Prepare(s.text); err != nil {
			return nil, errors.Join(err, p.db.Close())
		}
	}
	return p, nil
}

func (c preparedClient) query(ctx context.Context, n int64) error {
	var answer int64
	return c.ask.QueryRowContext(ctx, n).Scan(&answer)
}

func (c preparedClient) exec(ctx context.Context, account int64) error {
	_, err := c.change.ExecContext(ctx, account)
	return err
}

func (c preparedClient) balance(ctx context.Context, account int64) error {
	var balance int64
	return c.read.QueryRowContext(ctx, account).Scan(&balance)
}

func (c sqlClient) query(ctx context.Context, n int64) error {
	var answer int64
	return c.db.QueryRowContext(ctx, c.texts.query, n).Scan(&answer)
}

func (c sqlClient) exec(ctx context.Context, account int64) error {
	_, err := c.db.ExecContext(ctx, c.texts.exec, account)
	return err
}

func (c sqlClient) transaction(ctx context.Context, account int64, statements int) error {
	tx, err := c.db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	for range statements {
		if _, err := tx.ExecContext(ctx, c.texts.exec, account); err != nil {
			return errors.Join(err, tx.Rollback())
		}
	}
	return tx.Commit()
}

func (c sqlClient) list(ctx context.Context) ([]int64, error) {
	rows, err := c.db.QueryContext(ctx, c.texts.list)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	ids := make([]int64, 0, listed)
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, id)
	}
	return ids, rows.Err()
}

func (c sqlClient) balance(ctx context.Context, account int64) error {
	var balance int64
	return c.db.QueryRowContext(ctx, c.texts.balance, account).Scan(&balance)
}

func (c sqlClient) hold(ctx context.Context) (func(), error) {
	conn, err := c.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	if err := conn.PingContext(ctx); err != nil { // a virtual connection has none before
		return nil, errors.Join(err, conn.Close())
	}
	return func() { _ = conn.Close() }, nil
}

func (c sqlClient) close() { _ = c.db.Close() }
