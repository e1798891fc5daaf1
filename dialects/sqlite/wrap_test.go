package sqlite

import (
	"context"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	sqlitedriver "modernc.org/sqlite"

	"github.com/pooldriver/pooldriver/dialects"
)

// counted is a connector that counts its connections, and makes so many at most.
type counted struct {
	driver.Connector
	made, most int
}

func (c *counted) Connect(ctx context.Context) (driver.Conn, error) {
	if c.made == c.most {
		return nil, errors.New("no more")
	}
	c.made++
	return c.Connector.Connect(ctx)
}

func wrapName(t *testing.T, name string, most int) (*counted, dialects.Template) {
	t.Helper()
	inner, err := sqlitedriver.NewConnector(name)
	require.NoError(t, err)
	c := &counted{Connector: inner, most: most}
	tmpl, err := dialect{}.Wrap(c)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tmpl.Close()) })
	return c, tmpl
}

func TestWhichWrappedDatabaseIsItsConnections(t *testing.T) {
	for name, tc := range map[string]struct {
		private bool
		made    int // connections for two
	}{
		":memory:":                            {true, 3},
		"":                                    {true, 3},
		"file:private?mode=memory":            {true, 3},
		"file:which?mode=memory&cache=shared": {false, 3},
		"file:/which?vfs=memdb":               {false, 3},
		":memory:?_pragma=query_only(1)":      {true, 4}, // it takes no lock
		"file:/waits?vfs=memdb&_pragma=busy_timeout(5000)": {false, 3},
		"file:which?vfs=memdb":                             {true, 3}, // its name does not begin with a slash
		filepath.Join(t.TempDir(), "which.db"):             {false, 2},
	} {
		c, tmpl := wrapName(t, name, 10)
		for range 2 {
			s := dial(t, tmpl)
			require.Equal(t, tc.private, s.(dialects.Irreplaceable).Irreplaceable(), name)
			require.EqualValues(t, -2000, value(t, s, "pragma cache_size"), name)
			require.Equal(t, dialects.TxNone, s.TxStatus(), name)
		}
		require.Equal(t, tc.made, c.made, name)
	}
}

func TestAWrappedDatabaseIsKeptWhereNobodyKnowsWhetherItIsShared(t *testing.T) {
	_, tmpl := wrapName(t, "file:unknown?mode=memory&cache=shared", 1)
	require.True(t, dial(t, tmpl).(dialects.Irreplaceable).Irreplaceable())
}

// A program can still set for its first page what cannot be changed after it.
func TestThePrivateDatabaseIsNotTouchedByTheLook(t *testing.T) {
	_, tmpl := wrapName(t, ":memory:", 10)
	s := dial(t, tmpl)
	exec(t, s, "pragma encoding = 'UTF-16le'")
	exec(t, s, "pragma page_size = 8192")
	exec(t, s, "create table t(a)")
	require.EqualValues(t, "UTF-16le", value(t, s, "pragma encoding"))
	require.EqualValues(t, 8192, value(t, s, "pragma page_size"))
}
