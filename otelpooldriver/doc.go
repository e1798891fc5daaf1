// Package otelpooldriver gives the figures of a pooldriver.Connector to OpenTelemetry.
//
//	connector := pooldriver.New(dsn)
//	provider := sdkmetric.NewMeterProvider(sdkmetric.WithReader(
//		sdkmetric.NewPeriodicReader(exporter,
//			sdkmetric.WithProducer(otelpooldriver.NewProducer(connector)))))
//	_, err := otelpooldriver.Register(connector, otelpooldriver.WithMeterProvider(provider))
//
// The metrics db.client.connection.* are those of OpenTelemetry's semantic conventions
// for the connection pools of database clients, in the version of [SchemaURL]. Metrics
// whose names begin with pooldriver. are our own.
//
// [Register] makes the asynchronous instruments: counts of connections, of waiting
// statements and of events. It needs only OpenTelemetry's API.
//
// [NewProducer] makes the histograms of durations: create_time, wait_time, use_time and
// our idle_pinned_time. OpenTelemetry's API has no asynchronous histogram, so a duration
// must either be recorded when it ends, or be handed to the SDK in buckets that are
// already counted. A Connector counts its durations in buckets anyway, for
// pooldriver.Stats. The Producer hands these over at each collection. So a statement pays
// nothing for metrics, and every exporter that belongs to a reader of the SDK gets the
// histograms. If the SDK recorded the wait and the use of each checkout, a statement would pay
// about 0.6 µs and two allocations (BenchmarkRecordingInstead).
//
// Views of the SDK do not apply to the histograms of a Producer. A program that has no access to
// its readers, or needs other buckets, can record in pooldriver.Config.Observer: see the example
// Observer.
//
// Traces are not made here: github.com/XSAM/otelsql makes them and works above a Connector.
package otelpooldriver
