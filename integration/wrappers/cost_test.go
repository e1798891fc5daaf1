package wrappers

import (
	"context"
	"database/sql"
	"testing"

	"github.com/XSAM/otelsql"
	"github.com/stretchr/testify/require"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

// BenchmarkSeeingIn is the price of what shows the pool, for a statement on a driver that
// does nothing; docs/performance.md.
func BenchmarkSeeingIn(b *testing.B) {
	null := fakedb.NullConnector{Rows: 1}
	ours := func(options ...pooldriver.Option) *sql.DB {
		return sql.OpenDB(pooldriver.Wrap(null, append(options, quiet, limit(4))...))
	}
	reader := sdkmetric.NewManualReader()
	meters := otelsql.WithMeterProvider(sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader)))
	sampled := func(share float64) otelsql.Option {
		return otelsql.WithTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.TraceIDRatioBased(share))))
	}
	for _, c := range []struct {
		name string
		db   *sql.DB
	}{
		{"plain", sql.OpenDB(null)},
		{"plain, otelsql's metrics", otelsql.OpenDB(null, meters, sampled(0))},
		{"plain, otelsql's metrics and spans", otelsql.OpenDB(null, meters, sampled(1))},
		{"pooldriver, SampleStacks 0", ours(func(c *pooldriver.Config) { c.SampleStacks = 0 })},
		{"pooldriver", ours()},
		{"pooldriver, SampleStacks 1", ours(func(c *pooldriver.Config) { c.SampleStacks = 1 })},
		{"pooldriver, an Observer", ours(func(c *pooldriver.Config) {
			c.Observer = &pooldriver.Observer{
				AcquireDone: func(context.Context, pooldriver.AcquireInfo) {},
				ReleaseDone: func(pooldriver.ReleaseInfo) {},
			}
		})},
	} {
		b.Cleanup(func() { require.NoError(b, c.db.Close()) })
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.db.ExecContext(b.Context(), "UPDATE t SET a = 1"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
