package main

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/pooldriver/pooldriver"
)

// shop is the service: it sells one article.
type shop struct{ db *sql.DB }

func newShop(ctx context.Context, db *sql.DB) (*shop, error) {
	for _, statement := range []string{
		"DROP TABLE IF EXISTS observed_stock",
		"CREATE TABLE observed_stock (article INTEGER PRIMARY KEY, pieces INTEGER NOT NULL)",
		"INSERT INTO observed_stock VALUES (1, 1000000)",
	} {
		if _, err := db.ExecContext(pooldriver.Label(ctx, "set-up"), statement); err != nil {
			return nil, err
		}
	}
	return &shop{db}, nil
}

func (s *shop) drop() {
	_, _ = s.db.ExecContext(context.Background(), "DROP TABLE IF EXISTS observed_stock")
}

// stock answers with the number of pieces.
func (s *shop) stock(w http.ResponseWriter, r *http.Request) {
	pieces, err := s.pieces(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, pieces)
}

func (s *shop) pieces(ctx context.Context) (pieces int, err error) {
	err = s.db.QueryRowContext(ctx, "SELECT pieces FROM observed_stock WHERE article = 1").Scan(&pieces)
	return pieces, err
}

// order sells a piece.
func (s *shop) order(w http.ResponseWriter, r *http.Request) {
	tx, err := s.db.BeginTx(r.Context(), nil)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer tx.Rollback()
	res, err := tx.ExecContext(r.Context(), "UPDATE observed_stock SET pieces = pieces - 1 WHERE article = 1")
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	if n, err := res.RowsAffected(); err != nil || n != 1 {
		http.Error(w, "no such article", http.StatusNotFound)
		return
	}
	if err := tx.Commit(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.WriteHeader(http.StatusCreated)
}

// report makes a mistake that is often made: it does something else while its connection
// is held, here by a *sql.Conn. The parameter for is how long.
func (s *shop) report(w http.ResponseWriter, r *http.Request) {
	wait, err := time.ParseDuration(r.URL.Query().Get("for"))
	if err != nil {
		wait = time.Second
	}
	conn, err := s.db.Conn(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer conn.Close()
	rows, err := conn.QueryContext(r.Context(), "SELECT pieces FROM observed_stock")
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer rows.Close()
	for rows.Next() {
		select {
		case <-time.After(wait): // draws a chart, calls another service
		case <-r.Context().Done():
			return
		}
	}
	if err := rows.Err(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	fmt.Fprintln(w, "done")
}

// visit uses the service until ctx ends.
func visit(ctx context.Context, base string) {
	for ctx.Err() == nil {
		get(ctx, http.MethodGet, base+"/stock")
		get(ctx, http.MethodPost, base+"/order")
		get(ctx, http.MethodGet, base+"/report?for=100ms")
	}
}

func get(ctx context.Context, method, url string) {
	r, err := http.NewRequestWithContext(ctx, method, url, nil)
	if err != nil {
		return
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		return
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body)
}
