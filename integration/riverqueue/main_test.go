// Package riverqueue runs River by module riverpooldriver on a real server.
package riverqueue

import (
	"database/sql"
	"log/slog"
	"os"
	"testing"
	"time"

	"github.com/riverqueue/river/rivermigrate"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/integration/testbed"
	"github.com/pooldriver/pooldriver/pgxpooldriver"
	"github.com/pooldriver/pooldriver/riverpooldriver"
)

func TestMain(m *testing.M) { os.Exit(testbed.Run(m)) }

const (
	waits = 30 * time.Second
	tick  = 2 * time.Millisecond
)

var silent = slog.New(slog.DiscardHandler)

// service is what a program has: the faces of one pool.
type service struct {
	testbed.Account
	connector *pooldriver.Connector
	pool      *pgxpooldriver.Pool
	db        *sql.DB
}

// open makes a service over an account of its own.
func open(t *testing.T, parameters ...string) service {
	t.Helper()
	return over(t, testbed.Shared(t, testbed.Postgres).NewAccount(t), parameters...)
}

// over makes a service over the account.
func over(t *testing.T, account testbed.Account, parameters ...string) service {
	t.Helper()
	connector := pooldriver.New(account.URL(parameters...), func(c *pooldriver.Config) { c.Logger = silent })
	require.NoError(t, connector.Err())
	s := service{account, connector, pgxpooldriver.New(connector), sql.OpenDB(connector)}
	t.Cleanup(func() { require.NoError(t, s.db.Close()) })
	return s
}

// migrated is open, with River's tables.
func migrated(t *testing.T, parameters ...string) service {
	t.Helper()
	s := open(t, parameters...)
	migrator, err := rivermigrate.New(riverpooldriver.New(s.pool), &rivermigrate.Config{Logger: silent})
	require.NoError(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(t, err)
	checked, err := migrator.Validate(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, checked.OK, checked.Messages)
	return s
}
