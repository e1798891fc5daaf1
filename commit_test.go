package pooldriver

import (
	"database/sql/driver"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/fakedb"
)

// safeError is one of a driver's that says nothing has happened, as pgx's do.
type safeError struct{ error }

func (safeError) SafeToRetry() bool { return true }

func TestACommitWhoseAnswerIsLostIsNotCalledSafeToRepeat(t *testing.T) {
	for _, said := range []error{safeError{errors.New("conn closed")}, driver.ErrBadConn} {
		for _, sent := range []bool{false, true} {
			s, db, _ := openStub(t, dialects.Traits{BadConnUnsure: true})
			tx, err := db.Begin()
			require.NoError(t, err)
			s.sending = sent
			s.server.Fail(fakedb.TxCommit, 1, said)
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
