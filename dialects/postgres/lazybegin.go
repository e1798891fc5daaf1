package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

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
	if s.carrier == nil || s.TxStatus() != dialects.TxNone || !s.carrier.arm() {
		return nil, errors.ErrUnsupported
	}
	defer s.carrier.disarm() // if no BEGIN has come
	return s.conn.BeginTx(ctx, opts)
}

// throughCarrier puts a carrier between pgx and the network, above TLS. pgx builds one frontend for
// each server that it tries, one after the other; last is the carrier of the latest.
func throughCarrier(build pgconn.BuildFrontendFunc, last **carrier) pgconn.BuildFrontendFunc {
	return func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		c := &carrier{r: r, w: w}
		c.frontend = build(c, c)
		*last = c
		return c.frontend
	}
}
