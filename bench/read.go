package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/mysql"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// The contests of reading: one query of many rows in a task, against plain
// database/sql. In a task others may want the connection between two rows, so
// each is read under a lock.

const readRows = 10_000

var errTooFew = errors.New("not the rows of the table")

func readContests(dir string, servers ...*server) []contest {
	null := fakedb.NullConnector{Rows: readRows}
	file := filepath.Join(dir, "rows.db")
	contests := []contest{{
		section: sectionReading,
		name:    readName("a null driver"),
		contenders: readPair(readNull,
			func() (*sql.DB, error) { return sql.OpenDB(null), nil },
			func() (*sql.DB, error) { return sql.OpenDB(pooldriver.Wrap(null)), nil }),
	}, readContest("SQLite",
		func() (*sql.DB, error) { return sql.Open("sqlite", "file:"+file) },
		func() (*sql.DB, error) { return pooldriver.Open("sqlite:" + file) },
	)}
	for _, s := range servers {
		contests = append(contests, readContest(s.name,
			func() (*sql.DB, error) {
				a, err := s.start()
				if err != nil {
					return nil, err
				}
				return s.plain(a)
			},
			func() (*sql.DB, error) {
				a, err := s.start()
				if err != nil {
					return nil, err
				}
				return pooldriver.Open(a.URL())
			}))
	}
	return contests
}

func readName(on string) string { return fmt.Sprintf("%d rows read in a task, on %s", readRows, on) }

// readContest reads a table that it makes, and drops again.
func readContest(on string, plain, ours func() (*sql.DB, error)) contest {
	const table = "many"
	return contest{
		section: sectionReading,
		name:    readName(on),
		contenders: readPair(func(ctx context.Context, db *sql.DB) (int, error) {
			return readPeople(ctx, db, table)
		}, plain, ours),
		promises: []promise{atMost(1.15)},
		prepare: func() (func(), error) {
			db, err := plain()
			if err != nil {
				return nil, err
			}
			for _, text := range []string{
				"create table " + table + " (id integer primary key, name varchar(40) not null)",
				"insert into " + table + " select " + number + ", 'customer' from " + digits("a") + ", " + digits("b") + ", " + digits("c") + ", " + digits("d"),
			} {
				if _, err := db.Exec(text); err != nil {
					return nil, err
				}
			}
			return func() {
				if _, err := db.Exec("drop table " + table); err != nil {
					fmt.Fprintln(os.Stderr, "bench:", err)
				}
				_ = db.Close()
			}, nil
		},
	}
}

// number runs from 0 to 9999 over four tables of digits, in any SQL.
const number = "a.n + 10 * b.n + 100 * c.n + 1000 * d.n"

func digits(alias string) string {
	text := "(select 0 as n"
	for n := 1; n < 10; n++ {
		text += fmt.Sprintf(" union all select %d", n)
	}
	return text + ") " + alias
}

func readPair(read func(context.Context, *sql.DB) (int, error), plain, ours func() (*sql.DB, error)) []contender {
	// Both get a context that can be cancelled, as requests have it: with one
	// that cannot, database/sql and some drivers have less to do.
	on := func(open func() (*sql.DB, error), begin begin) func(*testing.B) {
		return func(b *testing.B) {
			db, err := open()
			if err != nil {
				fail(b, err)
			}
			defer db.Close()
			ctx, end := begin(context.Background())
			defer end()
			if _, err := read(ctx, db); err != nil { // the dial is not what is measured
				fail(b, err)
			}
			b.ReportAllocs()
			for b.Loop() {
				n, err := read(ctx, db)
				if err == nil && n != readRows {
					err = errTooFew
				}
				if err != nil {
					fail(b, fmt.Errorf("%d rows: %w", n, err))
				}
			}
		}
	}
	return []contender{{"plain sql.DB", on(plain, context.WithCancel)}, {"pooldriver", on(ours, withTask)}}
}

func readNull(ctx context.Context, db *sql.DB) (int, error) {
	var n int64
	return readAll(ctx, db, "select n from numbers", &n)
}

func readPeople(ctx context.Context, db *sql.DB, table string) (int, error) {
	var id int64
	var name string
	return readAll(ctx, db, "select id, name from "+table, &id, &name)
}

func readAll(ctx context.Context, db *sql.DB, query string, dest ...any) (n int, _ error) {
	rows, err := db.QueryContext(ctx, query)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return n, err
		}
		n++
	}
	return n, rows.Err()
}
