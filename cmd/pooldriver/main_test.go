package main

import (
	"os"
	"os/exec"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

const asCommand = "POOLDRIVER_TEST_AS_COMMAND"

// TestMain lets the tests run their own binary as the command.
func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// command runs the command, and returns what it prints and whether it succeeds.
func command(args ...string) (said string, ok bool) {
	c := exec.Command(os.Args[0], args...)
	c.Env = append(os.Environ(), asCommand+"=1")
	out, err := c.CombinedOutput()
	return string(out), err == nil
}

func TestAnErrorHasTheNameOfTheCommandOnce(t *testing.T) {
	for want, args := range map[string][]string{
		"pooldriver: error: pool_max_conns: 0 is too small; the least is 1\n":                                                           {"explain", "sqlite:x.db?pool_max_conns=0"},
		"pooldriver: error: unknown parameter pool_max_cons in the DSN; did you mean pool_max_conns?\n":                                 {"explain", "sqlite:x.db?pool_max_cons=1"},
		"pooldriver: error: unexpected argument sqlite:y.db\n":                                                                          {"doctor", "sqlite:x.db", "sqlite:y.db"},
		"pooldriver: error: the DSN's parameter pool_min_conns wants a whole number\n":                                                  {"doctor", "sqlite:x.db?pool_min_conns=x"},
		"pooldriver: error: \"x\" is no URL of a page: it is the program's inspect.Handler, such as http://localhost:6060/debug/pool\n": {"top", "x"},
	} {
		said, ok := command(args...)
		require.False(t, ok)
		require.Equal(t, want, said)
	}
}

func TestVersionSaysWhichLibraryAndGoThisIs(t *testing.T) {
	said, ok := command("version")
	require.True(t, ok, said)
	require.Regexp(t, `^pooldriver \S+, with the library \S+, built by `+runtime.Version()+`\n$`, said)
}
