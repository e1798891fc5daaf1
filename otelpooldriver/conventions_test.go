package otelpooldriver

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/dbconv"
)

// The types of package dbconv are the conventions: with their own constructors each makes
// the instrument that it describes, so kind, name, unit and text are asked of them.
func TestMetricsAreThoseOfTheSemanticConventions(t *testing.T) {
	c, db := open(t)
	reader := instrument(t, c, WithPoolName("shop"))
	use(t, db)
	ours := collect(t, reader)

	model := sdkmetric.NewManualReader()
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(model))
	useConventions(t, provider.Meter(ScopeName, metric.WithSchemaURL(semconv.SchemaURL)), "shop")
	want := collect(t, model)
	require.Len(t, want, 9)

	for name, w := range want {
		m, ok := ours[name]
		require.True(t, ok, "missing: %s", name)
		require.Equal(t, w.Unit, m.Unit, name)
		require.Equal(t, w.Description, m.Description, name)
		require.Equal(t, shape(w), shape(m), name)
	}
	for name := range ours {
		require.True(t, strings.HasPrefix(name, "pooldriver.") || want[name].Name != "", "%s is neither a convention nor ours", name)
	}
}

// useConventions gives every synchronous instrument of the conventions for connection
// pools a value. A synchronous and an asynchronous instrument of one kind look alike to a
// reader.
func useConventions(t *testing.T, meter metric.Meter, pool string) {
	ctx := t.Context()
	count, err := dbconv.NewClientConnectionCount(meter)
	require.NoError(t, err)
	count.Add(ctx, 1, pool, dbconv.ClientConnectionStateIdle)
	count.Add(ctx, 1, pool, dbconv.ClientConnectionStateUsed)
	for _, make := range []func() (any, error){
		func() (any, error) { return dbconv.NewClientConnectionIdleMax(meter) },
		func() (any, error) { return dbconv.NewClientConnectionIdleMin(meter) },
		func() (any, error) { return dbconv.NewClientConnectionMax(meter) },
		func() (any, error) { return dbconv.NewClientConnectionPendingRequests(meter) },
		func() (any, error) { return dbconv.NewClientConnectionTimeouts(meter) },
		func() (any, error) { return dbconv.NewClientConnectionCreateTime(meter) },
		func() (any, error) { return dbconv.NewClientConnectionWaitTime(meter) },
		func() (any, error) { return dbconv.NewClientConnectionUseTime(meter) },
	} {
		i, err := make()
		require.NoError(t, err)
		switch i := i.(type) {
		case interface {
			Add(context.Context, int64, string, ...attribute.KeyValue)
		}:
			i.Add(ctx, 1, pool)
		case interface {
			Record(context.Context, float64, string, ...attribute.KeyValue)
		}:
			i.Record(ctx, 1, pool)
		default:
			require.Fail(t, "unknown kind", "%T", i)
		}
	}
}

// kind is what a reader sees of an instrument but its values.
type kind struct {
	data        reflect.Type
	monotonic   bool
	temporality metricdata.Temporality
	attributes  []string
}

func shape(m metricdata.Metrics) kind {
	k := kind{data: reflect.TypeOf(m.Data)}
	encode := func(s attribute.Set) { k.attributes = append(k.attributes, s.Encoded(attribute.DefaultEncoder())) }
	switch d := m.Data.(type) {
	case metricdata.Sum[int64]:
		k.monotonic, k.temporality = d.IsMonotonic, d.Temporality
		for _, p := range d.DataPoints {
			encode(p.Attributes)
		}
	case metricdata.Histogram[float64]:
		k.temporality = d.Temporality
		for _, p := range d.DataPoints {
			encode(p.Attributes)
		}
	}
	slices.Sort(k.attributes)
	return k
}
