package migrating

import (
	"context"
	"database/sql"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	_ "github.com/pooldriver/pooldriver/dialects/mysql"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

// mariadb opens an account of its own, with a table items.
func mariadb(t *testing.T) (*sql.DB, testbed.Account) {
	t.Helper()
	t.Parallel()
	account := testbed.Shared(t, testbed.MySQL).NewAccount(t)
	db := open(t, account.URL())
	mustExec(t, db, "CREATE TABLE items (id integer AUTO_INCREMENT PRIMARY KEY, name text)")
	return db, account
}

func TestLoadData(t *testing.T) {
	db, _ := mariadb(t)
	ctx := t.Context()
	file := strings.NewReader("1\tone\n2\ttwo\n")
	load := func() error {
		mysql.RegisterReaderHandler("items", func() io.Reader { return file })
		defer mysql.DeregisterReaderHandler("items")
		_, err := db.ExecContext(ctx, "LOAD DATA LOCAL INFILE 'Reader::items' INTO TABLE items")
		return err
	}
	require.NoError(t, load())
	require.Equal(t, 2, value[int](t, ctx, db, "SELECT count(*) FROM items"))
}

func TestLastInsertID(t *testing.T) {
	db, _ := mariadb(t)
	ctx := t.Context()
	mustExec(t, db, "INSERT INTO items (name) VALUES ('zero')")
	add := func() (int64, error) {
		// page: lastid
		res, err := db.ExecContext(ctx, "INSERT INTO items (name) VALUES (?)", "one")
		if err != nil {
			return 0, err
		}
		return res.LastInsertId()
		// end
	}
	id, err := add()
	require.NoError(t, err)
	require.Equal(t, "one", value[string](t, ctx, db, "SELECT name FROM items WHERE id = ?", id))
}

func TestGetLock(t *testing.T) {
	db, account := mariadb(t)
	ctx := t.Context()
	witness := account.Witness(t)
	free := func() bool { return value[bool](t, ctx, witness, "SELECT is_free_lock('report')") }
	report := func(context.Context) error {
		require.False(t, free())
		return nil
	}
	run := func() error {
		conn, err := db.Conn(ctx)
		if err != nil {
			return err
		}
		defer conn.Close() // also unlocks
		var got bool
		err = conn.QueryRowContext(ctx, "SELECT GET_LOCK('report', 0)").Scan(&got)
		if err != nil || !got { // !got: another process has the lock
			return err
		}
		return report(ctx)
	}
	require.NoError(t, run())
	require.Eventually(t, free, 10*time.Second, 10*time.Millisecond)
}
