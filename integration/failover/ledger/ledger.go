// Package ledger is what the tests of this folder write to their servers: transfers
// between accounts, each with a name of its own, so that the server can be asked
// afterwards which of them it has, and whether it has any by halves.
package ledger

import (
	"context"
	"database/sql"
	"fmt"
	"strconv"
)

// Accounts is how many there are.
const Accounts = 500

// A Mark is how a database writes the nth argument of a statement.
type Mark func(n int) string

// Dollar is PostgreSQL's, Question MySQL's.
func Dollar(n int) string { return "$" + strconv.Itoa(n) }

// Question is the same for every argument.
func Question(int) string { return "?" }

// Execer is a *sql.DB, *sql.Conn or *sql.Tx.
type Execer interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
}

// Create makes the tables, with nothing on the accounts. The primary key refuses a
// transfer that is made twice.
func Create(ctx context.Context, db *sql.DB) error {
	for _, statement := range []string{
		"CREATE TABLE accounts (id integer PRIMARY KEY, balance integer NOT NULL)",
		"CREATE TABLE entries (transfer varchar(64) NOT NULL, account integer NOT NULL, amount integer NOT NULL, PRIMARY KEY (transfer, account))",
	} {
		if _, err := db.ExecContext(ctx, statement); err != nil {
			return err
		}
	}
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	for id := range Accounts {
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO accounts VALUES (%d, 0)", id)); err != nil {
			return err
		}
	}
	return tx.Commit()
}

// Transfer is one to be made: two entries that add up to nothing.
type Transfer struct {
	ID       string
	From, To int // not the same
	Amount   int
}

// Apply makes it, in a transaction that is the caller's. Accounts are changed in
// one order, so that two transfers never wait for each other.
func (t Transfer) Apply(ctx context.Context, mark Mark, in Execer) error {
	insert := fmt.Sprintf("INSERT INTO entries (transfer, account, amount) VALUES (%s, %s, %s)", mark(1), mark(2), mark(3))
	update := fmt.Sprintf("UPDATE accounts SET balance = balance + %s WHERE id = %s", mark(1), mark(2))
	steps := []struct{ account, amount int }{{t.From, -t.Amount}, {t.To, t.Amount}}
	if t.From > t.To {
		steps[0], steps[1] = steps[1], steps[0]
	}
	for _, s := range steps {
		if _, err := in.ExecContext(ctx, insert, t.ID, s.account, s.amount); err != nil {
			return err
		}
	}
	for _, s := range steps {
		if _, err := in.ExecContext(ctx, update, s.amount, s.account); err != nil {
			return err
		}
	}
	return nil
}

// State is what a server has.
type State struct {
	Transfers map[string]bool
	Half      []string // transfers without both their entries
	Wrong     int      // accounts whose balance is not the sum of their entries
	Sum       int      // of all balances
}

// Read asks the server.
func Read(ctx context.Context, db *sql.DB) (State, error) {
	s := State{Transfers: map[string]bool{}}
	rows, err := db.QueryContext(ctx, "SELECT transfer, count(*), sum(amount) FROM entries GROUP BY transfer")
	if err != nil {
		return s, err
	}
	defer rows.Close()
	for rows.Next() {
		var id string
		var n, sum int
		if err := rows.Scan(&id, &n, &sum); err != nil {
			return s, err
		}
		s.Transfers[id] = true
		if n != 2 || sum != 0 {
			s.Half = append(s.Half, id)
		}
	}
	if err := rows.Err(); err != nil {
		return s, err
	}
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM accounts
		LEFT JOIN (SELECT account, sum(amount) AS total FROM entries GROUP BY account) AS own ON own.account = accounts.id
		WHERE balance <> coalesce(total, 0)`).Scan(&s.Wrong)
	if err != nil {
		return s, err
	}
	err = db.QueryRowContext(ctx, "SELECT sum(balance) FROM accounts").Scan(&s.Sum)
	return s, err
}
