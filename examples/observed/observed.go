package main

import (
	"context"
	"database/sql"
	"errors"
	"io"
	"net/http"
	"net/http/pprof"

	"github.com/XSAM/otelsql"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/httptask"
	"github.com/pooldriver/pooldriver/inspect"
	"github.com/pooldriver/pooldriver/prompooldriver"
)

// database is a *sql.DB with a pool below it and traces above it.
type database struct {
	db        *sql.DB
	connector *pooldriver.Connector
	tracer    *trace.TracerProvider
}

// open puts otelsql above the pool: a span is what a statement is for the program, with
// its wait for a connection.
func open(dsn string, spans io.Writer) (*database, error) {
	exporter, err := stdouttrace.New(stdouttrace.WithWriter(spans))
	if err != nil {
		return nil, err
	}
	tracer := trace.NewTracerProvider(trace.WithBatcher(exporter))
	connector := pooldriver.New(dsn)
	db := otelsql.OpenDB(connector, otelsql.WithTracerProvider(tracer),
		otelsql.WithSpanOptions(otelsql.SpanOptions{OmitConnResetSession: true, OmitRows: true}))
	return &database{db, connector, tracer}, nil
}

func (d *database) close() error {
	return errors.Join(d.db.Close(), d.tracer.Shutdown(context.Background()))
}

// routes are the service and what shows its pool. Each request of the service is a task,
// which has its route as label.
func routes(s *shop, connector *pooldriver.Connector) http.Handler {
	all := http.NewServeMux()
	for route, handler := range map[string]http.HandlerFunc{
		"GET /stock": s.stock, "POST /order": s.order, "GET /report": s.report,
	} {
		all.Handle(route, httptask.Middleware(handler, httptask.Join))
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(
		prompooldriver.NewCollector(connector, "shop"),
		collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	)
	all.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
	all.Handle("/debug/pool", inspect.Handler(connector))
	all.Handle("/debug/pprof/pooldriver", inspect.Profile(connector))
	all.HandleFunc("/debug/pprof/", pprof.Index)
	all.HandleFunc("/debug/pprof/profile", pprof.Profile)
	return all
}
