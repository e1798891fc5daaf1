package prompooldriver

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a pool of two connections on a database in memory, closed when the test ends.
func open(t *testing.T) (*pooldriver.Connector, *sql.DB) {
	t.Helper()
	c := pooldriver.Wrap(stubdialect.Connector(stubdialect.New(dialects.Traits{})), func(c *pooldriver.Config) {
		c.MaxConns, c.AcquireTimeout = 2, 500*time.Millisecond // a busy machine dials in time
	})
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return c, db
}

// use runs statements, one of which waits in vain while two connections are held.
func use(t *testing.T, db *sql.DB) {
	t.Helper()
	ctx := t.Context()
	_, err := db.ExecContext(ctx, "CREATE TABLE t (n INT)")
	require.NoError(t, err)
	first, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	second, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	_, err = db.ExecContext(ctx, "SELECT 1")
	require.ErrorContains(t, err, "pooldriver")
	require.NoError(t, first.Rollback())
	require.NoError(t, second.Rollback())
}

func TestNamesAndTextsAreAsPromlintWantsThem(t *testing.T) {
	c, _ := open(t)
	problems, err := testutil.CollectAndLint(NewCollector(c, "shop"))
	require.NoError(t, err)
	require.Empty(t, problems)
}

func TestEveryMetricIsDescribedAndEveryDescriptionIsAMetric(t *testing.T) {
	c := pooldriver.New("postgres://app@db.invalid/shop?pool_replicas=db2.invalid:5432,db3.invalid:5432")
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(c, ""))
	families, err := registry.Gather()
	require.NoError(t, err)
	require.Len(t, families, len(NewCollector(c, "").(*collector).all)-3, "the lag of a replica is not known yet, no label has arrived, and no statement has failed")
	for _, f := range families {
		for _, m := range f.Metric {
			labels := map[string]string{}
			for _, l := range m.Label {
				labels[l.GetName()] = l.GetValue()
			}
			require.Equal(t, c.Target(), labels["pool"])
		}
	}
}

func TestTheValuesAreThoseOfThePool(t *testing.T) {
	c, db := open(t)
	use(t, db)
	held, err := db.Conn(t.Context())
	require.NoError(t, err)
	defer held.Close()
	require.NoError(t, held.PingContext(t.Context()))

	require.NoError(t, testutil.CollectAndCompare(NewCollector(c, "shop"), strings.NewReader(`
# HELP pooldriver_acquire_failures_total Statements that got no connection, by reason.
# TYPE pooldriver_acquire_failures_total counter
pooldriver_acquire_failures_total{pool="shop",reason="breaker_open"} 0
pooldriver_acquire_failures_total{pool="shop",reason="cancelled"} 0
pooldriver_acquire_failures_total{pool="shop",reason="closed"} 0
pooldriver_acquire_failures_total{pool="shop",reason="deadlock"} 0
pooldriver_acquire_failures_total{pool="shop",reason="dial_failed"} 0
pooldriver_acquire_failures_total{pool="shop",reason="gave_up"} 0
pooldriver_acquire_failures_total{pool="shop",reason="overloaded"} 0
pooldriver_acquire_failures_total{pool="shop",reason="queue_full"} 0
pooldriver_acquire_failures_total{pool="shop",reason="timeout"} 1
# HELP pooldriver_connections Connections to the database, by state.
# TYPE pooldriver_connections gauge
pooldriver_connections{pool="shop",state="idle"} 1
pooldriver_connections{pool="shop",state="used"} 1
# HELP pooldriver_connections_max Most connections at a time.
# TYPE pooldriver_connections_max gauge
pooldriver_connections_max{pool="shop"} 2
# HELP pooldriver_waiters Statements that wait for a connection.
# TYPE pooldriver_waiters gauge
pooldriver_waiters{pool="shop"} 0
`), "pooldriver_acquire_failures_total", "pooldriver_connections", "pooldriver_connections_max", "pooldriver_waiters"))
}

func TestTheVerdictIsAFigure(t *testing.T) {
	c, db := open(t)
	require.NoError(t, testutil.CollectAndCompare(NewCollector(c, "shop"), strings.NewReader(`
# HELP pooldriver_verdict The rows of the inspector's table that apply now, by name: 2 is bad, 1 is busy, 0 is calm.
# TYPE pooldriver_verdict gauge
pooldriver_verdict{pool="shop",rule="well"} 0
`), "pooldriver_verdict"))
	use(t, db)
	require.NoError(t, testutil.CollectAndCompare(NewCollector(c, "shop"), strings.NewReader(`
# HELP pooldriver_verdict The rows of the inspector's table that apply now, by name: 2 is bad, 1 is busy, 0 is calm.
# TYPE pooldriver_verdict gauge
pooldriver_verdict{pool="shop",rule="failed"} 1
`), "pooldriver_verdict"))
}

func TestBucketsCountWhatIsInTheLowerOnes(t *testing.T) {
	c, db := open(t)
	use(t, db)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(c, ""))
	families, err := registry.Gather()
	require.NoError(t, err)
	counts := map[string]uint64{}
	for _, f := range families {
		h := f.Metric[0].Histogram
		if h == nil {
			continue
		}
		counts[f.GetName()] = h.GetSampleCount()
		require.Len(t, h.Bucket, len(pooldriver.HistogramBounds()))
		var last uint64
		for _, b := range h.Bucket {
			require.GreaterOrEqual(t, b.GetCumulativeCount(), last)
			last = b.GetCumulativeCount()
		}
		require.Equal(t, h.GetSampleCount(), last, "nothing took more than a minute")
	}
	require.Equal(t, map[string]uint64{
		"pooldriver_acquire_wait_seconds": 4, "pooldriver_dial_seconds": 2,
		"pooldriver_hold_seconds": 3, "pooldriver_idle_pinned_seconds": 3, "pooldriver_replica_wait_seconds": 0,
	}, counts)
}

func TestPoolsWithNamesStandSideBySide(t *testing.T) {
	a, _ := open(t)
	b, _ := open(t)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(NewCollector(a, "a")))
	require.NoError(t, registry.Register(NewCollector(b, "b")))
	require.ErrorAs(t, registry.Register(NewCollector(b, "b")), new(prometheus.AlreadyRegisteredError))
	_, err := registry.Gather()
	require.NoError(t, err)
}

func TestNoSecretIsExposed(t *testing.T) {
	c := pooldriver.New("postgres://app:hunter2@db.invalid/shop")
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(c, ""))
	families, err := registry.Gather()
	require.NoError(t, err)
	text := fmt.Sprint(families)
	require.Contains(t, text, "postgres app@db.invalid:5432/shop")
	require.NotContains(t, text, "hunter2")
}

// BenchmarkScrape is what a scrape costs; docs/performance.md.
func BenchmarkScrape(b *testing.B) {
	c := pooldriver.Wrap(stubdialect.Connector(stubdialect.New(dialects.Traits{})))
	db := sql.OpenDB(c)
	b.Cleanup(func() { require.NoError(b, db.Close()) })
	require.NoError(b, db.Ping())
	for name, collector := range map[string]prometheus.Collector{
		"pooldriver":              NewCollector(c, "shop"),
		"client_golang's DBStats": collectors.NewDBStatsCollector(db, "shop"),
	} {
		b.Run(name, func(b *testing.B) {
			registry := prometheus.NewPedanticRegistry()
			registry.MustRegister(collector)
			for b.Loop() {
				if _, err := registry.Gather(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// A reason of Stats that is no label is one that nobody sees.
func TestEveryReasonOfStatsIsALabel(t *testing.T) {
	c, _ := open(t)
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(NewCollector(c, "shop"))
	families, err := registry.Gather()
	require.NoError(t, err)
	shown := map[string][]string{}
	for _, f := range families {
		for _, m := range f.Metric {
			for _, l := range m.Label {
				if l.GetName() == "reason" {
					shown[f.GetName()] = append(shown[f.GetName()], l.GetValue())
				}
			}
		}
	}
	s := c.Stats()
	require.Len(t, shown["pooldriver_connections_closed_total"], len(s.Closed))
	require.Len(t, shown["pooldriver_acquire_failures_total"], len(s.AcquireFailures))
	for why := range s.Closed {
		require.Contains(t, shown["pooldriver_connections_closed_total"], string(why))
	}
	for why := range s.AcquireFailures {
		require.Contains(t, shown["pooldriver_acquire_failures_total"], string(why))
	}
}
