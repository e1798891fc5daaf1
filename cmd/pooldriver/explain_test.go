package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExplainSaysWhatADSNMeansWithoutItsSecret(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, (&explain{DSN: "postgres://app:hunter2@one:5432,two:5433/shop?pool_max_conns=20&sslmode=disable"}).Run(&out))
	text := out.String()
	require.Contains(t, text, "one:5432")
	require.Contains(t, text, "two:5433")
	require.Regexp(t, `set in the DSN:\n  pool_max_conns +20 \(default 10\) +most real connections`, text)
	require.Regexp(t, `defaults:\n  pool_min_conns +0 +real connections kept open`, text)
	require.NotContains(t, text, "hunter2")
}

func TestExplainSaysWhatIsWrong(t *testing.T) {
	for dsn, want := range map[string]string{
		"": "no DSN",
		"postgres://app:hunter2@db/shop?pool_max_connections=3": "unknown parameter pool_max_connections",
		"postgres://app:hunter2@db/shop?pool_max_conns=none":    "pool_max_conns",
		"oracle://app:hunter2@db/shop":                          "oracle",
	} {
		err := (&explain{DSN: dsn}).Run(new(bytes.Buffer))
		require.Error(t, err, dsn)
		require.NotContains(t, err.Error(), "hunter2")
		t.Log(want, "|", err)
	}
}
