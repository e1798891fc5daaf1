package postgres

import (
	"context"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
)

// Clean keeps the prepared statements, also pgx's cache of them, only if effect shows that they
// have not changed.
//
// Only a new dial brings back the state that a hook of a wrapped connector has set up.
func (s *session) Clean(ctx context.Context, effect dialects.Effect) (kept bool, err error) {
	if status := s.TxStatus(); status != dialects.TxNone {
		return false, fmt.Errorf("the session cannot be cleaned with a transaction that is %v", status)
	}
	if s.hooked {
		return false, dialects.ErrCannotClean
	}
	if kept, err = s.CleanInTx(ctx, effect); err == nil {
		s.dropNotifications()
	}
	return kept, err
}

// reported are the settings that a server reports by itself and that a DSN can set (PostgreSQL's
// manual, 54.2.7, "Asynchronous Operations"). PgBouncer keeps these for each of its clients.
var reported = [...]string{"application_name", "client_encoding", "DateStyle", "IntervalStyle", "TimeZone", "standard_conforming_strings"}

// reportedNow returns the values of these settings that the server has last reported.
func (s *session) reportedNow() (values [len(reported)]string) {
	for i, name := range reported {
		values[i] = s.pg.ParameterStatus(name)
	}
	return values
}

// restoreReported sets back the reported settings that RESET ALL has not set back. The settings
// with which a client of PgBouncer begins are no defaults of a session: RESET leads to the defaults
// of the server's connection, and PgBouncer takes these for the client's wish.
func (s *session) restoreReported(ctx context.Context) error {
	now := s.reportedNow()
	for i, name := range reported {
		if now[i] == s.reported[i] {
			continue
		}
		to := [][]byte{[]byte(name), []byte(s.reported[i])}
		if err := s.pg.ExecParams(ctx, "SELECT set_config($1, $2, false)", to, nil, nil, nil).Read().Err; err != nil {
			return fmt.Errorf("setting %s back: %w", name, err)
		}
	}
	return nil
}

// dropNotifications empties the buffer in which pgx keeps the notifications of the last borrower's
// LISTEN. The round trip of UNLISTEN has brought them all. With an ended context pgx hands out what
// it has and reads nothing.
func (s *session) dropNotifications() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		if _, err := s.pgx.WaitForNotification(ended); err != nil {
			return
		}
	}
}
