package main

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// pgxClient is a client of pgxpool, with pgx's own interface.
type pgxClient struct {
	pgxCalls
	own *pgxpool.Pool
}

// pgxCalls are the calls of pgx's own interface.
type pgxCalls struct {
	pool  pgxFace
	texts texts
}

func openPgx(dsn string, t texts) (client, error) {
	pool, err := pgxpool.New(context.Background(), dsn)
	if err != nil {
		return nil, err
	}
	return pgxClient{pgxCalls{pool, t}, pool}, nil
}

func (c pgxCalls) query(ctx context.Context, n int64) error {
	var answer int64
	return c.pool.QueryRow(ctx, c.texts.query, n).Scan(&answer)
}

func (c pgxCalls) exec(ctx context.Context, account int64) error {
	_, err := c.pool.Exec(ctx, c.texts.exec, account)
	return err
}

func (c pgxCalls) transaction(ctx context.Context, account int64, statements int) error {
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

func (c pgxCalls) list(ctx context.Context) ([]int64, error) {
	rows, err := c.pool.Query(ctx, c.texts.list)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[int64])
}

func (c pgxCalls) balance(ctx context.Context, account int64) error {
	var balance int64
	return c.pool.QueryRow(ctx, c.texts.balance, account).Scan(&balance)
}

func (c pgxClient) hold(ctx context.Context) (func(), error) {
	conn, err := c.own.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return conn.Release, nil
}

func (c pgxClient) close() { c.own.Close() }
