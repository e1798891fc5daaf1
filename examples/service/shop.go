package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver"
)

// shop is what the service serves.
type shop struct {
	connector *pooldriver.Connector
	db        *sql.DB
	leaving   atomic.Bool // it is about to end
	last      atomic.Int64
	heard     atomic.Int64  // notifications
	archived  chan struct{} // closed when archive has returned
	listened  chan struct{} // closed when listen has returned
}

func openShop(ctx context.Context, dsn string) (*shop, error) {
	connector := pooldriver.New(dsn, func(c *pooldriver.Config) {
		c.MaxConns, c.LeakAfter = 5, time.Minute
	})
	s := &shop{connector: connector, db: sql.OpenDB(connector), archived: make(chan struct{}), listened: make(chan struct{})}
	s.last.Store(time.Now().UnixMicro())
	if _, err := s.db.ExecContext(ctx, "CREATE TABLE IF NOT EXISTS service_orders (id bigint NOT NULL, archived integer NOT NULL)"); err != nil {
		return nil, errors.Join(err, s.db.Close())
	}
	return s, nil
}

func (s *shop) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.takeOrder)
	mux.HandleFunc("GET /orders", s.countOrders)
	mux.HandleFunc("GET /readyz", s.readyz)
	return mux
}

// readyz is the readiness probe. Liveness needs no database: restarting the service does
// not repair a server.
func (s *shop) readyz(w http.ResponseWriter, r *http.Request) {
	if s.leaving.Load() {
		http.Error(w, "shutting down", http.StatusServiceUnavailable)
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), time.Second)
	defer cancel()
	if err := s.connector.Ready(ctx); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
	}
}

func (s *shop) takeOrder(w http.ResponseWriter, r *http.Request) {
	id := s.last.Add(1)
	if payment, err := time.ParseDuration(r.FormValue("payment")); err == nil {
		time.Sleep(payment)
	}
	err := pooldriver.InTx(r.Context(), s.db, nil, func(ctx context.Context, _ *sql.Tx) error {
		n, err := s.change(ctx, fmt.Sprintf("INSERT INTO service_orders VALUES (%d, 0)", id))
		if err == nil && n != 1 {
			err = fmt.Errorf("%d orders are stored", n)
		}
		return err
	}, pooldriver.Retry{})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// change executes a text in the transaction of ctx, whose context is enough: s.db joins it.
func (s *shop) change(ctx context.Context, text string) (rows int64, err error) {
	res, err := s.db.ExecContext(ctx, text)
	if err != nil {
		return 0, err
	}
	time.Sleep(5 * time.Millisecond) // other work
	return res.RowsAffected()
}

func (s *shop) countOrders(w http.ResponseWriter, r *http.Request) {
	var n int
	if err := s.db.QueryRowContext(r.Context(), "SELECT count(*) FROM service_orders").Scan(&n); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	fmt.Fprintln(w, n)
}

// archive works behind the requests, and ends when the connector drains.
func (s *shop) archive() {
	defer close(s.archived)
	for {
		err := pooldriver.InTx(context.Background(), s.db, nil, func(ctx context.Context, _ *sql.Tx) error {
			_, err := s.change(ctx, "UPDATE service_orders SET archived = 1 WHERE archived = 0")
			return err
		}, pooldriver.Retry{})
		switch {
		case errors.Is(err, pooldriver.ErrClosed):
			return // it had not begun
		case err != nil:
			slog.Error("archive", "error", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// listen hears of orders that others have taken, until the connector drains. Only PostgreSQL has notifications.
func (s *shop) listen() {
	defer close(s.listened)
	if !strings.HasPrefix(s.connector.Target(), "postgres") {
		return
	}
	err := s.connector.Listen(context.Background(), "service_orders", func(context.Context, pooldriver.Notification) { s.heard.Add(1) })
	if !errors.Is(err, pooldriver.ErrClosed) {
		slog.Warn("listen", "error", err)
	}
}
