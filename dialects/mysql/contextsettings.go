package mysql

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/pooldriver/pooldriver/dialects"
)

var _ dialects.SettingsSetter = (*session)(nil)

// CheckSettings accepts names with a dot, which are user variables. Only the cleaning of the
// session brings a system variable back to its value at connect, and the cleaning forgets the
// prepared statements.
func (s *session) CheckSettings(settings []dialects.ContextSetting) error {
	for _, set := range settings {
		if !strings.Contains(set.Name, ".") {
			return fmt.Errorf("%q is not allowed: a setting is a user variable, with a dot in its name, such as app.tenant for @`app.tenant`", set.Name)
		}
	}
	return nil
}

// SetSettings sets user variables. A setting that is not given is NULL, as on a new connection. A
// rollback does not undo them.
func (s *session) SetSettings(ctx context.Context, settings []dialects.ContextSetting) error {
	var names, set []string
	for _, setting := range settings {
		names = append(names, setting.Name)
		set = append(set, variable(setting.Name)+" = "+literal(setting.Value))
	}
	for _, name := range s.variables {
		if !slices.Contains(names, name) {
			set = append(set, variable(name)+" = NULL")
		}
	}
	if len(set) == 0 {
		return nil
	}
	all := append(slices.Clone(names), s.variables...)
	s.variables = all // if the statement fails, any of them may be set
	err := execute(ctx, s.conn, "SET "+strings.Join(set, ", "))
	if err != nil {
		return refusal(err, names)
	}
	s.variables = names
	return nil
}

func variable(name string) string { return "@" + identifier(name) }

// literal is a string in the character set and collation of the connection, like a string in
// quotes. No value can end it, whatever the character set is and whatever sql_mode says of
// backslashes.
func literal(value string) string { return fmt.Sprintf("CAST(x'%x' AS CHAR)", value) }

// refusal is the server's error without the values that it may contain.
func refusal(err error, names []string) error {
	if server, ok := errors.AsType[*mysql.MySQLError](err); ok {
		return &mysql.MySQLError{Number: server.Number, SQLState: server.SQLState, Message: "the server refuses one of the settings " + strings.Join(names, ", ") + " of the context"}
	}
	return err
}
