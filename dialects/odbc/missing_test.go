//go:build !odbc || !cgo

package odbc

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

func TestWithoutTheTagADSNSaysWhatToInstallAndHowToBuild(t *testing.T) {
	d, err := dialects.Find("odbc:DSN=shop;PWD=hunter2")
	require.NoError(t, err)
	_, err = d.Parse("odbc:DSN=shop;PWD=hunter2")
	require.ErrorContains(t, err, "unixodbc-dev")
	require.ErrorContains(t, err, "-tags odbc")
	require.NotContains(t, err.Error(), "hunter2")
	_, err = d.Wrap(nil)
	require.ErrorIs(t, err, dialects.ErrNotMine)
}
