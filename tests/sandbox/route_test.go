package sandbox_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/sandbox"
)

func TestContextLeadsAGlobalHandleToTheSandbox(t *testing.T) {
	db, _ := global(t)
	before, err := db.Prepare("SELECT count(*) FROM ledger")
	require.NoError(t, err)
	defer before.Close()
	t.Run("test", func(t *testing.T) {
		ctx := sandbox.Context(t, db)
		_, err := db.ExecContext(ctx, "INSERT INTO ledger VALUES (?, 'a')", 1)
		require.NoError(t, err)
		tx, err := db.BeginTx(ctx, nil)
		require.NoError(t, err)
		mustExec(t, tx, "INSERT INTO ledger VALUES (2, 'a')") // its context is another one
		require.NoError(t, tx.Commit())
		require.NoError(t, pooldriver.InTx(ctx, db, nil, func(ctx context.Context, _ *sql.Tx) error {
			_, err := db.ExecContext(ctx, "INSERT INTO ledger VALUES (3, 'a')")
			return err
		}))
		conn, err := db.Conn(ctx)
		require.NoError(t, err)
		require.NoError(t, conn.PingContext(ctx))
		require.NoError(t, pooldriver.Raw(ctx, conn, func(dc driver.Conn) error {
			_, err := dc.(driver.ExecerContext).ExecContext(ctx, "INSERT INTO ledger VALUES (4, 'a')", nil)
			return err
		}))
		require.NoError(t, conn.Close())
		var n int
		require.NoError(t, before.QueryRowContext(ctx).Scan(&n))
		require.Equal(t, 4, n)
		require.Zero(t, count(t, db), "without the context")
		require.NoError(t, before.QueryRow().Scan(&n))
		require.Zero(t, n)
	})
	require.Zero(t, count(t, db))
}

func TestContextInAServer(t *testing.T) {
	db, _ := global(t)
	ctx := sandbox.Context(t, db)
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		_, err := db.ExecContext(r.Context(), "INSERT INTO ledger (note) VALUES (?)", r.URL.Path)
		if err != nil {
			panic(err)
		}
	}))
	server.Config.BaseContext = func(net.Listener) context.Context { return ctx }
	server.Start()
	defer server.Close()
	for range 3 {
		response, err := server.Client().Get(server.URL)
		require.NoError(t, err)
		require.NoError(t, response.Body.Close())
		require.Equal(t, http.StatusOK, response.StatusCode)
	}
	var n int
	require.NoError(t, db.QueryRowContext(ctx, "SELECT count(*) FROM ledger").Scan(&n))
	require.Equal(t, 3, n)
}

func TestShareLeadsAllStatementsToTheSandbox(t *testing.T) {
	db, c := global(t)
	t.Run("test", func(t *testing.T) {
		sandbox.Share(t, c)
		mustExec(t, db, "INSERT INTO ledger VALUES (1, 'a')")
		t.Run("subtest", func(t *testing.T) {
			sandbox.Share(t, c)
			mustExec(t, db, "INSERT INTO ledger VALUES (2, 'a')")
			require.Equal(t, 2, count(t, db))
		})
		require.Equal(t, 1, count(t, db))
		require.Equal(t, 1, count(t, sandbox.DB(t, c)), "the same sandbox")
	})
	require.Zero(t, count(t, db))
}

func TestShareRefusesParallelTests(t *testing.T) {
	_, c := global(t)
	t.Run("parallel", func(t *testing.T) {
		t.Run("test", func(parallel *testing.T) {
			parallel.Parallel()
			require.Contains(t, fatally(t, func() { sandbox.Share(record(parallel), c) }), "leave out t.Parallel")
		})
	})
}

func TestContextNeedsAHandleOfAConnector(t *testing.T) {
	plain, err := sql.Open("sqlite", ":memory:")
	require.NoError(t, err)
	defer plain.Close()
	require.Contains(t, fatally(t, func() { sandbox.Context(record(t), plain) }), "not one of a pooldriver.Connector")
}

func TestContextRefusesTheHandleOfASandbox(t *testing.T) {
	_, c := global(t)
	own := sandbox.DB(t, c)
	require.Contains(t, fatally(t, func() { sandbox.Context(record(t), own) }), "is the handle of a sandbox already")
}

func TestAConnectionFromBeforeTheSandboxStaysWhereItIs(t *testing.T) {
	db, c := global(t)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, conn.PingContext(t.Context()))
	t.Run("test", func(t *testing.T) {
		sandbox.Share(t, c)
		mustExec(t, db, "INSERT INTO ledger VALUES (1, 'a')")
		var n int
		require.NoError(t, conn.QueryRowContext(t.Context(), "SELECT count(*) FROM ledger").Scan(&n))
		require.Zero(t, n)
	})
	require.NoError(t, conn.Close())
}
