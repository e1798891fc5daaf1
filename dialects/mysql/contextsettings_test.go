package mysql

import (
	"context"
	"database/sql/driver"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

// recorder is a connection of the driver's that writes down what it executes.
type recorder struct {
	driver.Conn
	texts []string
	fails error
}

func (r *recorder) ExecContext(_ context.Context, text string, _ []driver.NamedValue) (driver.Result, error) {
	r.texts = append(r.texts, text)
	return driver.ResultNoRows, r.fails
}

func TestSettingsAreUserVariables(t *testing.T) {
	r := &recorder{}
	s := &session{link: link{conn: r}}
	set := func(settings ...dialects.ContextSetting) error { return s.SetSettings(t.Context(), settings) }
	tenant, user := dialects.ContextSetting{Name: "app.tenant", Value: `'\`}, dialects.ContextSetting{Name: "app.user", Value: ""}
	require.NoError(t, set(tenant, user))
	require.NoError(t, set(user))
	require.NoError(t, set())
	require.NoError(t, set(tenant))

	r.fails = &mysql.MySQLError{Number: 1366, SQLState: [5]byte{'2', '2', '0', '0', '7'}, Message: "Incorrect string value: secret"}
	err := set(user)
	require.EqualError(t, err, "Error 1366 (22007): the server refuses one of the settings app.user of the context")
	require.NotErrorIs(t, err, driver.ErrBadConn)
	r.fails = nil
	require.NoError(t, set())
	require.Equal(t, []string{
		"SET @`app.tenant` = CAST(x'275c' AS CHAR), @`app.user` = CAST(x'' AS CHAR)",
		"SET @`app.user` = CAST(x'' AS CHAR), @`app.tenant` = NULL",
		"SET @`app.user` = NULL",
		"SET @`app.tenant` = CAST(x'275c' AS CHAR)",
		"SET @`app.user` = CAST(x'' AS CHAR), @`app.tenant` = NULL",
		"SET @`app.user` = NULL, @`app.tenant` = NULL", // whatever the failed one has done
	}, r.texts)
}

func TestASystemVariableIsNoSetting(t *testing.T) {
	s := &session{}
	require.NoError(t, s.CheckSettings([]dialects.ContextSetting{{Name: "app.tenant"}}))
	require.ErrorContains(t, s.CheckSettings([]dialects.ContextSetting{{Name: "time_zone", Value: "secret"}}), `"time_zone" is not allowed`)
}
