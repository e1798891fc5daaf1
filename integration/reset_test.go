package integration

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/integration/byteproxy"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

// insertion is a way a program inserts a row. It reports success only when the
// program may take the row for stored.
type insertion struct {
	name   string
	insert func(ctx context.Context, db *sql.DB, engine testbed.Engine, id int) error
}

var insertions = []insertion{
	{"text", func(ctx context.Context, db *sql.DB, _ testbed.Engine, id int) error {
		_, err := db.ExecContext(ctx, fmt.Sprintf("INSERT INTO ledger VALUES (%d)", id))
		return err
	}},
	{"arguments", func(ctx context.Context, db *sql.DB, engine testbed.Engine, id int) error {
		_, err := db.ExecContext(ctx, insertWithArgument(engine), id)
		return err
	}},
	{"prepared", func(ctx context.Context, db *sql.DB, engine testbed.Engine, id int) error {
		stmt, err := db.PrepareContext(ctx, insertWithArgument(engine))
		if err != nil {
			return err
		}
		defer stmt.Close()
		_, err = stmt.ExecContext(ctx, id)
		return err
	}},
	{"query", func(ctx context.Context, db *sql.DB, engine testbed.Engine, id int) error {
		rows, err := db.QueryContext(ctx, fmt.Sprintf("INSERT INTO ledger VALUES (%d) RETURNING id", id))
		if err != nil {
			return err
		}
		defer rows.Close()
		n := 0
		for rows.Next() {
			n++
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if n != 1 {
			return fmt.Errorf("%d rows returned", n)
		}
		return nil
	}},
	{"transaction", func(ctx context.Context, db *sql.DB, engine testbed.Engine, id int) error {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback()
		if _, err := tx.ExecContext(ctx, fmt.Sprintf("INSERT INTO ledger VALUES (%d)", id)); err != nil {
			return err
		}
		return tx.Commit()
	}},
}

func insertWithArgument(engine testbed.Engine) string {
	if engine == testbed.Postgres {
		return "INSERT INTO ledger VALUES ($1)"
	}
	return "INSERT INTO ledger VALUES (?)"
}

// outcome is what N broken connections led to.
type outcome struct{ tries, struck, stored, failed, lost, doubled int }

// TestInsertIsStoredOnceAtMostWhereverTheConnectionBreaks breaks the connection
// at random bytes on an INSERT's way to the server and on the answer's way back.
// Whatever then happens, database/sql's retries included, the row must not be
// there twice, and where the program was told of success it must be there.
//
// The bare drivers' figures are logged: pgx stores rows twice.
func TestInsertIsStoredOnceAtMostWhereverTheConnectionBreaks(t *testing.T) {
	t.Parallel()
	eachFront(t, func(t *testing.T, account testbed.Account, f front) {
		random := randomtest.Seeded(t)
		mustExec(t, account.Witness(t), "CREATE TABLE ledger (id integer)")
		if account.Server.Engine == testbed.Postgres {
			mustExec(t, account.Witness(t), "GRANT ALL ON ledger TO PUBLIC")
		}
		for _, way := range insertions {
			if way.name == "query" && account.Server.Engine == testbed.MySQL {
				continue // MySQL has no RETURNING.
			}
			for _, cut := range []byteproxy.Cut{byteproxy.Reset, byteproxy.Finish, byteproxy.Stall} {
				if cut == byteproxy.Stall && way.name == "transaction" {
					continue // Commit takes no context: go-sql-driver waits for ever.
				}
				t.Run(way.name+"/"+cut.String(), func(t *testing.T) {
					bench := resetBench{account: account, front: f, way: way, patience: 20 * time.Second}
					tries := randomtest.Rounds(16, 300) // the whole: 1,500 resets on PostgreSQL, 1,200 on MySQL
					if f.name != wrapped.name {
						tries = randomtest.Rounds(6, 100)
					}
					if cut == byteproxy.Stall { // Only the program's deadline ends it.
						bench.patience = 100 * time.Millisecond
						tries = randomtest.Rounds(2, 50)
					}
					got := bench.run(t, random, cut, tries)
					t.Logf("%+v", got)
					require.Zero(t, got.lost, "success was reported, and the row is not there")
					require.Positive(t, got.struck, "no fault struck")
					if f.name != bare.name {
						require.Zero(t, got.doubled, "the row is there twice")
					}
				})
			}
		}
	})
}

// resetBench tries one way of inserting through a proxy that breaks it.
type resetBench struct {
	account testbed.Account
	front   front
	way     insertion
	// patience is the deadline of the insertion.
	patience time.Duration
}

func (b resetBench) run(t *testing.T, random *rand.Rand, cut byteproxy.Cut, tries int) outcome {
	t.Helper()
	witness := b.account.Witness(t)
	mustExec(t, witness, "DELETE FROM ledger")

	// The dry run learns how many bytes go each way.
	var size [2]int64
	whole := b
	whole.patience = 20 * time.Second // nothing is cut yet
	require.NoError(t, whole.try(t, func(proxy *byteproxy.Proxy) func() {
		proxy.Count()
		return func() { size[byteproxy.ToServer], size[byteproxy.ToClient] = proxy.Counted() }
	}, 0))
	require.Positive(t, size[byteproxy.ToServer])
	require.Positive(t, size[byteproxy.ToClient])

	got := outcome{tries: tries}
	for id := 1; id <= tries || got.struck == 0 && id <= tries+mostTries; id++ {
		if id > tries { // a slow machine has not come to the fault
			got.tries++
			b.patience = min(2*b.patience, 10*time.Second)
		}
		fault := byteproxy.Fault{Direction: byteproxy.Direction(random.IntN(2)), Cut: cut}
		fault.At = random.Int64N(size[fault.Direction] + 1)
		err := b.try(t, func(proxy *byteproxy.Proxy) func() {
			proxy.Arm(fault)
			return func() {
				if !proxy.Disarm() {
					got.struck++
				}
			}
		}, id)

		var rows int
		count := fmt.Sprintf("SELECT count(*) FROM ledger WHERE id = %d", id)
		require.NoError(t, witness.QueryRowContext(t.Context(), count).Scan(&rows))
		got.stored += min(rows, 1)
		if err != nil {
			got.failed++
		}
		if err == nil && rows == 0 {
			got.lost++
			t.Logf("%s: success without a row", fault)
		}
		if rows > 1 {
			got.doubled++
			t.Logf("%s: %d rows; the program was told: %v", fault, rows, err)
		}
	}
	return got
}

// try inserts a row on a warm connection through a proxy of its own. It returns
// when the server has dropped every connection: only then is it certain that it
// executes nothing more.
func (b resetBench) try(t *testing.T, arm func(*byteproxy.Proxy) (disarm func()), id int) error {
	t.Helper()
	proxy, err := byteproxy.Listen(b.account.Server.Addr)
	require.NoError(t, err)
	defer proxy.Close()
	db := b.front.open(t, b.account.Via(proxy.Addr()), 1)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	require.NoError(t, db.PingContext(ctx))

	disarm := arm(proxy)
	deadline, cancelInsert := context.WithTimeout(ctx, b.patience)
	defer cancelInsert()
	insertErr := b.way.insert(deadline, db, b.account.Server.Engine, id)
	disarm()

	_ = db.Close()
	require.NoError(t, ctx.Err(), "the insertion or what follows hangs")
	require.NoError(t, proxy.Close())
	require.Eventually(t, func() bool {
		counted, exempt, err := b.account.Backends(ctx)
		return err == nil && counted+exempt == 0
	}, 10*time.Second, time.Millisecond)
	return insertErr
}
