package promtest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// trouble is what a pool shows while an alert has a reason, from the beginning of the test on.
type trouble struct {
	alert  string
	series map[string]func(at time.Duration) float64
	// after is when the alert has to fire at the latest.
	after time.Duration
}

// perSecond counts so many events in each second.
func perSecond(n float64) func(time.Duration) float64 {
	return func(at time.Duration) float64 { return n * at.Seconds() }
}

func always(v float64) func(time.Duration) float64 {
	return func(time.Duration) float64 { return v }
}

const db = `{job="shop", instance="a", pool="db"`

var troubles = []trouble{
	{"PooldriverStatementsWait", map[string]func(time.Duration) float64{"pooldriver_waiters" + db + "}": always(3)}, 5 * time.Minute},
	{"PooldriverWaitIsLong", map[string]func(time.Duration) float64{
		"pooldriver_acquire_wait_seconds_bucket" + db + `, le="0.1"}`:  perSecond(98),
		"pooldriver_acquire_wait_seconds_bucket" + db + `, le="0.25"}`: perSecond(100),
		"pooldriver_acquire_wait_seconds_bucket" + db + `, le="+Inf"}`: perSecond(100),
	}, 10 * time.Minute},
	{"PooldriverNoConnection", map[string]func(time.Duration) float64{"pooldriver_acquire_failures_total" + db + `, reason="timeout"}`: perSecond(0.5)}, 5 * time.Minute},
	{"PooldriverCallersGiveUp", map[string]func(time.Duration) float64{
		"pooldriver_acquire_failures_total" + db + `, reason="gave_up"}`: perSecond(1),
		"pooldriver_acquire_wait_seconds_count" + db + "}":               perSecond(2),
	}, 5 * time.Minute},
	{"PooldriverRefuses", map[string]func(time.Duration) float64{"pooldriver_acquire_failures_total" + db + `, reason="overloaded"}`: perSecond(5)}, 5 * time.Minute},
	{"PooldriverReplicaDoesNotServe", map[string]func(time.Duration) float64{"pooldriver_replica_serving" + db + `, replica="db2"}`: always(0)}, 5 * time.Minute},
	{"PooldriverNobodyListens", map[string]func(time.Duration) float64{"pooldriver_listening" + db + "}": always(0), "pooldriver_listeners" + db + "}": always(1)}, 5 * time.Minute},
	{"PooldriverConnectionForgotten", map[string]func(time.Duration) float64{"pooldriver_longest_idle_hold_seconds" + db + "}": perSecond(1)}, 5 * time.Minute},
	{"PooldriverHeldForNothing", map[string]func(time.Duration) float64{
		"pooldriver_idle_pinned_seconds_sum" + db + "}": perSecond(0.9),
		"pooldriver_hold_seconds_sum" + db + "}":        perSecond(1),
		"pooldriver_waiters" + db + "}":                 always(1),
	}, 5 * time.Minute},
	{"PooldriverDialsFail", map[string]func(time.Duration) float64{"pooldriver_dial_errors_total" + db + "}": perSecond(1)}, 10 * time.Minute},
	{"PooldriverBreakerOpen", map[string]func(time.Duration) float64{"pooldriver_breaker_open" + db + "}": always(1)}, 5 * time.Minute},
	{"PooldriverConnectionsAreLost", map[string]func(time.Duration) float64{"pooldriver_connections_closed_total" + db + `, reason="lost"}`: perSecond(0.1)}, 15 * time.Minute},
	{"PooldriverServerMayHaveMore", map[string]func(time.Duration) float64{"pooldriver_connections_orphaned_total" + db + "}": perSecond(0.01)}, 10 * time.Minute},
}

// TestEveryAlertFiresHoweverOftenThePoolIsScraped: a rule that wants two samples in a minute is
// silent where there is one.
func TestEveryAlertFiresHoweverOftenThePoolIsScraped(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join(grafana, "alerts.yml"))
	require.NoError(t, err)
	require.Len(t, alertOfRule.FindAllString(string(rules), -1), len(troubles))
	absolute, err := filepath.Abs(filepath.Join(grafana, "alerts.yml"))
	require.NoError(t, err)
	var file strings.Builder
	fmt.Fprintf(&file, "rule_files: [%q]\nevaluation_interval: 30s\ntests:\n", absolute)
	for _, scrape := range []time.Duration{15 * time.Second, 30 * time.Second, 60 * time.Second} {
		// The evaluation comes at full half minutes, a sample never does.
		for _, offset := range []time.Duration{time.Second, 7 * time.Second, scrape - time.Second} {
			for _, trouble := range troubles {
				trouble.write(&file, scrape, offset)
			}
		}
	}
	name := filepath.Join(t.TempDir(), "scrapes_test.yml")
	require.NoError(t, os.WriteFile(name, []byte(file.String()), 0o600))
	promtool(t, "test", "rules", name)
}

// write adds a case: the pool is scraped at these times, and the alert fires.
func (tr trouble) write(file *strings.Builder, scrape, offset time.Duration) {
	fmt.Fprintf(file, "  - interval: 1s\n    name: %s scraped every %v\n    input_series:\n", tr.alert, scrape)
	for series, value := range tr.series {
		samples := fmt.Sprintf("_x%d", int(offset/time.Second)-1)
		if offset == time.Second {
			samples = "_"
		}
		for at := offset; at <= tr.after; at += scrape {
			samples += fmt.Sprintf(" %g _x%d", value(at), int(scrape/time.Second)-2)
		}
		fmt.Fprintf(file, "      - series: '%s'\n        values: '%s'\n", series, samples)
	}
	fmt.Fprintf(file, "    promql_expr_test:\n      - expr: count(ALERTS{alertname=%q, alertstate=\"firing\"})\n        eval_time: %v\n        exp_samples: [{labels: '{}', value: 1}]\n", tr.alert, tr.after)
}
