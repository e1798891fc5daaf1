package postgres

import (
	"context"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
)

// cleaning is what DISCARD ALL consists of, less the two parts that would take
// the prepared statements and their plans with it, in one round trip. The
// statements run in one implicit transaction, which DISCARD ALL itself refuses.
//
// The order matters: what a role of less power may not do is done after the
// connection's own user is back. RESET ALL does not touch the role, which RESET
// ROLE sets back to what the connection began with (the parameter options, or
// ALTER ROLE). Settings from the DSN are the ones that RESET goes back to.
const cleaning = "CLOSE ALL; " +
	"SET SESSION AUTHORIZATION DEFAULT; " +
	"RESET ROLE; " +
	"RESET ALL; " +
	"UNLISTEN *; " +
	"SELECT pg_advisory_unlock_all(); " +
	"DISCARD TEMP; " +
	"DISCARD SEQUENCES"

// losesPrepared are the effects after which the prepared statements cannot be
// trusted: there may be some which the driver does not know of, some may be
// gone, or they may mean something else. The server plans them anew when the
// search path changes, but the types of their parameters stay those of old. A
// function or a DO block may have done any of it.
const losesPrepared = dialects.Suspect | dialects.ForgetPrepared | dialects.NamedPrepared

// Clean keeps the prepared statements, pgx's cache of them included, only if
// effect shows that they are as they were. The zero effect shows nothing:
// whoever cleans after it does not trust the classifier.
//
// What a hook of a wrapped connector has set up only dialling brings back.
func (s *session) Clean(ctx context.Context, effect dialects.Effect) (kept bool, err error) {
	if status := s.TxStatus(); status != dialects.TxNone {
		return false, fmt.Errorf("the session cannot be cleaned with a transaction that is %v", status)
	}
	if s.hooked {
		return false, dialects.ErrCannotClean
	}
	if err := s.simple(ctx, cleaning); err != nil {
		return false, err
	}
	if err := s.restoreReported(ctx); err != nil {
		return false, err
	}
	s.dropNotifications()
	if effect != dialects.Clean && effect&losesPrepared == 0 {
		return true, nil
	}
	return false, s.pgx.DeallocateAll(ctx)
}

// reported are the settings that a server tells unasked, and that a DSN can set
// (PostgreSQL's manual, 54.2.7, "Asynchronous Operations"). PgBouncer keeps these
// for each of its clients.
var reported = [...]string{"application_name", "client_encoding", "DateStyle", "IntervalStyle", "TimeZone", "standard_conforming_strings"}

// reportedNow is what the server has told of them last.
func (s *session) reportedNow() (values [len(reported)]string) {
	for i, name := range reported {
		values[i] = s.pg.ParameterStatus(name)
	}
	return values
}

// restoreReported sets those back that RESET ALL has not. The settings that a
// client of PgBouncer begins with are no session's defaults: RESET leads to the
// defaults of the server's connection, which PgBouncer takes for the client's wish.
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

// dropNotifications empties the buffer in which pgx keeps what came in for the
// last borrower's LISTEN. The round trip of UNLISTEN has brought all of it. A
// context that has ended makes pgx hand out what it has and read nothing.
func (s *session) dropNotifications() {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for {
		if _, err := s.pgx.WaitForNotification(ended); err != nil {
			return
		}
	}
}
