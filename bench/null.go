package main

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// The contests on a driver that does nothing show what lies between the
// program and the driver, and nothing else.

const nullInsert = "insert into orders (customer, amount) values (?, ?)"

// manyRowsName is a text too long to be remembered: each execution classifies it again.
const manyRowsName = "ExecContext of an INSERT of 60 KB, one goroutine"

var manyRows = "insert into orders (customer, amount, note) values " + strings.Repeat("(7, 45.50, 'as agreed on the phone'), ", 1620) + "(7, 3, 'three')"

func plainNull(conns int) *sql.DB {
	db := sql.OpenDB(fakedb.NullConnector{})
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	return db
}

func oursNull(conns int) *sql.DB {
	db := sql.OpenDB(pooldriver.Wrap(fakedb.NullConnector{}, func(c *pooldriver.Config) { c.MaxConns = conns }))
	db.SetMaxIdleConns(1000)
	return db
}

func nullContests() []contest {
	return []contest{
		{
			section:    sectionNull,
			name:       "ExecContext with two arguments on a null driver, one goroutine",
			contenders: nullPair(4, execNull),
			promises:   []promise{extra(200 * time.Nanosecond)},
		},
		{
			section:    sectionNull,
			name:       manyRowsName,
			contenders: nullPair(4, execManyRows),
		},
		{
			section:    sectionNull,
			name:       "ExecContext, 64 goroutines over 4 connections",
			contenders: nullPair(4, crowdNull),
			promises:   []promise{atMost(0.8)},
		},
	}
}

func nullPair(conns int, run func(*testing.B, *sql.DB)) []contender {
	on := func(open func(int) *sql.DB) func(*testing.B) {
		return func(b *testing.B) {
			db := open(conns)
			defer db.Close()
			b.ReportAllocs()
			run(b, db)
		}
	}
	return []contender{{"plain sql.DB", on(plainNull)}, {"pooldriver", on(oursNull)}}
}

func execNull(b *testing.B, db *sql.DB) {
	ctx := context.Background()
	for b.Loop() {
		if _, err := db.ExecContext(ctx, nullInsert, int64(7), "three"); err != nil {
			fail(b, err)
		}
	}
}

func execManyRows(b *testing.B, db *sql.DB) {
	ctx := context.Background()
	for b.Loop() {
		if _, err := db.ExecContext(ctx, manyRows); err != nil {
			fail(b, err)
		}
	}
}

// crowdNull lets 64 goroutines compete, each with a cancellable context.
func crowdNull(b *testing.B, db *sql.DB) {
	var held []*sql.Conn
	for range 4 {
		c, err := db.Conn(context.Background())
		if err != nil {
			fail(b, err)
		}
		if err := c.PingContext(context.Background()); err != nil {
			fail(b, err)
		}
		held = append(held, c)
	}
	giveBack := func() {
		for _, c := range held {
			_ = c.Close()
		}
	}
	crowd(b, 64, giveBack, func(ctx context.Context) error {
		_, err := db.ExecContext(ctx, nullInsert, int64(7), "three")
		return err
	})
}
