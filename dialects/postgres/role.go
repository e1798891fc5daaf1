package postgres

import (
	"context"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/hosts"
)

var (
	_ dialects.RoleChecker = (*session)(nil)
	_ dialects.Hosted      = (*session)(nil)
)

// Host is empty if the DSN names one host.
func (s *session) Host() (host, passedOver string) { return s.host, s.passedOver }

// CheckRole asks the server for its present role.
func (s *session) CheckRole(ctx context.Context) error {
	if !s.known {
		return nil // nothing was asked for, and the server is older than 14
	}
	now, err := s.ask(ctx)
	if err != nil {
		return err
	}
	return s.role.Still(s.atConnect, now)
}

// reportedServer is what the server reports about itself to each new connection, since version 14; libpq uses
// the same reports ("target_session_attrs" in its manual).
func (s *session) reportedServer() (server hosts.Server, known bool) {
	standby, writing := s.pg.ParameterStatus("in_hot_standby"), s.pg.ParameterStatus("default_transaction_read_only")
	if standby == "" || writing == "" {
		return hosts.Server{}, false
	}
	return hosts.Server{Standby: standby == "on", ReadOnly: standby == "on" || writing == "on"}, true
}

var errNoAnswer = errors.New("the server does not say whether it is a standby")

func (s *session) ask(ctx context.Context) (hosts.Server, error) {
	row, err := s.row(ctx, s.kind.asksRole(), 2, errNoAnswer)
	if err != nil {
		return hosts.Server{}, err
	}
	standby := row[0] == "t"
	return hosts.Server{Standby: standby, ReadOnly: standby || row[1] == "on"}, nil
}
