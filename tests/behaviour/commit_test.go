package behaviour

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

// safeError is one of a driver's that says nothing has happened, as pgx's do.
type safeError struct{ error }

func (safeError) SafeToRetry() bool { return true }
func (e safeError) Unwrap() error   { return e.error }

func TestACommitWhoseAnswerIsLostIsNotCalledSafeToRepeat(t *testing.T) {
	for _, said := range []error{safeError{errors.New("conn closed")}, driver.ErrBadConn} {
		for _, sent := range []bool{false, true} {
			s, db, _ := openStub(t, dialects.Traits{BadConnUnsure: true})
			tx, err := db.Begin()
			require.NoError(t, err)
			s.Sending = sent
			s.Server.Fail(fakedb.TxCommit, 1, said)
			err = tx.Commit()
			if !sent {
				require.ErrorIs(t, err, said)
				continue
			}
			var safe interface{ SafeToRetry() bool }
			require.NotErrorIs(t, err, driver.ErrBadConn)
			require.False(t, errors.As(err, &safe))
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.ErrorContains(t, err, "may or may not be committed")
		}
	}
}

// TestWhereNobodyCountsNothingIsCalledSafeToRepeat: Wrap of pgx's connector.
func TestWhereNobodyCountsNothingIsCalledSafeToRepeat(t *testing.T) {
	said := safeError{fmt.Errorf("conn closed: %w", context.DeadlineExceeded)}
	operations := map[string]func(*stubdialect.Stub, *sql.DB) error{
		"commit": func(s *stubdialect.Stub, db *sql.DB) error {
			tx, err := db.Begin()
			require.NoError(t, err)
			s.Server.Fail(fakedb.TxCommit, 1, said)
			return tx.Commit()
		},
		"exec": func(s *stubdialect.Stub, db *sql.DB) error {
			s.Server.Fail(fakedb.ConnExecCtx, 1, said)
			_, err := db.Exec("INSERT INTO t VALUES (1)")
			return err
		},
		"query": func(s *stubdialect.Stub, db *sql.DB) error {
			s.Server.Fail(fakedb.ConnQueryCtx, 1, said)
			return db.QueryRow("SELECT 1").Scan(new(int))
		},
		"rows": func(s *stubdialect.Stub, db *sql.DB) error {
			s.Server.Fail(fakedb.RowsNext, 1, said)
			return db.QueryRow("SELECT 1").Scan(new(int))
		},
	}
	for _, unsure := range []bool{false, true} {
		for name, operation := range operations {
			t.Run(fmt.Sprint(name, unsure), func(t *testing.T) {
				s, db, c := openStub(t, dialects.Traits{BadConnUnsure: unsure})
				s.Blind = true
				c.Flush()
				err := operation(s, db)
				require.False(t, ctxerr.SaysSafe(err))
				require.NotErrorIs(t, err, driver.ErrBadConn)
				require.ErrorIs(t, err, io.ErrUnexpectedEOF)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.ErrorContains(t, err, "may or may not")
				require.ErrorContains(t, err, "conn closed")
				require.Zero(t, c.Stats().Retries)
			})
		}
	}
}

func TestACommitsErrBadConnIsBelievedWhereAStatementsIs(t *testing.T) {
	for _, unsure := range []bool{false, true} {
		s, db, c := openStub(t, dialects.Traits{BadConnUnsure: unsure})
		s.Blind = true
		c.Flush()
		tx, err := db.Begin()
		require.NoError(t, err)
		s.Server.Fail(fakedb.TxCommit, 1, driver.ErrBadConn)
		err = tx.Commit()
		require.Equal(t, !unsure, errors.Is(err, driver.ErrBadConn))
		require.Equal(t, unsure, errors.Is(err, io.ErrUnexpectedEOF))
	}
}

// TestADeferredTransactionThatIsEndedTwiceEndsNoOther: the object is not used again, but its connection is.
func TestADeferredTransactionThatIsEndedTwiceEndsNoOther(t *testing.T) {
	s := stubdialect.New(dialects.Traits{})
	c := pooldriver.Wrap(stubdialect.Connector(s), quiet, maxConns(1), lazily)
	defer c.Close()
	conn, err := c.Connect(t.Context())
	require.NoError(t, err)
	exec := func(query string) {
		_, err := conn.(driver.ExecerContext).ExecContext(t.Context(), query, nil)
		require.NoError(t, err)
	}
	begin := func() driver.Tx {
		tx, err := conn.(driver.ConnBeginTx).BeginTx(t.Context(), driver.TxOptions{})
		require.NoError(t, err)
		exec("INSERT INTO t VALUES (1)")
		return tx
	}
	exec("CREATE TABLE t (a INT)")
	require.True(t, conn.(driver.Validator).IsValid())
	first := begin()
	require.NoError(t, first.Commit())
	require.True(t, conn.(driver.Validator).IsValid())
	second := begin()
	require.ErrorIs(t, first.Rollback(), sql.ErrTxDone)
	require.ErrorIs(t, first.Commit(), sql.ErrTxDone)
	require.NoError(t, second.Commit())
	require.Len(t, s.Server.Table("t"), 2)
}
