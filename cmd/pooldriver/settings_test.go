package main

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/cmd/pooldriver/internal/doctor"
)

// dsns are one of each dialect that the command links.
var dsns = map[string]string{
	"postgres": "postgres://app@db/shop?", "mysql": "mysql://app@db/shop?", "sqlite": "sqlite:x.db?",
}

// TestEverySettingActsIsRefusedOrNamed tries each setting alone, with each dialect: a value that is not the default acts, or is
// an error, or has a line in the log and in doctor.
func TestEverySettingActsIsRefusedOrNamed(t *testing.T) {
	t.Parallel()
	other := map[string]string{
		"pool_max_conn_lifetime_jitter": "3m", "pool_reset": "off", "pool_ambient": "strict", "pool_leak_exempt": "report", "pool_replicas": "db2:1",
		"pool_replica_reads": "auto", "pool_replica_fallback": "off", "pool_nested_buffer": "1MiB", "pool_nested_buffer_total": "99MiB",
	}
	refused := map[string]string{
		"mysql pool_pipeline": "only PostgreSQL has pipelines", "sqlite pool_pipeline": "only PostgreSQL has pipelines",
		"sqlite pool_replicas": "it works on PostgreSQL and MySQL",
	}
	idle := map[string]string{
		"pool_queue_interval": "pool_queue_target is 0", "pool_queue_dry": "pool_queue_target is 0",
		"pool_breaker_cooldown": "pool_breaker_failures is 0", "pool_leak_exempt": "pool_leak_after is 0",
		"pool_replica_max_conns": "there are no pool_replicas", "pool_replica_reads": "there are no pool_replicas", "pool_replica_wait": "there are no pool_replicas",
		"pool_replica_max_lag": "there are no pool_replicas", "pool_replica_fallback": "there are no pool_replicas",
		"mysql pool_listen_ping": "this database has no listeners", "sqlite pool_listen_ping": "this database has no listeners",
	}
	for dialect, dsn := range dsns {
		for _, s := range pooldriver.New(dsn + "pool_max_conns=3").Settings() {
			value := other[s.Name]
			switch {
			case value != "":
			case s.Default == "true" || s.Default == "false":
				value = map[string]string{"true": "false", "false": "true"}[s.Default]
			case strings.HasSuffix(s.Default, "s"):
				value = "7s"
			default:
				value = "5"
			}
			of := dialect + " " + s.Name
			var log bytes.Buffer
			c := pooldriver.New(dsn+s.Name+"="+value, func(c *pooldriver.Config) { c.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
			if why := refused[of]; why != "" {
				require.ErrorContains(t, c.Err(), why, of)
				require.ErrorContains(t, c.Err(), s.Name)
				continue
			}
			require.NoError(t, c.Err(), of)
			found := new(doctor.Report)
			found.Settings(c.Settings())
			why := idle[s.Name] + idle[of]
			if why == "" {
				require.Empty(t, log.String(), of)
				require.Empty(t, found.Findings, of)
				continue
			}
			require.Equal(t, 1, strings.Count(log.String(), "a setting has no effect"), of)
			require.Contains(t, log.String(), "because=\""+why+"\"", of)
			require.Len(t, found.Findings, 1, of)
			require.Equal(t, s.Name+"="+settingOf(c, s.Name)+" has no effect: "+why, found.Findings[0].Found)
		}
	}
}

func TestSettingsThatBelongTogether(t *testing.T) {
	t.Parallel()
	for dsn, want := range map[string]string{
		"postgres://app@db/shop?pool_pipeline=16&pool_stmt_cache=0": "pool_pipeline is 16, and pool_stmt_cache is 0",
		"sqlite:x.db?POOL_MAX_CONNS=3":                              "unknown parameter",
		"postgres://app@db1,db2/shop?pool_replicas=auto":            "target_session_attrs=read-write",
	} {
		require.ErrorContains(t, pooldriver.New(dsn).Err(), want, dsn)
	}
	for dsn, want := range map[string]string{
		"postgres://app@db/shop?pool_replicas=auto":                                   "pool_replicas=auto has no effect: the DSN has one host",
		"postgres://app@db/shop?target_session_attrs=primary&pool_replicas=auto":      "pool_replicas=auto has no effect: the DSN has one host",
		"mysql://app@db/shop?pool_stmt_cache=0&pool_stmt_budget=7":                    "pool_stmt_budget=7 has no effect: pool_stmt_cache is 0",
		"sqlite:x.db?pool_max_conn_lifetime=0s&pool_max_conn_lifetime_jitter=3s":      "pool_max_conn_lifetime_jitter=3s has no effect: pool_max_conn_lifetime is 0",
		"postgres://app@db1,db2/shop?target_session_attrs=primary&pool_replicas=auto": "",
	} {
		c := pooldriver.New(dsn, func(c *pooldriver.Config) { c.Logger = slog.New(slog.DiscardHandler) })
		require.NoError(t, c.Err(), dsn)
		found := new(doctor.Report)
		found.Settings(c.Settings())
		if want == "" {
			require.Empty(t, found.Findings)
			continue
		}
		require.Len(t, found.Findings, 1, dsn)
		require.Equal(t, want, found.Findings[0].Found)
	}
}
