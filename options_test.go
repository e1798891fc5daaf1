package pooldriver

import (
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/optiontable"
)

func TestEveryParameterSetsItsFieldAndPrintsWhatItSet(t *testing.T) {
	other := map[string]string{
		"pool_max_conns": "7", "pool_min_conns": "2", "pool_min_idle_conns": "3",
		"pool_max_conn_lifetime": "2h0m0s", "pool_max_conn_lifetime_jitter": "3m0s", "pool_max_conn_idle_time": "4m0s",
		"pool_health_check_period": "5s", "pool_ping_timeout": "6s", "pool_acquire_timeout": "7s",
		"pool_connect_timeout": "8s", "pool_clean_timeout": "9s", "pool_max_waiters": "11", "pool_queue_target": "20ms", "pool_queue_interval": "21ms", "pool_queue_dry": "true", "pool_reset": "always",
		"pool_stmt_cache": "12", "pool_pipeline": "16", "pool_stmt_budget": "99", "pool_lazy_begin": "true", "pool_breaker_failures": "13", "pool_breaker_cooldown": "14s",
		"pool_ambient": "strict", "pool_nested_buffer": "64KiB", "pool_nested_buffer_total": "32MiB", "pool_task_timeout": "15s", "pool_deadlock_after": "16s",
		"pool_sample_stacks": "17", "pool_leak_after": "18s", "pool_leak_exempt": "listener,report", "pool_slow_query": "19s", "pool_listen_ping": "21s",
		"pool_replicas": "db2:5432,db3:5432", "pool_replica_max_conns": "23", "pool_replica_reads": "auto", "pool_replica_wait": "24ms",
		"pool_replica_max_lag": "25s", "pool_replica_fallback": "off",
	}
	require.Len(t, other, len(options), "a parameter has no case")
	for _, o := range options {
		c := defaultConfig("")
		require.Equal(t, o.Default, o.Get(&c), "default of %s", o.Name)
		require.NoError(t, c.apply([]dialects.Param{{Name: o.Name, Value: other[o.Name]}}))
		require.Equal(t, other[o.Name], o.Get(&c), o.Name)
		require.NoError(t, c.check())
		changed := 0
		for _, p := range options {
			if p.Get(&c) != p.Default {
				changed++
			}
		}
		require.Equal(t, 1, changed, "%s changed something else too", o.Name)
	}
}

func TestBadParametersAreRefusedByNameAndNeverByValue(t *testing.T) {
	const secret = "s3cr3tvalue"
	for name, want := range map[string]string{
		"pool_max_conns":                "wants a whole number",
		"pool_acquire_timeout":          "wants a duration",
		"pool_max_conn_lifetime_jitter": "wants a duration",
		"pool_reset":                    "wants one of auto, always, off",
		"pool_ambient":                  "wants one of auto, join, warn, strict",
		"pool_nested_buffer":            "wants a number of bytes",
		"pool_max_cons":                 "did you mean pool_max_conns?",
		"pool_" + secret:                "unknown parameter pool_…",
	} {
		c := defaultConfig("")
		err := c.apply([]dialects.Param{{Name: name, Value: secret}})
		require.ErrorContains(t, err, want)
		require.NotContains(t, err.Error(), secret)
	}
	c := defaultConfig("")
	require.ErrorContains(t, c.apply([]dialects.Param{{Name: "pool_max_conns", Value: "3"}, {Name: "pool_max_conns", Value: "4"}}), "twice")
	require.ErrorContains(t, c.apply([]dialects.Param{{Name: "pool_max_conn_lifetime_jitter", Value: "-3s"}}), "negative")
	require.ErrorContains(t, c.apply([]dialects.Param{{Name: "pool_nested_buffer", Value: "16"}}), "write the unit, as in 16MiB")
	for value, want := range map[string]int64{"0": 0, "100B": 100, "4096": 4096, "1KiB": 1024} {
		require.NoError(t, c.apply([]dialects.Param{{Name: "pool_nested_buffer", Value: value}}))
		require.Equal(t, want, c.NestedBuffer)
	}
}

func TestSettingsThatMakeNoSenseAreRefused(t *testing.T) {
	for name, spoil := range map[string]func(*Config){
		"pool_max_conns":       func(c *Config) { c.MaxConns = 0 },
		"pool_min_conns":       func(c *Config) { c.MinConns = c.MaxConns + 1 },
		"pool_min_idle_conns":  func(c *Config) { c.MinIdleConns = c.MaxConns + 1 },
		"pool_acquire_timeout": func(c *Config) { c.AcquireTimeout = -1 },
		"pool_connect_timeout": func(c *Config) { c.ConnectTimeout = 0 },
		"pool_reset":           func(c *Config) { c.Reset = 9 },
		"pool_stmt_cache":      func(c *Config) { c.StmtCache = -1 },
		"pool_stmt_budget":     func(c *Config) { c.StmtBudget = -1 },
		"pool_max_conn_lifetime: 1ms is too short: statements would wait": func(c *Config) { c.MaxConnLifetime = time.Millisecond },
		"pool_max_conn_lifetime: -1s is too short":                        func(c *Config) { c.MaxConnLifetime = -time.Second },
	} {
		c := defaultConfig("")
		spoil(&c)
		require.ErrorContains(t, c.check(), name)
	}
	for _, fine := range []time.Duration{0, time.Second} {
		c := defaultConfig("")
		c.MaxConnLifetime = fine
		require.NoError(t, c.check())
	}
}

func TestJitterIsATenthOfTheLifetimeUnlessSet(t *testing.T) {
	c := defaultConfig("")
	require.Equal(t, 6*time.Minute, c.jitter())
	c.MaxConnLifetime = 5
	require.Zero(t, c.jitter())
	c.MaxConnLifetimeJitter = 0
	c.MaxConnLifetime = time.Hour
	require.Zero(t, c.jitter())
}

func TestConfigPrintsItsParametersAndNothingElse(t *testing.T) {
	c := defaultConfig("")
	j, err := json.Marshal(c)
	require.NoError(t, err)
	for _, s := range []string{c.String(), fmt.Sprintf("%v", c), fmt.Sprintf("%+v", &c), fmt.Sprintf("%#v", c), string(j), c.LogValue().String()} {
		require.Contains(t, s, "pool_max_conns=10 pool_min_conns=0")
	}
}

func TestTheSettingsPageListsEveryParameterWithItsDefault(t *testing.T) {
	page, err := os.ReadFile("docs/settings.md")
	require.NoError(t, err)
	for _, o := range options {
		row := fmt.Sprintf("| `%s` | `%s` | %s |", o.Name, short(o.Default), o.Doc)
		require.True(t, strings.Contains(string(page), row), "docs/settings.md lacks the row\n%s", row)
	}
}

// TestTheSettingsThatMostNeedHaveTheirDefaults: their table has them in other words.
func TestTheSettingsThatMostNeedHaveTheirDefaults(t *testing.T) {
	page, err := os.ReadFile("docs/settings.md")
	require.NoError(t, err)
	rows := regexp.MustCompile("(?m)^\\| `(pool_\\w+)` \\| `([^`]*)` \\|").FindAllStringSubmatch(string(page), -1)
	require.NotEmpty(t, rows)
	for _, row := range rows {
		i := slices.IndexFunc(options, func(o optiontable.Option[Config]) bool { return o.Name == row[1] })
		require.NotEqual(t, -1, i, row[1])
		require.Equal(t, short(options[i].Default), row[2], row[1])
	}
}

// short is a duration as people write it.
func short(value string) string {
	if strings.HasSuffix(value, "m0s") {
		value = strings.TrimSuffix(value, "0s")
	}
	if strings.HasSuffix(value, "h0m") {
		value = strings.TrimSuffix(value, "0m")
	}
	return value
}

func TestSettingsListTheTable(t *testing.T) {
	_, _, c := openStub(t, dialects.Traits{}, func(c *Config) { c.MaxConns, c.AcquireTimeout = 3, time.Second })
	changed := map[string]string{}
	for _, s := range c.Settings() {
		require.NotEmpty(t, s.Meaning, s.Name)
		if s.Value != s.Default {
			changed[s.Name] = s.Value
		}
	}
	require.Len(t, c.Settings(), len(options))
	require.Equal(t, map[string]string{"pool_max_conns": "3", "pool_acquire_timeout": "1s"}, changed)
}

func TestTheBudgetOfStatementsIsSharedByAllConnections(t *testing.T) {
	for _, c := range []struct{ conns, cache, budget, each int }{
		{10, 128, 4096, 128}, {10, 128, 100, 9}, {10, 128, 0, 128}, {10, 5, 100, 5}, {10, 128, 10, 0}, {10, 128, 9, 0}, {10, 0, 100, 0},
	} {
		config := defaultConfig("")
		config.MaxConns, config.StmtCache, config.StmtBudget = c.conns, c.cache, c.budget
		require.Equal(t, c.each, config.stmtsPerConn(), c)
	}
}
