package testbed

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"
)

// queries are an engine's questions. Each takes the account's user as its first
// argument, lockHolder the database and the lock's number.
type queries struct {
	backends   string // counted, exempt, those that kill
	idle       string // identifiers of idle connections
	kill       string // a format that takes one of them
	lockHolder string // identifier of the connection that holds it
	sleeping   string // how many of the account's statements sleep
}

// UntilItSleeps returns a context that ends when the server is at work on a statement of the account that sleeps.
func (a Account) UntilItSleeps(t testing.TB, witness *sql.DB) context.Context {
	t.Helper()
	look := a.Server.Engine.queries().sleeping
	ctx, cancel := context.WithCancel(t.Context())
	var looks sync.WaitGroup
	t.Cleanup(func() { cancel(); looks.Wait() })
	looks.Go(func() {
		defer cancel()
		for n := 0; n == 0 && ctx.Err() == nil; time.Sleep(time.Millisecond) {
			if err := witness.QueryRowContext(ctx, look, a.User).Scan(&n); err != nil && ctx.Err() == nil {
				t.Error(err)
				return
			}
		}
	})
	return ctx
}

func column[T any](rows *sql.Rows) ([]T, error) {
	defer rows.Close()
	var values []T
	for rows.Next() {
		var value T
		if err := rows.Scan(&value); err != nil {
			return nil, err
		}
		values = append(values, value)
	}
	return values, rows.Err()
}

// Backends returns how many connections of the account the server has. MySQL's
// connections without a database are not counted; exempt returns those. They kill
// a cancelled statement, log in, or end.
func (a Account) Backends(ctx context.Context) (counted, exempt int, err error) {
	counted, exempt, _, err = a.backends(ctx)
	return counted, exempt, err
}

// backends is Backends, with how many of the exempt ones kill a cancelled statement.
func (a Account) backends(ctx context.Context) (counted, exempt, kill int, err error) {
	admin, err := a.Server.Admin()
	if err != nil {
		return 0, 0, 0, err
	}
	err = admin.QueryRowContext(ctx, a.Server.Engine.queries().backends, a.User).Scan(&counted, &exempt, &kill)
	return counted, exempt, kill, err
}

// Transaction is an open one.
type Transaction struct {
	Connection int64 // the server's number of it
	Waits      bool  // for a lock that another one has
}

// Transactions returns those of the account's connections. MySQL tells of those that
// have touched a table.
func (a Account) Transactions(ctx context.Context) ([]Transaction, error) {
	admin, err := a.Server.Admin()
	if err != nil {
		return nil, err
	}
	return a.Server.Engine.transactions(ctx, admin, a)
}

// OpenTransactions returns how many connections of the account are in a
// transaction, as Transactions has them.
func (a Account) OpenTransactions(ctx context.Context) (int, error) {
	open, err := a.Transactions(ctx)
	return len(open), err
}

// LockHolder returns the server's number of the connection that holds the
// account's lock n: on PostgreSQL advisory lock n of its database, on MySQL the
// lock called "<database>.<n>".
func (a Account) LockHolder(ctx context.Context, n int64) (connection int64, held bool, err error) {
	admin, err := a.Server.Admin()
	if err != nil {
		return 0, false, err
	}
	var holder sql.NullInt64
	err = admin.QueryRowContext(ctx, a.Server.Engine.queries().lockHolder, a.Database, n).Scan(&holder)
	if errors.Is(err, sql.ErrNoRows) {
		return 0, false, nil
	}
	return holder.Int64, holder.Valid, err
}

// KillIdle has the administrator kill the account's connections on which nothing runs. It waits
// until there are n: a server may show a statement for a moment after it has answered it.
func (a Account) KillIdle(t testing.TB, n int) {
	t.Helper()
	admin, err := a.Server.Admin()
	if err != nil {
		t.Fatal(err)
	}
	q := a.Server.Engine.queries()
	var ids []int64
	for end := time.Now().Add(time.Minute); len(ids) != n; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("testbed: %d connections are idle, want %d", len(ids), n)
		}
		rows, err := admin.QueryContext(t.Context(), q.idle, a.User)
		if err != nil {
			t.Fatal(err)
		}
		if ids, err = column[int64](rows); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range ids {
		if _, err := admin.ExecContext(t.Context(), fmt.Sprintf(q.kill, id)); err != nil {
			t.Fatalf("testbed: kill connection %d: %v", id, err)
		}
	}
}

// TempTables returns the temporary tables that exist in the account's database,
// whichever connection made them. Only PostgreSQL can tell; elsewhere the
// connections themselves have to be asked.
func (a Account) TempTables(t testing.TB) []string {
	t.Helper()
	if a.Server.Engine != Postgres {
		t.Fatalf("testbed: %s does not tell about other connections' temporary tables", a.Server.Engine)
	}
	rows, err := a.Witness(t).QueryContext(t.Context(), "SELECT relname FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'")
	if err != nil {
		t.Fatal(err)
	}
	names, err := column[string](rows)
	if err != nil {
		t.Fatal(err)
	}
	return names
}
