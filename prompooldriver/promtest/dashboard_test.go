package promtest

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
	"github.com/pooldriver/pooldriver/prompooldriver"
)

const grafana = "../../docs/grafana"

// dashboard is what Grafana reads of a dashboard's JSON, as far as it is needed here.
type dashboard struct {
	UID, Title    string
	SchemaVersion int
	Templating    struct {
		List []struct{ Name, Type string }
	}
	Panels []panel
}

type panel struct {
	ID                       int
	Type, Title, Description string
	GridPos                  struct{ X, Y, W, H int }
	Datasource               struct{ Type, UID string }
	FieldConfig              struct {
		Defaults struct{ Unit string }
	}
	Targets []struct{ RefID, Expr string }
}

func readDashboard(t *testing.T) (d dashboard) {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(grafana, "pooldriver.json"))
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(text, &d))
	return d
}

// What Grafana needs to show a dashboard: identity, a schema that it migrates from,
// panels with numbers of their own that do not lie on each other in a grid of 24
// columns, and targets with letters of their own.
func TestTheDashboardHasTheShapeThatGrafanaReads(t *testing.T) {
	d := readDashboard(t)
	require.NotEmpty(t, d.UID)
	require.NotEmpty(t, d.Title)
	require.GreaterOrEqual(t, d.SchemaVersion, 36) // Grafana 9
	require.NotEmpty(t, d.Panels)
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range d.Panels {
		require.False(t, ids[p.ID], "two panels with id %d", p.ID)
		ids[p.ID] = true
		require.Positive(t, p.ID)
		require.Contains(t, []string{"timeseries", "stat"}, p.Type)
		require.NotEmpty(t, p.Title)
		require.NotEmpty(t, p.Description, p.Title)
		require.NotEmpty(t, p.FieldConfig.Defaults.Unit, p.Title)
		require.Equal(t, "prometheus", p.Datasource.Type)
		require.Equal(t, "${datasource}", p.Datasource.UID)
		g := p.GridPos
		require.True(t, g.W > 0 && g.H > 0 && g.X >= 0 && g.Y >= 0 && g.X+g.W <= 24, "%s: %+v", p.Title, g)
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				require.Empty(t, taken[[2]int{x, y}], "%s lies on another panel", p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
		letters := map[string]bool{}
		require.NotEmpty(t, p.Targets, p.Title)
		for _, target := range p.Targets {
			require.Len(t, target.RefID, 1, p.Title)
			require.False(t, letters[target.RefID], p.Title)
			letters[target.RefID] = true
			require.NotEmpty(t, target.Expr, p.Title)
		}
	}
}

// Every variable that a panel uses is declared, but Grafana's own.
func TestTheDashboardDeclaresItsVariables(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(grafana, "pooldriver.json"))
	require.NoError(t, err)
	declared := map[string]bool{}
	for _, v := range readDashboard(t).Templating.List {
		declared[v.Name] = true
	}
	used := map[string]bool{}
	for _, v := range regexp.MustCompile(`\$\{?([a-z]\w*)`).FindAllStringSubmatch(string(text), -1) {
		used[v[1]] = true
	}
	require.Equal(t, declared, used)
}

// expressions are all of the dashboard, with the variables as Grafana sets them for "All".
func expressions(t *testing.T) (all []string) {
	t.Helper()
	set := strings.NewReplacer("$__rate_interval", "1m", "$job", ".*", "$instance", ".*", "$pool", ".*")
	for _, p := range readDashboard(t).Panels {
		for _, target := range p.Targets {
			all = append(all, set.Replace(target.Expr))
		}
	}
	return all
}

var (
	metricName = regexp.MustCompile(`\bpooldriver_\w+`)
	ofSome     = regexp.MustCompile(`fqName: "(pooldriver_(replica_\w+|statement_errors_total|arrivals_total))"`)
	ofHosts    = regexp.MustCompile(`pooldriver_replica_(connections|serving|lag_seconds)`)
	suffix     = regexp.MustCompile(`_(bucket|sum|count)$`)
)

// requireExposed requires that each metric in text is one of the registry. Those that the service does not
// have, because it has no replicas, errors or labels, are those that a collector describes.
func requireExposed(t *testing.T, registry *prometheus.Registry, text string) {
	t.Helper()
	families, err := registry.Gather()
	require.NoError(t, err)
	exposed := map[string]bool{}
	for _, f := range families {
		exposed[f.GetName()] = true
	}
	described := make(chan *prometheus.Desc)
	go func() {
		defer close(described)
		prompooldriver.NewCollector(pooldriver.Wrap(stubdialect.Connector(stubdialect.New(dialects.Traits{}))), "").Describe(described)
	}()
	for d := range described {
		if name := ofSome.FindStringSubmatch(d.String()); name != nil {
			exposed[name[1]] = true
		}
	}
	names := metricName.FindAllString(text, -1)
	require.NotEmpty(t, names)
	for _, name := range names {
		require.True(t, exposed[name] || exposed[suffix.ReplaceAllString(name, "")], "nobody exposes %s", name)
	}
}

func TestAPrometheusAnswersEveryPanel(t *testing.T) {
	target, registry := service(t)
	s := scrape(t, target)
	s.await(t, `rate(pooldriver_hold_seconds_count[1m])`)
	for _, expression := range expressions(t) {
		requireExposed(t, registry, expression)
		samples, err := s.query(expression)
		require.NoError(t, err)
		if !strings.HasSuffix(expression, "> 0") && !ofHosts.MatchString(expression) { // which shows what has happened only, or replicas
			require.NotEmpty(t, samples, expression)
		}
	}
}
