package wrappers

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"io"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

// named tells which driver the connections of a library lead to that shows neither driver
// nor connector.
type named struct {
	driver.Connector
	driver driver.Driver
}

func (n named) Driver() driver.Driver { return n.driver }

// eachBelow runs the test with each library below pooldriver, on each database, with a
// table ledger.
func eachBelow(t *testing.T, max int, test func(t *testing.T, l library, p place, db *sql.DB, c *pooldriver.Connector, seen func() int)) {
	t.Parallel()
	for _, l := range libraries {
		t.Run(l.name, func(t *testing.T) {
			t.Parallel()
			eachPlace(t, func(t *testing.T, p place) {
				wrapped, seen := l.over(t, connectorOf(t, p))
				if l.name != "otelsql" {
					wrapped = named{wrapped, p.driver}
				}
				c := pooldriver.Wrap(wrapped, quiet, limit(max))
				db := openDB(t, c, c)
				mustExec(t, t.Context(), db, "CREATE TABLE ledger (id integer)")
				test(t, l, p, db, c, seen)
			})
		})
	}
}

// connectorOf returns a connector of the database's own driver.
func connectorOf(t *testing.T, p place) driver.Connector {
	t.Helper()
	if d, ok := p.driver.(driver.DriverContext); ok {
		c, err := d.OpenConnector(p.bare)
		require.NoError(t, err)
		return c
	}
	return dsnConnector{p.driver, p.bare}
}

type dsnConnector struct {
	driver driver.Driver
	dsn    string
}

func (c dsnConnector) Connect(context.Context) (driver.Conn, error) { return c.driver.Open(c.dsn) }

func (c dsnConnector) Driver() driver.Driver { return c.driver }

func TestTheDialectIsKnownAboveALibrary(t *testing.T) {
	eachBelow(t, 2, func(t *testing.T, l library, p place, db *sql.DB, c *pooldriver.Connector, seen func() int) {
		require.IsType(t, p.driver, db.Driver())
		require.Contains(t, c.String(), p.name+" by a connector")
		mustExec(t, t.Context(), db, "INSERT INTO ledger VALUES (1)")
		require.Positive(t, seen(), "the library sees what the program runs")
	})
}

// TestATransactionBegunByHandIsRolledBackAboveALibrary: where the library shows the
// driver's connection, the server's word for it is heard. Else the text tells.
func TestATransactionBegunByHandIsRolledBackAboveALibrary(t *testing.T) {
	eachBelow(t, 1, func(t *testing.T, l library, p place, db *sql.DB, c *pooldriver.Connector, _ func() int) {
		mustExec(t, t.Context(), db, "BEGIN")
		mustExec(t, t.Context(), db, "INSERT INTO ledger VALUES (1)")
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		mustExec(t, t.Context(), conn, "BEGIN")
		mustExec(t, t.Context(), conn, "INSERT INTO ledger VALUES (2)")
		require.NoError(t, conn.Close())
		require.EqualValues(t, 1, number(t, t.Context(), db, "SELECT sum(id) FROM ledger"), "the first BEGIN was rolled back, the second one with its INSERT")
	})
}

// TestTheServersWordIsHeardAboveALibrary that shows the driver's connection: a transaction
// that was ended by hand is known to be over. Above another one it is rolled back again.
// (SQLite has no such word, and is asked.)
func TestTheServersWordIsHeardAboveALibrary(t *testing.T) {
	eachBelow(t, 1, func(t *testing.T, l library, p place, db *sql.DB, c *pooldriver.Connector, seen func() int) {
		if p.name == "sqlite" {
			return
		}
		before, want := seen(), 2
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		mustExec(t, t.Context(), conn, "BEGIN")
		mustExec(t, t.Context(), conn, "COMMIT")
		require.NoError(t, conn.Close())
		require.Eventually(t, func() bool { return c.Stats().Pool.Active == 0 }, 10*time.Second, time.Millisecond)
		if !l.shows {
			want++ // ROLLBACK
		}
		require.Equal(t, want, seen()-before)
	})
}

func TestSessionStateDoesNotLeakAboveALibrary(t *testing.T) {
	eachBelow(t, 1, func(t *testing.T, l library, p place, db *sql.DB, c *pooldriver.Connector, _ func() int) {
		for range 2 {
			conn, err := db.Conn(t.Context())
			require.NoError(t, err)
			mustExec(t, t.Context(), conn, "CREATE TEMPORARY TABLE mine (id integer)")
			mustExec(t, t.Context(), conn, "INSERT INTO mine VALUES (1)")
			require.EqualValues(t, 1, number(t, t.Context(), conn, "SELECT count(*) FROM mine"))
			require.NoError(t, conn.Close())
			_, err = db.ExecContext(t.Context(), "INSERT INTO mine VALUES (1)")
			require.Error(t, err)
		}
		require.LessOrEqual(t, c.Stats().Pool.Count, 1)
	})
}

// TestRawGivesTheDriversConnectionAboveALibrary that shows it, and the library's else.
func TestRawGivesTheDriversConnectionAboveALibrary(t *testing.T) {
	eachBelow(t, 2, func(t *testing.T, l library, p place, db *sql.DB, _ *pooldriver.Connector, _ func() int) {
		want, err := p.driver.Open(p.bare)
		require.NoError(t, err)
		defer want.Close()
		conn, err := db.Conn(t.Context())
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, pooldriver.Raw(t.Context(), conn, func(dc driver.Conn) error {
			if l.shows {
				require.IsType(t, want, dc)
			}
			_, err := dc.(driver.ExecerContext).ExecContext(t.Context(), "INSERT INTO ledger VALUES (1)", nil)
			return err
		}))
	})
}

// TestTasksAndNestedQueriesAboveALibrary: also a statement that is cancelled, and a
// transaction whose context ends, which leave nothing on the server.
func TestTasksAndNestedQueriesAboveALibrary(t *testing.T) {
	eachBelow(t, 1, func(t *testing.T, l library, p place, db *sql.DB, c *pooldriver.Connector, _ func() int) {
		insert := "INSERT INTO ledger VALUES (" + p.mark(1) + ")"
		require.NoError(t, pooldriver.InTx(t.Context(), db, nil, func(ctx context.Context, _ *sql.Tx) error {
			for i := range 3 {
				mustExec(t, ctx, db, insert, i)
			}
			rows, err := db.QueryContext(ctx, "SELECT id FROM ledger")
			require.NoError(t, err)
			defer rows.Close()
			for rows.Next() {
				mustExec(t, ctx, db, insert, 10)
			}
			return rows.Err()
		}))
		require.EqualValues(t, 6, number(t, t.Context(), db, "SELECT count(*) FROM ledger"))

		ctx, cancel := context.WithCancel(t.Context())
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		mustExec(t, ctx, tx, insert, 20)
		cancel()
		require.Error(t, tx.Commit())
		require.Zero(t, number(t, t.Context(), db, "SELECT count(*) FROM ledger WHERE id = 20"))

		if sleep := map[string]string{"postgres": "SELECT pg_sleep(60)", "mysql": "SELECT sleep(60)"}[p.name]; sleep != "" {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			began := time.Now()
			_, err := db.ExecContext(ctx, sleep)
			require.Error(t, err)
			require.EqualValues(t, 6, number(t, t.Context(), db, "SELECT count(*) FROM ledger"))
			require.Less(t, time.Since(began), 20*time.Second)
		}
	})
}

// TestAPoolBelowALibraryIsRefused, and so is our own.
func TestAPoolBelowALibraryIsRefused(t *testing.T) {
	t.Parallel()
	config, err := pgxpool.ParseConfig("postgres://nobody@localhost:1/x")
	require.NoError(t, err)
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	require.NoError(t, err)
	defer pool.Close()
	for want, inner := range map[string]driver.Connector{
		"two pools fight":  stdlib.GetPoolConnector(pool),
		"pooldriver: Wrap": pooldriver.New("postgres://nobody@localhost:1/x"),
	} {
		wrapped, _ := overOtelsql(t, inner)
		c := pooldriver.Wrap(wrapped)
		_, err := c.Connect(t.Context())
		require.ErrorContains(t, err, want)
		require.NoError(t, c.Close())
		if closer, ok := inner.(io.Closer); ok {
			require.NoError(t, closer.Close())
		}
	}
}
