package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// status returns the exit status of the command.
func status(args ...string) int {
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), asCommand+"=1")
	_ = c.Run() // the status says it
	return c.ProcessState.ExitCode()
}

func TestTheStatusOfDoctorIsForCI(t *testing.T) {
	file := filepath.Join(t.TempDir(), "shop.db")
	require.Equal(t, 2, status("doctor", "sqlite:"+file), "there is no file")
	require.NoFileExists(t, file)
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.Equal(t, 0, status("doctor", "sqlite:"+file), "its journal is only a warning")
	require.Equal(t, 2, status("doctor", "sqlite:"+file, "--strict"))
	require.Equal(t, 0, status("doctor", "sqlite:"+file+"?_pragma=journal_mode(WAL)", "--strict", "--json"))
	require.Equal(t, 1, status("doctor", "sqlite:"+file+"?pool_max_conns=0"))
	require.Equal(t, 1, status("doctor", "http://127.0.0.1:1/debug/pool"))
}
