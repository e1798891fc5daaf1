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

func quiet(c *pooldriver.Config) { c.Logger = silent }

// open makes a service over an account of its own, with River's tables.
func open(t *testing.T, parameters ...string) service {
	t.Helper()
	account := testbed.Shared(t, testbed.Postgres).NewAccount(t)
	s := over(t, account, pooldriver.New(account.URL(parameters...), quiet))
	s.migrate(t)
	return s
}

// over makes a service over a Connector to the account.
func over(t *testing.T, account testbed.Account, connector *pooldriver.Connector) service {
	t.Helper()
	require.NoError(t, connector.Err())
	s := service{account, connector, pgxpooldriver.New(connector), sql.OpenDB(connector)}
	t.Cleanup(func() { require.NoError(t, s.db.Close()) })
	return s
}

func (s service) migrate(t *testing.T) {
	t.Helper()
	migrator, err := rivermigrate.New(riverpooldriver.New(s.pool), &rivermigrate.Config{Logger: silent})
	require.NoError(t, err)
	_, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil)
	require.NoError(t, err)
	checked, err := migrator.Validate(t.Context(), nil)
	require.NoError(t, err)
	require.True(t, checked.OK, checked.Messages)
}
