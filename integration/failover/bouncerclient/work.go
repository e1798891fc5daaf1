package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/integration/failover/bouncerclient/report"
	"github.com/pooldriver/pooldriver/integration/failover/ledger"
)

// work is one transfer, with what goes on around it.
type work struct {
	*client
	random *rand.Rand
	id     string
	report report.Report
}

func (w *work) failed(doing string, err error) {
	w.report.Errors.Append(fmt.Sprintf("%s: %s: %v", w.id, doing, err))
}

func (w *work) require(what, got, want string) {
	if got != want {
		w.report.Foreign.Append(fmt.Sprintf("%s: %s is %q, not %q", w.id, what, got, want))
	}
}

// run commits one transfer. Some are rolled back or cancelled before.
func (w *work) run(ctx context.Context) {
	err := pooldriver.Do(ctx, func(ctx context.Context) error {
		w.lookAround(ctx)
		if w.random.IntN(50) == 0 {
			w.cancel(ctx)
		}
		if w.random.IntN(20) == 0 {
			w.transact(ctx, w.id+"/undone", errUndo)
		}
		w.transact(ctx, w.id, nil)
		w.lookAround(ctx)
		return nil
	})
	if err != nil {
		w.failed("the task", err)
	}
}

var errUndo = errors.New("undo it")

func (w *work) transact(ctx context.Context, id string, verdict error) {
	from := w.random.IntN(ledger.Accounts)
	transfer := ledger.Transfer{ID: id, From: from, To: (from + 1 + w.random.IntN(ledger.Accounts-1)) % ledger.Accounts, Amount: 1 + w.random.IntN(100)}
	err := pooldriver.InTx(ctx, w.db, nil, func(ctx context.Context, tx *sql.Tx) error {
		if err := w.leaveMark(ctx, tx, id); err != nil {
			return err
		}
		if err := transfer.Apply(ctx, ledger.Dollar, tx); err != nil {
			return fmt.Errorf("transfer: %w", err)
		}
		if w.random.IntN(20) == 0 {
			if err := w.savepoint(ctx, transfer); err != nil {
				return err
			}
		}
		if err := w.findMark(ctx, tx, id); err != nil {
			return err
		}
		return verdict
	})
	switch {
	case errors.Is(err, errUndo):
		w.report.RolledBack++
	case err != nil:
		w.failed("transaction", err)
	default:
		w.report.Committed++
	}
}

// savepoint makes a transfer of its own inside, which is undone.
func (w *work) savepoint(ctx context.Context, transfer ledger.Transfer) error {
	transfer.ID += "/inside"
	err := pooldriver.InTx(ctx, w.db, nil, func(ctx context.Context, tx *sql.Tx) error {
		if err := transfer.Apply(ctx, ledger.Dollar, tx); err != nil {
			return fmt.Errorf("savepoint: %w", err)
		}
		return errUndo
	})
	if errors.Is(err, errUndo) {
		return nil
	}
	return err
}

// leaveMark gives the transaction all that a transaction may have of its own.
func (w *work) leaveMark(ctx context.Context, tx *sql.Tx, id string) error {
	if _, err := tx.ExecContext(ctx, "SELECT set_config('pooldriver.owner', $1, true)", id); err != nil {
		return fmt.Errorf("set_config: %w", err)
	}
	if _, err := tx.ExecContext(ctx, "SELECT pg_advisory_xact_lock(hashtext($1))", id); err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	if w.random.IntN(20) > 0 {
		return nil
	}
	if _, err := tx.ExecContext(ctx, "CREATE TEMPORARY TABLE mine (owner text) ON COMMIT DROP"); err != nil {
		return fmt.Errorf("temporary table: %w", err)
	}
	var owner string
	if err := tx.QueryRowContext(ctx, "INSERT INTO mine VALUES ('"+id+"') RETURNING owner").Scan(&owner); err != nil {
		return fmt.Errorf("temporary table: %w", err)
	}
	w.require("the row of the temporary table", owner, id)
	return nil
}

func (w *work) findMark(ctx context.Context, tx *sql.Tx, id string) error {
	var owner string
	if err := tx.QueryRowContext(ctx, "SELECT current_setting('pooldriver.owner')").Scan(&owner); err != nil {
		return fmt.Errorf("current_setting: %w", err)
	}
	w.require("the transaction's own setting", owner, id)
	return nil
}

// lookAround looks at the session outside of a transaction. Every text is one of
// several, so that PgBouncer prepares, forgets and prepares again.
func (w *work) lookAround(ctx context.Context) {
	var owner, zone, program string
	var locks, tables int
	err := w.db.QueryRowContext(ctx, fmt.Sprintf(`SELECT coalesce(current_setting('pooldriver.owner', true), ''),
			current_setting('TimeZone'), current_setting('application_name'),
			(SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'),
			(SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema() AND relkind = 'r')
			FROM (SELECT $1::integer) AS v%d`, w.random.IntN(60)), w.random.IntN(9)).
		Scan(&owner, &zone, &program, &locks, &tables)
	if err != nil {
		w.failed("look around", err)
		return
	}
	w.require("the session's setting", owner, "")
	w.require("the time zone", zone, w.zone)
	w.require("application_name", program, w.name)
	w.require("the number of advisory locks", fmt.Sprint(locks), "0")
	w.require("the number of temporary tables", fmt.Sprint(tables), "0")
	if w.own != nil {
		var name string
		if err := w.own.QueryRowContext(ctx, "!").Scan(&name); err != nil {
			w.failed("prepared statement", err)
			return
		}
		w.require("the prepared statement's answer", name, w.name+"!")
	}
}

// cancel has a statement cancelled while the server works on it, in a transaction
// or outside.
func (w *work) cancel(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(1+w.random.IntN(20))*time.Millisecond)
	defer cancel()
	var err error
	if w.random.IntN(2) == 0 {
		_, err = w.db.ExecContext(ctx, "SELECT pg_sleep(60)")
	} else {
		err = pooldriver.InTx(ctx, w.db, nil, func(ctx context.Context, tx *sql.Tx) error {
			_, err := tx.ExecContext(ctx, "SELECT pg_sleep(60)")
			return err
		})
	}
	if !errors.Is(err, context.DeadlineExceeded) {
		w.failed("a statement that was cancelled", err)
		return
	}
	w.report.Cancelled++
}
