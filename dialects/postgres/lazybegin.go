package postgres

import (
	"context"
	"database/sql/driver"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
)

var _ dialects.LazyBeginner = (*session)(nil)

// BeginWithNext lets pgx begin as usual. Its BEGIN reaches only the carrier, which answers it and
// keeps it for the next statement. So the text and the transaction are pgx's: Commit of a failed
// transaction is pgx.ErrTxCommitRollback. A wrapped connection has no carrier.
func (s *session) BeginWithNext(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	if s.pg.IsClosed() {
		return s.conn.BeginTx(ctx, opts)
	}
	if err := ctx.Err(); err != nil {
		return nil, err // pgx's BeginTx closes the connection on this error
	}
	if s.carrier == nil || s.TxStatus() != dialects.TxNone || !s.carrier.AwaitBegin() {
		return nil, errors.ErrUnsupported
	}
	defer s.carrier.Unload() // if no BEGIN has come
	return s.conn.BeginTx(ctx, opts)
}
