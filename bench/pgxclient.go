package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pgxClient is a client of pgxpool, with pgx's own interface.
type pgxClient struct {
	pool  *pgxpool.Pool
	texts texts
}

func openPgx(dsn string, t texts) (client, error) {
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		return nil, err
	}
	return pgxClient{pool, t}, nil
}

func (c pgxClient) query(ctx context.Context, n int64) error {
	var answer int64
	return c.pool.QueryRow(ctx, c.texts.query, n).Scan(&answer)
}

func (c pgxClient) exec(ctx context.Context, account int64) error {
	_, err := c.pool.Exec(ctx, c.texts.exec, account)
	return err
}

func (c pgxClient) transaction(ctx context.Context, account int64, statements int) error {
	tx, err := c.pool.Begin(ctx)
	if err != nil {
		return err
	}
	for range statements {
		if _, err := tx.Exec(ctx, c.texts.exec, account); err != nil {
			return errors.Join(err, tx.Rollback(ctx))
		}
	}
	return tx.Commit(ctx)
}

func (c pgxClient) list(ctx context.Context) ([]int64, error) {
	rows, err := c.pool.Query(ctx, c.texts.list)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

func (c pgxClient) balance(ctx context.Context, account int64) error {
	var balance int64
	return c.pool.QueryRow(ctx, c.texts.balance, account).Scan(&balance)
}

func (c pgxClient) hold(ctx context.Context) (func(), error) {
	conn, err := c.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Release, nil
}

func (c pgxClient) close() { c.pool.Close() }
