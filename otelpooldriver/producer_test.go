package otelpooldriver

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/dbconv"
)

// The boundaries that the conventions advise are among ours.
func TestTheBoundariesContainThoseOfTheConventions(t *testing.T) {
	c, _ := open(t)
	bounds := NewProducer(c).bounds
	for _, advised := range []float64{0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1, 5, 10} {
		require.Contains(t, bounds, advised)
	}
}

func TestACumulativeProducerCountsFromItsBeginning(t *testing.T) {
	c, db := open(t)
	require.NoError(t, db.Ping())
	reader := sdkmetric.NewManualReader(sdkmetric.WithProducer(NewProducer(c)))
	sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	require.Zero(t, histogramOf(t, collect(t, reader), "db.client.connection.wait_time").Count)
	for want := uint64(1); want <= 2; want++ {
		require.NoError(t, db.Ping())
		require.Equal(t, want, histogramOf(t, collect(t, reader), "db.client.connection.wait_time").Count)
	}
}

func TestADeltaProducerCountsFromItsLastCollection(t *testing.T) {
	c, db := open(t)
	reader := sdkmetric.NewManualReader(sdkmetric.WithProducer(NewProducer(c, WithDeltaTemporality())))
	sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	var last time.Time
	for range 2 {
		require.NoError(t, db.Ping())
		m := collect(t, reader)
		require.Equal(t, metricdata.DeltaTemporality, m["db.client.connection.wait_time"].Data.(metricdata.Histogram[float64]).Temporality)
		p := histogramOf(t, m, "db.client.connection.wait_time")
		require.EqualValues(t, 1, p.Count)
		if !last.IsZero() {
			require.Equal(t, last, p.StartTime)
		}
		last = p.Time
	}
	require.Zero(t, histogramOf(t, collect(t, reader), "db.client.connection.wait_time").Count)
}

// What a Producer saves: a statement outside of a transaction would record its wait and
// its use.
func BenchmarkRecordingInstead(b *testing.B) {
	meter := sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader())).Meter(ScopeName)
	wait, err := dbconv.NewClientConnectionWaitTime(meter)
	require.NoError(b, err)
	use, err := dbconv.NewClientConnectionUseTime(meter)
	require.NoError(b, err)
	with := metric.WithAttributeSet(attribute.NewSet(semconv.DBClientConnectionPoolName("shop")))
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		wait.Inst().Record(ctx, 0, with)
		use.Inst().Record(ctx, 0.001, with)
	}
}
