//go:build odbc && cgo

package odbc

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// The driver manager reads its setting once in a process: another one is asked.
func TestADriverManagerThatPoolsIsRefused(t *testing.T) {
	if dsn := os.Getenv("POOLDRIVER_ODBC_POOLS"); dsn != "" {
		s, err := mustTemplate(t, dsn).Dial(t.Context(), nil)
		require.ErrorContains(t, err, "two pools fight")
		require.ErrorContains(t, err, "Pooling = No")
		require.Nil(t, s)
		return
	}
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "odbcinst.ini"), []byte("[ODBC]\nPooling = Yes\n\n[SQLite3]\nDriver = libsqlite3odbc.so\nCPTimeout = 60\n"), 0o600))
	test := exec.Command(os.Args[0], "-test.run", "^TestADriverManagerThatPoolsIsRefused$")
	test.Env = append(os.Environ(), "ODBCSYSINI="+dir, "POOLDRIVER_ODBC_POOLS=odbc:Driver=SQLite3;Database="+filepath.Join(dir, "x.db"))
	out, err := test.CombinedOutput()
	require.NoError(t, err, "%s", out)
}
