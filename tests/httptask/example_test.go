package httptask_test

import (
	"database/sql"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
	"github.com/pooldriver/pooldriver/httptask"
)

// A handler returns in the middle of its transaction. The request's task, which
// it knows nothing of, has rolled it back when the client has its answer.
func ExampleMiddleware() {
	db := sql.OpenDB(pooldriver.New(":memory:?pool_max_conns=1", func(c *pooldriver.Config) {
		c.Logger = slog.New(slog.DiscardHandler) // it would warn
	}))
	defer db.Close()
	if _, err := db.Exec("create table orders (item text)"); err != nil {
		panic(err)
	}

	order := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tx, err := db.BeginTx(r.Context(), nil)
		if err != nil {
			http.Error(w, "no database", http.StatusInternalServerError)
			return
		}
		if _, err := tx.ExecContext(r.Context(), "insert into orders values (?)", r.FormValue("item")); err != nil {
			http.Error(w, "no order", http.StatusInternalServerError)
			return
		}
		if r.FormValue("item") == "soap" {
			http.Error(w, "sold out", http.StatusConflict)
			return // and the transaction?
		}
		if err := tx.Commit(); err != nil {
			http.Error(w, "no order", http.StatusInternalServerError)
		}
	})
	server := httptest.NewServer(httptask.Middleware(order))
	defer server.Close()

	for _, item := range []string{"soap", "towel"} {
		response, err := server.Client().Post(server.URL+"?item="+item, "", nil)
		if err != nil {
			panic(err)
		}
		response.Body.Close()
		var orders int
		if err := db.QueryRow("select count(*) from orders").Scan(&orders); err != nil {
			panic(err)
		}
		fmt.Println(item, response.StatusCode, orders)
	}
	// Output:
	// soap 409 0
	// towel 200 1
}

// A middleware between the task and the ServeMux hides the routes. The program asks the ServeMux
// itself.
func ExampleMiddlewareWith() {
	connector := pooldriver.New(":memory:")
	db := sql.OpenDB(connector)
	defer db.Close()

	mux := http.NewServeMux()
	mux.HandleFunc("GET /orders/{id}", func(_ http.ResponseWriter, r *http.Request) {
		conn, err := db.Conn(r.Context())
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		if err := conn.PingContext(r.Context()); err != nil {
			panic(err)
		}
		fmt.Println(connector.Holders()[0].Label)
	})
	logging := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) })
	}
	handler := httptask.MiddlewareWith(logging(mux), httptask.Options{
		Mode: httptask.Join,
		Label: func(r *http.Request) string {
			_, pattern := mux.Handler(r)
			return pattern
		},
	})
	handler.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/orders/7", nil))
	// Output: GET /orders/{id}
}
