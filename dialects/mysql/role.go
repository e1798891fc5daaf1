package mysql

import (
	"context"
	"database/sql/driver"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/hosts"
)

var (
	_ dialects.RoleChecker = (*session)(nil)
	_ dialects.Hosted      = (*session)(nil)
)

// Host is empty if the DSN names one host.
func (s *session) Host() (host, passedOver string) { return s.host, s.passedOver }

// CheckRole asks the server for its present role. The role at connect is not known if nobody asked.
func (s *session) CheckRole(ctx context.Context) error {
	if !s.asksRole {
		return nil
	}
	now, err := askServer(ctx, s.conn)
	if err != nil {
		return err
	}
	return s.role.Still(s.atConnect, now)
}

// askSettings asks for the settings by which a server refuses to write, and whether the server is a
// node of a Galera cluster. MySQL, MariaDB and Percona's servers understand the query, even if they
// lack a part of these variables. super_read_only switches read_only on (MySQL's manual, "Server
// System Variables"). The variables of the session do not count.
const (
	askSettings = "SHOW GLOBAL VARIABLES WHERE Variable_name IN ('read_only', 'innodb_read_only', 'wsrep_on')"
	askReady    = "SHOW GLOBAL STATUS LIKE 'wsrep_ready'"
)

// askServer asks a server what it is. A client without privileges cannot recognise a
// replica. A read-only server counts as a standby: replicas are usually read-only. A node
// of Galera shows its state also while it refuses all other statements ("WSREP has not
// yet prepared node for application use").
func askServer(ctx context.Context, conn driver.Conn) (hosts.Server, error) {
	var s hosts.Server
	settings, err := ask(ctx, conn, askSettings)
	if err != nil {
		return s, err
	}
	galera := false
	for _, row := range settings {
		switch {
		case len(row) != 2 || !isOn(row[1]):
		case row[0].string == "wsrep_on":
			galera = true
		case row[0].string == "read_only" || row[0].string == "innodb_read_only":
			// No other text of a server gets into the words for errors.
			s.ReadOnly, s.Standby, s.Words = true, true, "read-only ("+row[0].string+")"
		}
	}
	if !galera {
		return s, nil
	}
	ready, err := ask(ctx, conn, askReady)
	if err != nil {
		return s, err
	}
	s.NotReady = len(ready) == 1 && len(ready[0]) == 2 && !isOn(ready[0][1])
	return s, nil
}

// isOn: MariaDB 12 knows more ways to be read-only than ON.
func isOn(value text) bool {
	return value.string != "0" && !strings.EqualFold(value.string, "OFF")
}
