//go:build go1.27

package behaviour

import (
	"context"
	"database/sql/driver"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// virtual is a virtual connection, as database/sql sees it.
type virtual interface {
	driver.QueryerContext
	driver.ExecerContext
	driver.Validator
}

// scannable opens rows as database/sql does.
func scannable(t *testing.T, ctx context.Context, features fakedb.Features, query string) (*fakedb.Server, *pooldriver.Connector, virtual, driver.Rows) {
	t.Helper()
	server := fakedb.NewServer()
	c := pooldriver.Wrap(server.Connector(fakedb.Variant{Features: features}), quiet, maxConns(1))
	t.Cleanup(func() { _ = c.Close() })
	v := connected(t, ctx, c)
	rows, err := v.QueryContext(ctx, query, nil)
	require.NoError(t, err)
	return server, c, v, rows
}

func connected(t *testing.T, ctx context.Context, c *pooldriver.Connector) virtual {
	t.Helper()
	opened, err := c.Connect(ctx)
	require.NoError(t, err)
	return opened.(virtual)
}

func TestRowsScanTheirColumnsExactlyWhereTheDriversDo(t *testing.T) {
	for features, want := range map[fakedb.Features]bool{
		fakedb.All:                             true,
		fakedb.All &^ fakedb.RowsColumnScanner: false,
	} {
		_, _, _, rows := scannable(t, t.Context(), features, "SELECT 1")
		_, scans := rows.(driver.RowsColumnScanner)
		require.Equal(t, want, scans)
		require.NoError(t, rows.Close())
	}
}

func TestRowsThatScanTheirColumnsCostNoAllocation(t *testing.T) {
	allocates := func(c driver.Connector) float64 {
		opened, err := c.Connect(t.Context())
		require.NoError(t, err)
		return testing.AllocsPerRun(100, func() {
			rows, err := opened.(driver.QueryerContext).QueryContext(t.Context(), "SELECT 1", nil)
			if err == nil {
				err = rows.Close()
			}
			require.NoError(t, err)
		})
	}
	ours := func(features fakedb.Features) float64 {
		bare := fakedb.NewServer().Connector(fakedb.Variant{Features: features})
		c := pooldriver.Wrap(bare, quiet)
		defer c.Close()
		return allocates(c) - allocates(bare)
	}
	require.Equal(t, ours(fakedb.All&^fakedb.RowsColumnScanner), ours(fakedb.All))
}

func TestScanOfRowsWhoseConnectionIsGoneIsAnError(t *testing.T) {
	server, db, _ := openTasks(t, 1)
	ctx, end := pooldriver.WithTask(t.Context())
	rows, err := db.QueryContext(context.WithoutCancel(ctx), "SELECT n FROM numbers LIMIT 3")
	require.NoError(t, err)
	defer rows.Close()
	require.True(t, rows.Next())
	end()
	var n int
	require.ErrorContains(t, rows.Scan(&n), "pooldriver: ") // and does not panic
	require.Empty(t, server.Violations())
}

func TestAPanicOfScanColumnCostsTheConnection(t *testing.T) {
	server, c, virtual, rows := scannable(t, t.Context(), fakedb.All, "SELECT 1")
	scanner := rows.(driver.RowsColumnScanner)
	require.NoError(t, scanner.NextRow())
	server.Inject(fakedb.Fault{Call: fakedb.RowsScan, Panic: "boom"})
	var n int
	require.PanicsWithValue(t, "boom", func() { _ = scanner.ScanColumn(driver.ScanContext{}, 0, &n) })
	_ = scanner.Close()
	virtual.IsValid() // database/sql puts it back
	require.Eventually(t, func() bool { return server.State().Open() == 0 }, patience, time.Millisecond)
	require.Zero(t, c.Stats().Pool.Active)
}

func TestARowInMemoryIsScannedUntilTheNextOne(t *testing.T) {
	ctx, end := pooldriver.WithTask(t.Context())
	defer end()
	_, c, _, rows := scannable(t, ctx, fakedb.All, "SELECT 'a' AS a; SELECT 'b' AS b")
	scanner := rows.(driver.RowsColumnScanner)
	require.NoError(t, scanner.NextRow())
	_, err := connected(t, ctx, c).ExecContext(ctx, "SELECT 1", nil) // reads the rows ahead
	require.NoError(t, err)
	require.Positive(t, c.Stats().BufferedBytes)
	scan := func() (s string, err error) {
		err = scanner.ScanColumn(driver.ScanContext{}, 0, &s)
		return s, err
	}
	for range 2 {
		s, err := scan()
		require.NoError(t, err)
		require.Equal(t, "a", s)
	}
	require.Equal(t, io.EOF, scanner.NextRow())
	_, err = scan()
	require.ErrorContains(t, err, "no row")
	require.NoError(t, scanner.(driver.RowsNextResultSet).NextResultSet())
	_, err = scan()
	require.ErrorContains(t, err, "no row")
	require.NoError(t, scanner.NextRow())
	s, err := scan()
	require.NoError(t, err)
	require.Equal(t, "b", s)
	require.NoError(t, scanner.Close())
}
