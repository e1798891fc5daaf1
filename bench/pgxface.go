package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
)

// pgx's own API: over pgxpool, and over the pool of a Connector.

const (
	faceName   = "pgxpooldriver"
	batchSize  = 20
	copiedRows = 10000
)

// pgxFace is what both have.
type pgxFace interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
	CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error)
	Begin(ctx context.Context) (pgx.Tx, error)
	Close()
}

// pgxContests are paired rounds, each with connections of its own.
func pgxContests(s *server) []contest {
	account := sync.OnceValues(func() (testbed.Account, error) {
		a, _, err := s.account(nil)
		return a, err
	})
	var all []contest
	for _, c := range []struct {
		name string
		run  func(ctx context.Context, f pgxFace, n int64) error
	}{
		{queryName, faceQuery},
		{execName, faceExec},
		{transactionName(1), faceTransaction},
		{fmt.Sprintf("batch of %d", batchSize), faceBatch},
		{fmt.Sprintf("CopyFrom of %d rows", copiedRows), faceCopy},
	} {
		all = append(all, pgxContest(s, account, c.name, c.run))
	}
	return all
}

func pgxContest(s *server, account reach, name string, run func(context.Context, pgxFace, int64) error) contest {
	var faces [2]pgxFace
	turn := func(i int) func(b *testing.B) {
		return func(b *testing.B) {
			for n := 0; b.Loop(); n++ {
				if err := run(b.Context(), faces[i], int64(n%accounts)); err != nil {
					b.Fatal(err)
				}
			}
		}
	}
	c := contest{
		section: sectionPgx, name: name, apart: s, fresh: true, more: promisedRounds,
		contenders: []contender{{pgxpoolName, turn(0)}, {faceName, turn(1)}},
		promises:   []promise{faster(pgxpoolName, 0.95).by(faceName)},
	}
	c.prepare = func() (end func(), err error) {
		if faces, err = openFaces(account); err != nil {
			return nil, err
		}
		end = func() {
			for _, f := range faces {
				f.Close()
			}
		}
		for _, f := range faces {
			for range warmUp {
				err = errors.Join(err, run(context.Background(), f, 1))
			}
		}
		return end, err
	}
	return c
}

func openFaces(account reach) (faces [2]pgxFace, err error) {
	a, err := account()
	if err != nil {
		return faces, err
	}
	peer, err := pgxpool.New(context.Background(), a.URL(poolMaxConns(caseConns)))
	if err != nil {
		return faces, err
	}
	_, err = peer.Exec(context.Background(), "create unlogged table if not exists copied (id bigint, name text)")
	return [2]pgxFace{peer, pgxpooldriver.New(pooldriver.New(a.URL(poolMaxConns(caseConns))))}, err
}

// faceTexts are those of PostgreSQL.
var faceTexts = texts{query: "select $1::bigint + 1", exec: "update accounts set balance = balance + 1 where id = $1"}

func faceQuery(ctx context.Context, f pgxFace, n int64) error {
	return pgxCalls{f, faceTexts}.query(ctx, n)
}

func faceExec(ctx context.Context, f pgxFace, n int64) error {
	return pgxCalls{f, faceTexts}.exec(ctx, n)
}

func faceTransaction(ctx context.Context, f pgxFace, n int64) error {
	return pgxCalls{f, faceTexts}.transaction(ctx, n, 1)
}

func faceBatch(ctx context.Context, f pgxFace, n int64) error {
	var b pgx.Batch
	for i := range int64(batchSize) {
		b.Queue(faceTexts.query, n+i).QueryRow(func(row pgx.Row) error {
			var answer int64
			return row.Scan(&answer)
		})
	}
	return f.SendBatch(ctx, &b).Close()
}

var copied = slices.Repeat([][]any{{int64(1), "a name of some length"}}, copiedRows)

func faceCopy(ctx context.Context, f pgxFace, _ int64) error {
	_, err := f.CopyFrom(ctx, pgx.Identifier{"copied"}, []string{"id", "name"}, pgx.CopyFromRows(copied))
	if err != nil {
		return err
	}
	_, err = f.Exec(ctx, "truncate copied")
	return err
}
