package main

import (
	"context"
	"database/sql/driver"
	"testing"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// The contests of a statement in a task, below database/sql: what it calls, a
// driver.Conn, is called here in its place. The baseline is the null driver's
// own connection, with the same calls and the same context.

func boundContests() []contest {
	return []contest{
		{
			section:    sectionTasks,
			name:       "ExecContext in a task's transaction, below database/sql",
			contenders: boundPair(execBound, inTransaction),
			promises:   []promise{extra(100 * time.Nanosecond), extraAllocs(0)},
		},
		{
			section:    sectionTasks,
			name:       "ExecContext and the end of its checkout, in a task that holds nothing, below database/sql",
			contenders: boundPair(execCheckout, inTask),
			promises:   []promise{extra(200 * time.Nanosecond), extraAllocs(0)},
		},
		{
			section:    sectionTasks,
			name:       "the same ExecContext where it joins a transaction of the task",
			contenders: boundPair(execCheckout, besideTransaction),
		},
		{
			section:    sectionTasks,
			name:       "the same ExecContext without a task",
			contenders: boundPair(execCheckout, inNoTask),
		},
	}
}

// checkedOut is what the contests need of a connection: the null driver's has
// it, and so has ours.
type checkedOut interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.Validator
}

// boundPair lets both run with the context of the case, and ours on its connection.
func boundPair(run func(*testing.B, context.Context, checkedOut), prepare func(*testing.B, driver.Connector) (context.Context, checkedOut)) []contender {
	begin := func(b *testing.B) (context.Context, checkedOut) {
		connector := pooldriver.Wrap(fakedb.NullConnector{})
		b.Cleanup(func() { _ = connector.Close() })
		b.ReportAllocs()
		return prepare(b, connector)
	}
	return []contender{
		{"null driver", func(b *testing.B) {
			ctx, _ := begin(b)
			run(b, ctx, connect(b, fakedb.NullConnector{}))
		}},
		{"pooldriver", func(b *testing.B) {
			ctx, conn := begin(b)
			run(b, ctx, conn)
		}},
	}
}

func connect(b *testing.B, c driver.Connector) checkedOut {
	conn, err := c.Connect(context.Background())
	if err != nil {
		fail(b, err)
	}
	return conn.(checkedOut)
}

func inNoTask(b *testing.B, c driver.Connector) (context.Context, checkedOut) {
	ctx, cancel := context.WithCancel(context.Background())
	b.Cleanup(cancel)
	return ctx, connect(b, c)
}

func inTask(b *testing.B, c driver.Connector) (context.Context, checkedOut) {
	ctx, end := pooldriver.WithTask(context.Background())
	b.Cleanup(end)
	return ctx, connect(b, c)
}

// inTransaction returns the connection on which the task has begun one.
func inTransaction(b *testing.B, c driver.Connector) (context.Context, checkedOut) {
	ctx, conn := inTask(b, c)
	tx, err := conn.BeginTx(ctx, driver.TxOptions{})
	if err != nil {
		fail(b, err)
	}
	b.Cleanup(func() { _ = tx.Rollback() })
	return ctx, conn
}

// besideTransaction returns another connection of database/sql's, as a
// statement gets it that does not go through the *sql.Tx.
func besideTransaction(b *testing.B, c driver.Connector) (context.Context, checkedOut) {
	ctx, _ := inTransaction(b, c)
	return ctx, connect(b, c)
}

var nullArgs = []driver.NamedValue{{Ordinal: 1, Value: int64(7)}, {Ordinal: 2, Value: "three"}}

func execBound(b *testing.B, ctx context.Context, conn checkedOut) {
	for b.Loop() {
		if _, err := conn.ExecContext(ctx, nullInsert, nullArgs); err != nil {
			fail(b, err)
		}
	}
}

// execCheckout also ends the checkout, as database/sql does when it puts the
// connection back.
func execCheckout(b *testing.B, ctx context.Context, conn checkedOut) {
	for b.Loop() {
		if _, err := conn.ExecContext(ctx, nullInsert, nullArgs); err != nil {
			fail(b, err)
		}
		if !conn.IsValid() {
			fail(b, driver.ErrBadConn)
		}
	}
}
