package doctor

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/inspect"
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
		_, err := NewPlan(nil, 5, surge)
		require.ErrorContains(t, err, "--surge", surge)
	}
	_, err := NewPlan(nil, 0, "0")
	require.ErrorContains(t, err, "--replicas")
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
		{limit{max: 100, reserved: 3, others: 95, raise: "more"}, planOf(t, "pool_max_conns=20", 3, "0"), Bad, "not every process", "more"},
		{limit{max: 5, others: 4}, planOf(t, "pool_max_conns=1", 1, "0"), OK, "leaves 0", ""},
	} {
		f := c.limit.judge(c.plan)
		require.Equal(t, c.level, f.Level, f)
		require.Contains(t, f.Follows, c.contains)
		require.Equal(t, c.types, f.Type)
	}
	require.Equal(t, 37, (&limit{max: 100, reserved: 3, others: 40, ours: 20}).spare())
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

func TestAProgramOfAnotherVersionIsReadAsFarAsItGoes(t *testing.T) {
	for _, text := range []string{`{}`, `{"Name":"a","New":{"x":1}}`, `{"Name":"a","Stats":{"Pool":{"Max":4}},"Recent":{"WaitP99":900000000}}`} {
		var p inspect.Pool
		require.NoError(t, json.Unmarshal([]byte(text), &p))
		var r Report
		Program(&r, p, planOf(t, "", 1, "0"))
		require.Zero(t, r.Count(Bad), r)
	}
	_, err := Choose(nil, "")
	require.ErrorContains(t, err, "no pool")
	_, err = Choose([]inspect.Pool{{Name: "a"}, {Name: "b"}}, "c")
	require.ErrorContains(t, err, `no pool "c"; it has a, b`)
	p, err := Choose([]inspect.Pool{{Name: "a"}, {Name: "b"}}, "b")
	require.NoError(t, err)
	require.Equal(t, "b", p.Name)
}

func TestEachFigureOfAProgramHasItsLine(t *testing.T) {
	p := inspect.Pool{Name: "a", DBs: []inspect.DB{{MaxOpen: 2}}, Verdict: inspect.Verdict{Level: "bad", Sentence: "All fail."}}
	p.Stats.Pool.Max, p.Stats.Pool.Allowed = 10, 7
	p.Stats.FoundDead, p.Stats.Orphans, p.Stats.StateDropped, p.Stats.Rollbacks, p.Stats.DialErrors = 1, 2, 3, 4, 5
	p.Stats.DialsFailing = pooldriver.DialsFailing{Failed: 5, Error: "refused"}
	p.Stats.AcquireFailures = map[pooldriver.AcquireFailure]uint64{pooldriver.AcquireTimeout: 6, pooldriver.AcquireOverloaded: 7}
	p.Stats.Hold.Sum, p.Stats.IdlePinned.Sum = 100, 80
	plan := planOf(t, "", 1, "0")
	var r Report
	Program(&r, p, plan)
	levels := map[string]Level{}
	for _, f := range r.Findings {
		levels[f.Check] = f.Level
		if f.Check == "failures" {
			require.Contains(t, f.Found, "timeout 6, overloaded 7, 5 failed dials")
		}
	}
	require.Equal(t, map[string]Level{
		"verdict": Bad, "size": Warn, "server_full": Bad, "failures": Bad, "found_dead": Warn, "orphans": Warn,
		"state_dropped": Warn, "rollbacks": Warn, "max_open_conns": Warn,
	}, levels)
	require.Equal(t, 10, plan.MaxConns)
}

func TestAProgramsOwnTrafficSaysHowManyConnectionsAreEnough(t *testing.T) {
	for _, c := range []struct {
		enough                pooldriver.WhatIf
		found, follows, typed string
	}{
		{pooldriver.WhatIf{Conns: 8, Needed: 12, For: time.Hour, Lendings: 9000, WaitP99: 2 * time.Millisecond},
			"in the last 1h0m0s at most 12 of 20 connections were needed; with 8 the p99 of the wait would have been 2ms", "a smaller pool", "pool_max_conns=8, if"},
		{pooldriver.WhatIf{Conns: 7, Needed: 7, For: time.Hour, Lendings: 9000},
			"in the last 1h0m0s at most 7 of 20 connections were needed; with 7 nobody would have waited", "a smaller pool", "pool_max_conns=7, if"},
		{pooldriver.WhatIf{Conns: 20, Needed: 20, For: time.Minute, Lendings: 9000},
			"in the last 1m0s at most 20 of 20 connections were needed; with 20 nobody would have waited", "", ""},
		{pooldriver.WhatIf{Conns: 20, Unknown: "only 3 checkouts have ended so far"},
			"how many connections would be enough is not known: only 3 checkouts have ended so far", "", ""},
		{pooldriver.WhatIf{}, "", "", ""}, // of a version without it
	} {
		p := inspect.Pool{Name: "a"}
		p.Stats.Pool.Max, p.Stats.Enough = 20, c.enough
		sent, err := json.Marshal(p) // as it comes from the program's page
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(sent, &p))
		var r Report
		Program(&r, p, planOf(t, "", 1, "0"))
		var text, forPrograms bytes.Buffer
		require.NoError(t, r.WriteText(&text))
		require.NoError(t, r.WriteJSON(&forPrograms))
		if c.found == "" {
			require.NotContains(t, text.String(), "enough")
			continue
		}
		require.Contains(t, text.String(), "note  enough: "+c.found+"\n"+map[bool]string{true: "      → "}[c.follows != ""]+c.follows)
		require.Contains(t, forPrograms.String(), `"check": "enough",`)
		require.Contains(t, forPrograms.String(), `"found": "`+c.found+`"`)
		if c.typed != "" {
			require.Contains(t, forPrograms.String(), `"type": "`+c.typed)
		}
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
