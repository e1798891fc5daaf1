package promtest

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// promtool runs promtool in the folder of the rules.
func promtool(t *testing.T, arguments ...string) {
	t.Helper()
	command := exec.CommandContext(t.Context(), program(t, "promtool"), arguments...)
	command.Dir = grafana
	out, err := command.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func TestTheAlertRulesAreRules(t *testing.T) { promtool(t, "check", "rules", "alerts.yml") }

func TestTheAlertsFireWhenTheyShouldAndOnlyThen(t *testing.T) {
	promtool(t, "test", "rules", "alerts_test.yml")
}

var (
	alertOfRule = regexp.MustCompile(`(?m)^ *- alert: (\w+)$`)
	caseOfAlert = regexp.MustCompile(`(?m)^ *alertname: (\w+)\n *exp_alerts:(.*)$`)
)

// Each alert has a case in which it fires, one in which it does not, and a line in the
// documentation.
func TestEveryAlertIsTestedAndDocumented(t *testing.T) {
	rules, err := os.ReadFile(filepath.Join(grafana, "alerts.yml"))
	require.NoError(t, err)
	cases, err := os.ReadFile(filepath.Join(grafana, "alerts_test.yml"))
	require.NoError(t, err)
	text, err := os.ReadFile("../../docs/observability.md")
	require.NoError(t, err)
	fires, quiet := map[string]bool{}, map[string]bool{}
	for _, c := range caseOfAlert.FindAllStringSubmatch(string(cases), -1) {
		if c[2] == "" {
			fires[c[1]] = true
		} else {
			quiet[c[1]] = true
		}
	}
	alerts := alertOfRule.FindAllStringSubmatch(string(rules), -1)
	require.NotEmpty(t, alerts)
	for _, a := range alerts {
		require.True(t, fires[a[1]], "no case in which %s fires", a[1])
		require.True(t, quiet[a[1]], "no case in which %s does not fire", a[1])
		require.Contains(t, string(text), "`"+a[1]+"`")
	}
}

// The names in the rules and in the documentation are those of the collector.
func TestTheMetricsOfTheRulesAreExposed(t *testing.T) {
	_, registry := service(t)
	for _, file := range []string{filepath.Join(grafana, "alerts.yml"), "../../docs/observability.md"} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		requireExposed(t, registry, string(text))
	}
}
