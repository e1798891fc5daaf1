package otelpooldriver_test

import (
	"context"
	"database/sql"
	"os"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/metric"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/semconv/v1.43.0/dbconv"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/otelpooldriver"
)

// All metrics of a pool, by a periodic reader.
func Example() {
	connector := pooldriver.New(os.Getenv("DSN"))
	db := sql.OpenDB(connector)
	defer db.Close()

	exporter, err := stdoutmetric.New() // or otlpmetricgrpc.New(ctx)
	if err != nil {
		panic(err)
	}
	reader := sdkmetric.NewPeriodicReader(exporter, sdkmetric.WithProducer(otelpooldriver.NewProducer(connector)))
	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(reader))
	defer func() { _ = provider.Shutdown(context.Background()) }()
	if _, err := otelpooldriver.Register(connector, otelpooldriver.WithMeterProvider(provider)); err != nil {
		panic(err)
	}
}

// Recording each wait with the SDK, where the program cannot add a Producer to its reader.
func Example_observer() {
	wait, err := dbconv.NewClientConnectionWaitTime(otel.Meter("example.com/shop"))
	if err != nil {
		panic(err)
	}
	shop := metric.WithAttributeSet(attribute.NewSet(semconv.DBClientConnectionPoolName("shop")))
	connector := pooldriver.New(os.Getenv("DSN"), func(c *pooldriver.Config) {
		c.Observer = &pooldriver.Observer{
			AcquireDone: func(ctx context.Context, i pooldriver.AcquireInfo) {
				wait.Inst().Record(ctx, i.Wait.Seconds(), shop)
			},
		}
	})
	db := sql.OpenDB(connector)
	defer db.Close()
}
