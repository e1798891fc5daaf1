package generic

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

type conn struct{ driver.Conn }

type connector struct{}

func (connector) Connect(context.Context) (driver.Conn, error) { return conn{}, nil }
func (connector) Driver() driver.Driver                        { return oddDriver{} }

type oddDriver struct{}

func (oddDriver) Open(string) (driver.Conn, error) { return nil, errors.New("no") }

func TestTheGenericDialectIsTheLastResortOfWrapAlone(t *testing.T) {
	require.Equal(t, dialects.NotMine, Dialect{}.Claim("generic:x"))
	_, err := Dialect{}.Parse("generic:user:hunter2@x")
	require.Error(t, err)
	require.NotContains(t, err.Error(), "hunter2")

	d, tmpl, err := dialects.Wrap(connector{}, Dialect{})
	require.NoError(t, err)
	require.Equal(t, "generic", d.Name())
	require.Equal(t, "generic generic.oddDriver", tmpl.Target())

	s, err := tmpl.Dial(t.Context(), nil)
	require.NoError(t, err)
	require.Equal(t, dialects.TxUnknown, s.TxStatus())
	_, err = s.Clean(t.Context(), dialects.Stateful)
	require.ErrorIs(t, err, dialects.ErrCannotClean)
}

func TestWrapOfNilIsAnError(t *testing.T) {
	_, err := Dialect{}.Wrap(nil)
	require.Error(t, err)
}
