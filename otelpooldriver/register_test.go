package otelpooldriver

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.uber.org/goleak"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open opens a pool of two connections on a database in memory, closed when the test ends.
func open(t testing.TB, options ...pooldriver.Option) (*pooldriver.Connector, *sql.DB) {
	t.Helper()
	size := func(c *pooldriver.Config) { c.MaxConns, c.MinIdleConns, c.AcquireTimeout = 2, 1, 500*time.Millisecond }
	c := pooldriver.Wrap(stubdialect.Connector(stubdialect.New(dialects.Traits{})), append([]pooldriver.Option{size}, options...)...)
	db := sql.OpenDB(c)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	return c, db
}

// collect returns all metrics of a reader by name.
func collect(t *testing.T, reader sdkmetric.Reader) map[string]metricdata.Metrics {
	t.Helper()
	var all metricdata.ResourceMetrics
	require.NoError(t, reader.Collect(t.Context(), &all))
	byName := map[string]metricdata.Metrics{}
	for _, s := range all.ScopeMetrics {
		require.Equal(t, ScopeName, s.Scope.Name)
		require.Equal(t, SchemaURL, s.Scope.SchemaURL)
		for _, m := range s.Metrics {
			require.NotContains(t, byName, m.Name)
			byName[m.Name] = m
		}
	}
	return byName
}

// instrument makes a provider with a manual reader, and gives it all of c.
func instrument(t *testing.T, c *pooldriver.Connector, options ...Option) *sdkmetric.ManualReader {
	t.Helper()
	reader := sdkmetric.NewManualReader(sdkmetric.WithProducer(NewProducer(c, options...)))
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	t.Cleanup(func() { require.NoError(t, provider.Shutdown(context.Background())) })
	r, err := Register(c, append(options, WithMeterProvider(provider))...)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, r.Unregister()) })
	return reader
}

func histogramOf(t *testing.T, m map[string]metricdata.Metrics, name string) metricdata.HistogramDataPoint[float64] {
	t.Helper()
	h, ok := m[name].Data.(metricdata.Histogram[float64])
	require.True(t, ok, name)
	require.Len(t, h.DataPoints, 1)
	p := h.DataPoints[0]
	require.Len(t, p.BucketCounts, len(p.Bounds)+1)
	require.IsIncreasing(t, p.Bounds)
	var sum uint64
	for _, n := range p.BucketCounts {
		sum += n
	}
	require.Equal(t, p.Count, sum)
	require.False(t, p.StartTime.IsZero())
	require.False(t, p.Time.Before(p.StartTime))
	return p
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

// The values are those of a pool of which one knows what it has done.
func TestTheValuesAreThoseOfThePool(t *testing.T) {
	c, db := open(t)
	reader := instrument(t, c)
	use(t, db)
	held, err := db.Conn(t.Context())
	require.NoError(t, err)
	require.NoError(t, held.PingContext(t.Context()))
	m := collect(t, reader)
	require.NoError(t, held.Close())

	pool := semconv.DBClientConnectionPoolName(c.Target())
	value := func(name string, more ...attribute.KeyValue) int64 {
		t.Helper()
		sum, ok := m[name].Data.(metricdata.Sum[int64])
		require.True(t, ok, name)
		set := attribute.NewSet(append(more, pool)...)
		for _, p := range sum.DataPoints {
			if p.Attributes.Equals(&set) {
				return p.Value
			}
		}
		require.Fail(t, "no such attributes", name)
		return 0
	}
	require.EqualValues(t, 1, value("db.client.connection.count", semconv.DBClientConnectionStateUsed))
	require.EqualValues(t, 1, value("db.client.connection.count", semconv.DBClientConnectionStateIdle))
	require.EqualValues(t, 2, value("db.client.connection.max"))
	require.EqualValues(t, 2, value("db.client.connection.idle.max"))
	require.EqualValues(t, 1, value("db.client.connection.idle.min"))
	require.EqualValues(t, 0, value("db.client.connection.pending_requests"))
	require.EqualValues(t, 1, value("db.client.connection.timeouts"))
	require.EqualValues(t, 0, value("pooldriver.connection.closed", ReasonKey.String("lost")))
	require.EqualValues(t, 0, value("pooldriver.breaker.open"))
	gauge := m["pooldriver.connection.longest_hold"].Data.(metricdata.Gauge[float64])
	require.Positive(t, gauge.DataPoints[0].Value)

	wait := histogramOf(t, m, "db.client.connection.wait_time")
	require.EqualValues(t, 5, wait.Count) // CREATE, two transactions, one in vain, the ping
	require.GreaterOrEqual(t, wait.Sum, 0.02)
	create := histogramOf(t, m, "db.client.connection.create_time")
	require.EqualValues(t, 2, create.Count)
	require.Positive(t, create.Sum)
	hold := histogramOf(t, m, "db.client.connection.use_time")
	require.EqualValues(t, 3, hold.Count)
	require.GreaterOrEqual(t, hold.Sum, 0.02) // the first transaction waited for the third
	require.EqualValues(t, 3, histogramOf(t, m, "pooldriver.connection.idle_pinned_time").Count)
}

func TestUnregisterEndsIt(t *testing.T) {
	c, _ := open(t)
	reader := sdkmetric.NewManualReader()
	r, err := Register(c, WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))))
	require.NoError(t, err)
	require.NotEmpty(t, collect(t, reader))
	require.NoError(t, r.Unregister())
	require.Empty(t, collect(t, reader))
}

func TestTwoPoolsAreTold(t *testing.T) {
	a, _ := open(t)
	b, _ := open(t)
	reader := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	for name, c := range map[string]*pooldriver.Connector{"a": a, "b": b} {
		_, err := Register(c, WithMeterProvider(provider), WithPoolName(name))
		require.NoError(t, err)
	}
	most := collect(t, reader)["db.client.connection.max"].Data.(metricdata.Sum[int64])
	require.Len(t, most.DataPoints, 2)
}

func TestAMistakeInTheDSNIsReported(t *testing.T) {
	c := pooldriver.New("postgres://db.invalid/x?pool_max_cons=3")
	_, err := Register(c)
	require.ErrorContains(t, err, "did you mean pool_max_conns")
	_, err = NewProducer(c).Produce(t.Context())
	require.NoError(t, err)
}

// A whole pipeline, as programs have it: a periodic reader and an exporter.
func TestAnExporterGetsAllMetrics(t *testing.T) {
	c, db := open(t)
	var out bytes.Buffer
	exporter, err := stdoutmetric.New(stdoutmetric.WithWriter(&out))
	require.NoError(t, err)
	reader := sdkmetric.NewPeriodicReader(exporter, sdkmetric.WithInterval(time.Hour), sdkmetric.WithProducer(NewProducer(c)))
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	_, err = Register(c, WithMeterProvider(provider))
	require.NoError(t, err)
	use(t, db)
	require.NoError(t, provider.Shutdown(context.Background())) // exports a last time

	var exported struct {
		ScopeMetrics []struct {
			Metrics []struct {
				Name string
				Data struct {
					DataPoints []struct{ Count uint64 }
				}
			}
		}
	}
	require.NoError(t, json.NewDecoder(&out).Decode(&exported))
	counts := map[string]uint64{}
	for _, s := range exported.ScopeMetrics {
		for _, m := range s.Metrics {
			require.NotEmpty(t, m.Data.DataPoints, m.Name)
			counts[m.Name] = m.Data.DataPoints[0].Count
		}
	}
	require.Contains(t, counts, "db.client.connection.count")
	require.EqualValues(t, 4, counts["db.client.connection.wait_time"])
	require.EqualValues(t, 3, counts["db.client.connection.use_time"])
}

// The password is nowhere in what is exported, and the name of the pool says which it is.
func TestNoSecretIsExported(t *testing.T) {
	c := pooldriver.New("postgres://app:hunter2@db.invalid/shop")
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	text := fmt.Sprintf("%+v", collect(t, instrument(t, c)))
	require.Contains(t, text, "postgres app@db.invalid:5432/shop")
	require.NotContains(t, text, "hunter2")
}

// A reason of Stats that is no attribute is one that nobody sees.
func TestEveryReasonOfStatsIsAnAttribute(t *testing.T) {
	c, _ := open(t)
	metrics, s := collect(t, instrument(t, c)), c.Stats()
	shown := func(name string, key attribute.Key) (values []string) {
		for _, p := range metrics[name].Data.(metricdata.Sum[int64]).DataPoints {
			value, _ := p.Attributes.Value(key)
			values = append(values, value.AsString())
		}
		return values
	}
	closed, failed := shown("pooldriver.connection.closed", ReasonKey), shown("pooldriver.acquire.failures", FailureKey)
	require.Len(t, closed, len(s.Closed))
	require.Len(t, failed, len(s.AcquireFailures))
	for why := range s.Closed {
		require.Contains(t, closed, string(why))
	}
	for why := range s.AcquireFailures {
		require.Contains(t, failed, string(why))
	}
}
