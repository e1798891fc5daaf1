package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/postgres/internal/ahead"
)

var (
	_ dialects.LazyBeginner = (*session)(nil)
	_ dialects.TxRefuser    = dialect{}
)

// BeginWithNext sends BEGIN ahead of the next statement. A wrapped connection sends nothing ahead.
func (s *session) BeginWithNext(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	text, ok := beginText(opts)
	switch {
	case s.pg.IsClosed() || !ok:
		return s.conn.BeginTx(ctx, opts) // its error
	case ctx.Err() != nil:
		return nil, ctx.Err() // pgx's BeginTx closes the connection on this error
	case s.ahead == nil || !s.ahead.Begin(text):
		return nil, errors.ErrUnsupported
	}
	return &lazyTx{ctx, s}, nil
}

// levels are the isolation levels that pgx's stdlib knows.
var levels = map[sql.IsolationLevel]pgx.TxIsoLevel{
	sql.LevelDefault: "", sql.LevelReadUncommitted: pgx.ReadUncommitted, sql.LevelReadCommitted: pgx.ReadCommitted,
	sql.LevelRepeatableRead: pgx.RepeatableRead, sql.LevelSnapshot: pgx.RepeatableRead, sql.LevelSerializable: pgx.Serializable,
}

// beginText is what pgx's stdlib sends to begin a transaction. ok is false if stdlib refuses the options.
func beginText(opts driver.TxOptions) (text string, ok bool) {
	level, ok := levels[sql.IsolationLevel(opts.Isolation)]
	text = "begin"
	if level != "" {
		text += " isolation level " + string(level)
	}
	if opts.ReadOnly {
		text += " " + string(pgx.ReadOnly)
	}
	return text, ok
}

// RefuseTx is the error of pgx's stdlib.
func (dialect) RefuseTx(opts driver.TxOptions) error {
	if _, ok := beginText(opts); ok {
		return nil
	}
	return fmt.Errorf("unsupported isolation: %v", opts.Isolation)
}

// BeginNow begins a transaction of BeginWithNext whose BEGIN still waits. It goes with an empty statement that is no ping.
func (s *session) BeginNow(ctx context.Context) error {
	switch s.beginState() {
	case ahead.Held:
		return s.simple(ctx, ";")
	case ahead.Refused:
		aborted := ahead.Aborted
		return &aborted
	}
	return nil
}

func (s *session) beginState() ahead.BeginState {
	if s.ahead == nil {
		return ahead.NoBegin
	}
	return s.ahead.BeginState()
}

// lazyTx is a transaction whose BEGIN is sent ahead. It ends as pgx's own does.
type lazyTx struct {
	ctx     context.Context
	session *session
}

// Commit implements driver.Tx.
func (t *lazyTx) Commit() error {
	s := t.session
	switch s.ahead.EndBegin() {
	case ahead.Held:
		return nil
	case ahead.Refused:
		return pgx.ErrTxCommitRollback
	}
	tag, err := s.pgx.Exec(t.ctx, "commit")
	switch {
	case err != nil && s.pg.TxStatus() != 'I':
		_ = s.pgx.Close(t.ctx)
	case err == nil && tag.String() == "ROLLBACK":
		err = pgx.ErrTxCommitRollback
	}
	return err
}

// Rollback implements driver.Tx.
func (t *lazyTx) Rollback() error {
	s := t.session
	if s.ahead.EndBegin() != ahead.NoBegin {
		return nil
	}
	_, err := s.pgx.Exec(t.ctx, "rollback")
	if err != nil {
		ended, end := context.WithCancel(t.ctx)
		end()
		_ = s.pgx.Close(ended) // as pgx does: at once
	}
	return err
}
