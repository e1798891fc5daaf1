package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/droppedstate"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

const lossMessage = "set session state"

// detailed keeps messages with their attributes.
type detailed struct {
	logged
	during func()
}

func (w *detailed) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool { r.Message += " " + a.String(); return true })
	if w.during != nil {
		w.during()
	}
	return w.logged.Handle(ctx, r)
}

func TestStateSetOnADBIsToldOfOnceForEachText(t *testing.T) {
	log := &detailed{}
	_, db, c := openTasks(t, 1, func(c *pooldriver.Config) { c.Logger = slog.New(log) })
	log.during = func() { require.NoError(t, db.Ping(), "nothing is held") }
	stmt, err := db.Prepare("SET b = 2")
	require.NoError(t, err)
	defer stmt.Close()
	for i := range 3 {
		mustExec(t, t.Context(), db, fmt.Sprint("SET a = ", i))
		_, err = stmt.Exec()
		require.NoError(t, err)
	}
	require.EqualValues(t, 6, c.Stats().StateDropped)
	require.Equal(t, 2, log.count(lossMessage))
	require.Equal(t, 1, log.count(`statement=SET a …`))
	require.Equal(t, 2, log.count("pooldriver.WithTask"))
}

func TestAnAdvisoryLockOfADBIsToldOf(t *testing.T) {
	log := &detailed{}
	s, db, c := openStub(t, dialects.Traits{}, func(c *pooldriver.Config) { c.Logger = slog.New(log) })
	s.Also = dialects.Stateful // as the classifier of PostgreSQL says of pg_try_advisory_lock
	var one any
	require.NoError(t, db.QueryRow("SELECT 1").Scan(&one))
	require.EqualValues(t, 1, c.Stats().StateDropped)
	require.Equal(t, 1, log.count(lossMessage))
}

func TestStateOfItsOwnSessionIsNotToldOf(t *testing.T) {
	log := &detailed{}
	_, db, c := openTasks(t, 2, func(c *pooldriver.Config) { c.Logger = slog.New(log) })
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	mustExec(t, t.Context(), conn, "SET a = 1")
	require.NoError(t, conn.Close())

	for _, commit := range []bool{true, false} {
		tx, err := db.Begin()
		require.NoError(t, err)
		mustExec(t, t.Context(), tx, "SET a = 1")
		if commit {
			require.NoError(t, tx.Commit())
		} else {
			require.NoError(t, tx.Rollback())
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	tx, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	mustExec(t, ctx, tx, "SET a = 1")
	cancel()
	require.Eventually(t, func() bool { return lent(c) == 0 }, 30*time.Second, time.Millisecond)

	task, end := pooldriver.WithTask(t.Context())
	mustExec(t, task, db, "SET a = 1")
	end()

	_, err = db.Exec("SET") // a syntax error
	require.Error(t, err)
	mustExec(t, t.Context(), db, "INSERT INTO t VALUES (1)")
	require.Zero(t, c.Stats().StateDropped)
	require.Zero(t, log.count(lossMessage))
}

func TestStateOfAStatementThatIsTriedAgainIsToldOfOnce(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	s.Server.Inject(fakedb.Fault{Call: fakedb.ConnExecCtx, Err: driver.ErrBadConn})
	mustExec(t, t.Context(), db, "SET a = 1")
	require.EqualValues(t, 1, c.Stats().Retries)
	require.EqualValues(t, 1, c.Stats().StateDropped)
}

func TestStateOfAQueryWhoseRowsFailIsNotToldOf(t *testing.T) {
	s, db, c := openStub(t, dialects.Traits{})
	s.Also = dialects.Stateful
	no := errors.New("no")
	s.Server.Inject(fakedb.Fault{Call: fakedb.RowsNext, Err: no})
	require.ErrorIs(t, db.QueryRow("SELECT 1").Scan(new(any)), no)
	require.Zero(t, c.Stats().StateDropped)
}

func TestStateOfAConnThatIsClosedInsideRawIsNotToldOf(t *testing.T) {
	_, db, c := openTasks(t, 1)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	mustExec(t, t.Context(), conn, "SET a = 1")
	require.NoError(t, pooldriver.Raw(t.Context(), conn, func(driver.Conn) error { return conn.Close() }))
	require.Zero(t, c.Stats().StateDropped)
}

// settingValuer is an argument that uses the database to find its value.
type settingValuer struct{ db *sql.DB }

func (v settingValuer) Value() (driver.Value, error) {
	_, err := v.db.Exec("SET a = 1")
	return int64(1), err
}

func TestStateSetOnADBInsideACallOfAnotherHandleIsToldOf(t *testing.T) {
	_, db, c := openTasks(t, 2)
	conn, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, conn.Raw(func(any) error { _, err := db.Exec("SET a = 1"); return err }))
	require.EqualValues(t, 1, c.Stats().StateDropped)
	tx, err := conn.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	mustExec(t, t.Context(), tx, "INSERT INTO t VALUES (?)", settingValuer{db})
	require.NoError(t, tx.Commit())
	require.NoError(t, conn.Close())
	require.EqualValues(t, 2, c.Stats().StateDropped)
}

func TestStateThatStaysIsNotToldOf(t *testing.T) {
	_, db, c := openTasks(t, 1, func(c *pooldriver.Config) { c.Reset = pooldriver.ResetOff })
	mustExec(t, t.Context(), db, "SET a = 1")
	require.Zero(t, c.Stats().StateDropped)
}

func TestWarningsOfLostStateAreBounded(t *testing.T) {
	log := &detailed{}
	_, db, c := openTasks(t, 1, func(c *pooldriver.Config) { c.Logger = slog.New(log) })
	for i := range droppedstate.Most + 50 {
		mustExec(t, t.Context(), db, fmt.Sprintf("SET v%d = 1", i))
	}
	require.Equal(t, droppedstate.Most, log.count(lossMessage))
	require.EqualValues(t, droppedstate.Most+50, c.Stats().StateDropped)
}
