package doctor

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
)

func planOf(t *testing.T, parameters string, replicas int, surge string) *Plan {
	t.Helper()
	p, err := NewPlan(pooldriver.New("postgres://app@db/shop?"+parameters), replicas, surge)
	require.NoError(t, err)
	return &p
}

func TestASurgeIsANumberOrAPercentageRoundedUp(t *testing.T) {
	for surge, want := range map[string]int{"0": 0, "2": 2, "25%": 2, "100%": 5, "1%": 1, "0%": 0} {
		require.Equal(t, want, planOf(t, "", 5, surge).Surge, surge)
	}
	for _, surge := range []string{"", "-1", "x", "25 %", "%"} {
		_, err := NewPlan(pooldriver.New("postgres://app@db/shop"), 5, surge)
		require.ErrorContains(t, err, "--surge", surge)
	}
	_, err := NewPlan(pooldriver.New("postgres://app@db/shop"), 0, "0")
	require.ErrorContains(t, err, "--replicas")
}

func TestPoolersAreKnownByTheirNames(t *testing.T) {
	for address, want := range map[string]string{
		"shop.proxy-c1a2b3.eu-central-1.rds.amazonaws.com:5432":         "RDS Proxy",
		"ro.endpoint.proxy-c1a2b3.cn-north-1.rds.amazonaws.com.cn:3306": "RDS Proxy",
		"shop.c1a2b3.eu-central-1.rds.amazonaws.com:5432":               "",
		"shop.cluster-c1a2b3.eu-central-1.rds.amazonaws.com:5432":       "",
		"AWS-0-eu-west-1.pooler.supabase.com:6543":                      "Supavisor",
		"db.abc.supabase.co:5432":                                       "",
		"shop.postgres.database.azure.com:6432":                         "PgBouncer",
		"shop.postgres.database.azure.com:5432":                         "",
		"db.proxy-of-ours.example:5432":                                 "",
		"/run/postgresql":                                               "",
	} {
		require.Equal(t, want, poolerOf(address), address)
	}
	require.Equal(t, "ProxySQL", proxyOf("8.0.36", "(ProxySQL)"))
	require.Equal(t, "Vitess", proxyOf("8.0.40-Vitess", "Version: 24.0.4"))
	require.Empty(t, proxyOf("11.8.3-MariaDB", "MariaDB Server"))
	require.Equal(t, "RDS Proxy is between the program and the server", between("RDS Proxy", "a pooler", false))
	require.Equal(t, "a pooler is between the program and the server: the session has another number than the login told", between("", "a pooler", true))
}

func TestALimitIsComparedWithAllProcesses(t *testing.T) {
	for _, c := range []struct {
		limit    limit
		plan     *Plan
		level    Level
		contains string
		types    string
	}{
		{limit{max: 100, reserved: 3, others: 40}, planOf(t, "pool_max_conns=19", 3, "0"), OK, "leaves 0", ""},
		{limit{max: 100, reserved: 3, others: 40}, planOf(t, "pool_max_conns=19", 3, "1"), Bad, "up to 19 connections", "pool_max_conns=14"},
		{limit{max: 100, reserved: 3, others: 40}, planOf(t, "pool_max_conns=20", 3, "0"), Bad, "under load", "pool_max_conns=19"},
		{limit{max: 100, reserved: 3, others: 95, raise: "raise to %d"}, planOf(t, "pool_max_conns=20", 3, "0"), Bad, "not every process", "raise to 158"},
		{limit{max: 5, others: 4}, planOf(t, "pool_max_conns=1", 1, "0"), OK, "leaves 0", ""},
	} {
		f := c.limit.judge(c.plan)
		require.Equal(t, c.level, f.Level, f)
		require.Contains(t, f.Follows, c.contains)
		require.Equal(t, c.types, f.Type)
	}
}

func TestWhatIsTypedAgainstAnIdleTimeoutHelps(t *testing.T) {
	for _, after := range []time.Duration{time.Second, 10 * time.Second, time.Minute, 150 * time.Second, 10 * time.Minute, 30 * time.Minute} {
		f := planOf(t, "", 1, "0").idleTimeout("x", "x", after)
		require.Equal(t, Warn, f.Level, after)
		require.Equal(t, OK, planOf(t, f.Type, 1, "0").idleTimeout("x", "x", after).Level, "%v: %s", after, f.Type)
	}
	require.Equal(t, OK, planOf(t, "", 1, "0").idleTimeout("x", "x", 8*time.Hour).Level)
	require.Equal(t, OK, planOf(t, "", 1, "0").idleTimeout("x", "x", 0).Level)
	require.Equal(t, Warn, planOf(t, "pool_max_conn_idle_time=0", 1, "0").idleTimeout("x", "x", 8*time.Hour).Level, "for ever")
}

func TestTheBusyRatioTellsIdleConnectionsFromIdleTransactions(t *testing.T) {
	const hour = 3_600_000
	for _, c := range []struct {
		open, active, inTx float64
		level              Level
		says               string
	}{
		{1000, 500, 0, Note, "nothing is known yet"},
		{hour, hour / 50, 0, Note, "ran statements for 2 % of their time"},
		{hour, 0.9 * hour, 0, Note, "90 %"},
		{hour, hour / 50, hour / 10, Warn, "idle in a transaction for 10 %"},
	} {
		f := busyRatio("shop", c.open, c.active, c.inTx, time.Time{})
		require.Equal(t, c.level, f.Level)
		require.Contains(t, f.Found, c.says)
	}
}

func TestAReportMovesNoCursor(t *testing.T) {
	var r Report
	r.Add(Finding{Level: Bad, Check: "x", Found: "a\x1b[2J\nb", Follows: strings.Repeat("ü", 1000), Type: "c\rd"})
	var text bytes.Buffer
	require.NoError(t, r.WriteText(&text))
	require.Contains(t, text.String(), "bad   x: a [2J b\n      → üü")
	require.Contains(t, text.String(), "ü…\n      $ c d\n")
	require.Contains(t, text.String(), "\n1 bad, 0 warn, 0 note, 0 ok\n")
}

// TestEachRowSaysWhatDoesNotFit has facts for which a row applies, and none for which it does not.
func TestEachRowSaysWhatDoesNotFit(t *testing.T) {
	for _, c := range []struct {
		params, dialect string
		facts           facts
		want            map[string]Level // those that are not OK
	}{
		{"application_name=shop", "postgres", facts{set: map[string]string{}}, map[string]Level{"tls": Warn}},
		{"application_name=shop&sslmode=verify-full", "postgres", facts{encrypted: true}, map[string]Level{}},
		{"application_name=shop", "postgres", facts{encrypted: true}, map[string]Level{"tls": Note}},
		{"application_name=shop", "postgres", facts{encrypted: true, standby: true}, map[string]Level{"tls": Note, "standby": Warn}},
		{"application_name=shop&target_session_attrs=any&sslmode=verify-ca", "postgres", facts{encrypted: true, standby: true}, map[string]Level{}},
		{"sslmode=verify-ca", "postgres", facts{encrypted: true, superuser: true, set: map[string]string{"default_transaction_read_only": "on", "statement_timeout": "0", "idle_in_transaction_session_timeout": "100"}},
			map[string]Level{"role": Warn, "application_name": Note, "read_only": Warn, "statement_timeout": Note, "idle_in_transaction_session_timeout": Warn}},
		{"pool_reset=auto", "postgres", facts{pooled: true, shared: true}, map[string]Level{"pool_reset": Warn}},
		{"pool_reset=off", "postgres", facts{pooled: true, shared: true}, map[string]Level{}},
		{"pool_reset=off&application_name=shop&sslmode=verify-ca", "postgres", facts{encrypted: true}, map[string]Level{"pool_reset": Warn}},
		{"pool_acquire_timeout=0", "postgres", facts{pooled: true}, map[string]Level{"pool_acquire_timeout": Warn}},
		{"pool_acquire_timeout=5s&pool_connect_timeout=30s&pool_queue_target=6s", "postgres", facts{pooled: true}, map[string]Level{"pool_connect_timeout": Warn, "pool_queue_target": Warn}},
		{"pool_max_conn_idle_time=2h&pool_max_conn_lifetime=1h", "postgres", facts{pooled: true}, map[string]Level{"pool_max_conn_idle_time": Note}},
		{"", "mysql", facts{pooled: true, set: map[string]string{"read_only": "ON", "Connection_errors_max_connections": "3"}}, map[string]Level{"read_only": Warn, "refused_connections": Warn}},
		{"", "sqlite", facts{set: map[string]string{"journal_mode": "delete", "busy_timeout": "0"}}, map[string]Level{"journal_mode": Warn, "busy_timeout": Warn}},
		{"", "sqlite", facts{set: map[string]string{"journal_mode": "wal", "busy_timeout": "5000"}}, map[string]Level{}},
	} {
		e := exam{Report: new(Report), plan: planOf(t, c.params, 1, "0"), dialect: c.dialect, facts: c.facts, c: pooldriver.New("postgres://app@db/shop?" + c.params)}
		e.check()
		got := map[string]Level{}
		for _, f := range e.Findings {
			require.NotContains(t, f.Type, "USER", f)
			if f.Level != OK {
				got[f.Check] = f.Level
			}
		}
		require.Equal(t, c.want, got, "%s %s", c.dialect, c.params)
	}
}
