package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
)

func TestExplainSaysWhatADSNMeansWithoutItsSecret(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, (&explain{DSN: "postgres://app:hunter2@one:5432,two:5433/shop?pool_max_conns=20&sslmode=disable"}).Run(&out))
	text := out.String()
	require.Contains(t, text, "one:5432")
	require.Contains(t, text, "two:5433")
	require.Regexp(t, `set in the DSN:\n  pool_max_conns +20 \(default 10\) +most real connections`, text)
	require.Regexp(t, `defaults:\n  pool_min_conns +0 +real connections kept open`, text)
	require.Regexp(t, `said to the driver:\n  sslmode +disable\n`, text)
	require.NotContains(t, text, "hunter2")
}

func TestExplainShowsWhatTheDriverIsTold(t *testing.T) {
	for dsn, want := range map[string][]string{
		"postgres://app:hunter2@db/shop?target_session_attrs=read-write&sslpassword=hunter2&search_path=a%2Cb": {`target_session_attrs +read-write`, `sslpassword +\(not shown\)`, `search_path +a,b`},
		"host=db user=app password='hunter2' dbname=shop sslmode=require options='-c x.y=hunter2'":             {`sslmode +require`, `options +\(not shown\)`},
		"mysql://app:hunter2@db/shop?parseTime=true&tls=preferred&secret_variable=hunter2":                     {`parseTime +true`, `tls +preferred`, `secret_variable +\(not shown\)`},
		"sqlite:x.db?_pragma=foreign_keys(1)&_pragma=key('hunter2')":                                           {`_pragma +foreign_keys\(1\)`, `_pragma=key +\(not shown\)`, `_busy_timeout +5000`},
	} {
		var out bytes.Buffer
		require.NoError(t, (&explain{DSN: dsn}).Run(&out), dsn)
		for _, w := range want {
			require.Regexp(t, w, out.String())
		}
		require.NotContains(t, out.String(), "hunter2")
	}
}

// TestTheDefaultOfADialectIsNotSet: of what nobody has written, nothing is shown as set.
func TestTheDefaultOfADialectIsNotSet(t *testing.T) {
	for dsn, want := range map[string]string{
		"postgres://db/shop": `defaults:(\n.*)*\n  pool_lazy_begin +true +BeginTx`,
		"sqlite:x.db":        `defaults:(\n.*)*\n  pool_lazy_begin +false +BeginTx`,
		"postgres://db/shop?pool_lazy_begin=false": `set in the DSN:\n  pool_lazy_begin +false \(default true\)`,
		"sqlite:x.db?pool_lazy_begin=true":         `set in the DSN:\n  pool_lazy_begin +true \(default false\)`,
	} {
		var out bytes.Buffer
		require.NoError(t, (&explain{DSN: dsn}).Run(&out), dsn)
		require.Regexp(t, want, out.String(), dsn)
		c := pooldriver.New(dsn)
		written := strings.Contains(dsn, "pool_lazy_begin")
		require.Equal(t, written, strings.Contains(c.LogValue().String(), "pool_lazy_begin"), dsn)
	}
	c := pooldriver.Wrap(stdlib.GetConnector(pgx.ConnConfig{}))
	require.NotContains(t, c.LogValue().String(), "pool_lazy_begin")
	for _, s := range c.Settings() {
		if s.Name == "pool_lazy_begin" {
			require.Equal(t, []string{"false", "false"}, []string{s.Value, s.Default})
		}
	}
}

func TestExplainSaysWhatIsWrong(t *testing.T) {
	for dsn, want := range map[string]string{
		"": "no DSN",
		"postgres://app:hunter2@db/shop?pool_max_connections=3": "unknown parameter pool_max_connections",
		"postgres://app:hunter2@db/shop?pool_max_conns=none":    "pool_max_conns",
		"oracle://app:hunter2@db/shop":                          "a scheme that no dialect has",
	} {
		err := (&explain{DSN: dsn}).Run(new(bytes.Buffer))
		require.ErrorContains(t, err, want, dsn)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestExplainSaysWhetherAQueryMayBePipelined(t *testing.T) {
	on := "postgres://app:hunter2@db/shop?pool_pipeline=16"
	for _, c := range []struct{ dsn, query, want string }{
		{on, "SELECT n FROM stock WHERE id = $1", "It may, when it waits"},
		{"postgres://db/shop", "SELECT n FROM stock WHERE id = $1", "No: pool_pipeline is 0. With pool_pipeline=16 it may, when it waits"},
		{on, "UPDATE stock SET n = 1", "No: it is not known to read"},
		{on, "SELECT n FROM stock FOR SHARE", "No: it is not known to read"},
		{on, "SET search_path = shop", "No: it may leave something in its session (stateful"},
		{"sqlite:x.db", "SELECT 1", "No: only PostgreSQL"},
	} {
		var out bytes.Buffer
		require.NoError(t, (&explain{DSN: c.dsn, Query: c.query}).Run(&out))
		require.Contains(t, out.String(), c.want, c.query)
	}
}
