//go:build go1.27

package pooldriver

import (
	"context"
	"database/sql/driver"
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/internal/fakedb"
)

var _ driver.RowsColumnScanner = scanningRows{}

// scannable opens rows as database/sql does.
func scannable(t *testing.T, features fakedb.Features, query string) (*fakedb.Server, *Connector, *conn, driver.Rows) {
	t.Helper()
	server := fakedb.NewServer()
	c := Wrap(server.Connector(fakedb.Variant{Features: features}), func(c *Config) { c.Logger = slog.New(slog.DiscardHandler) })
	t.Cleanup(func() { _ = c.Close() })
	opened, err := c.Connect(t.Context())
	require.NoError(t, err)
	rows, err := opened.(*conn).QueryContext(t.Context(), query, nil)
	require.NoError(t, err)
	return server, c, opened.(*conn), rows
}

func TestRowsScanTheirColumnsExactlyWhereTheDriversDo(t *testing.T) {
	for features, want := range map[fakedb.Features]bool{
		fakedb.All:                             true,
		fakedb.All &^ fakedb.RowsColumnScanner: false,
	} {
		_, _, _, rows := scannable(t, features, "SELECT 1")
		_, scans := rows.(driver.RowsColumnScanner)
		require.Equal(t, want, scans)
		require.NoError(t, rows.Close())
	}
}

func TestHandingOutRowsThatScanAllocatesNothing(t *testing.T) {
	_, _, _, rows := scannable(t, fakedb.All, "SELECT 1")
	defer rows.Close()
	r := rows.(scanningRows).rows
	var out driver.Rows
	require.Zero(t, testing.AllocsPerRun(100, func() { out = r.handedOut() }))
	require.NotNil(t, out)
}

func TestScanOfRowsWhoseConnectionIsGoneIsAnError(t *testing.T) {
	server, db, _ := openTasks(t, 1)
	ctx, end := WithTask(t.Context())
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
	server, c, virtual, rows := scannable(t, fakedb.All, "SELECT 1")
	scanner := rows.(driver.RowsColumnScanner)
	require.NoError(t, scanner.NextRow())
	server.Inject(fakedb.Fault{Call: fakedb.RowsScan, Panic: "boom"})
	var n int
	require.PanicsWithValue(t, "boom", func() { _ = scanner.ScanColumn(driver.ScanContext{}, 0, &n) })
	_ = scanner.Close()
	virtual.IsValid() // database/sql puts it back
	require.Eventually(t, func() bool { return server.State().Open() == 0 }, 5*time.Second, time.Millisecond)
	require.Zero(t, c.Stats().Pool.Active)
}

func TestARowInMemoryIsScannedUntilTheNextOne(t *testing.T) {
	_, _, virtual, rows := scannable(t, fakedb.All, "SELECT 'a' AS a; SELECT 'b' AS b")
	scanner := rows.(driver.RowsColumnScanner)
	require.NoError(t, scanner.NextRow())
	require.NoError(t, virtual.real.Lock(t.Context()))
	require.NoError(t, virtual.real.ReadAhead(t.Context()))
	virtual.real.Unlock()
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
	_, err := scan()
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
