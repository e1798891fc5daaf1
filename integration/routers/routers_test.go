// Package routers has the tests of httptask in the routers of others.
package routers

import (
	"database/sql"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/labstack/echo/v4"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
	"github.com/pooldriver/pooldriver/httptask"
)

// forChi is the middleware that docs/observability.md names for chi.
func forChi(next http.Handler) http.Handler {
	return httptask.MiddlewareWith(next, httptask.Options{Label: func(r *http.Request) string {
		found := chi.NewRouteContext()
		if !chi.RouteContext(r.Context()).Routes.Match(found, r.Method, r.URL.Path) {
			return ""
		}
		return r.Method + " " + found.RoutePattern()
	}})
}

// forGin is the middleware that docs/observability.md names for gin.
func forGin(c *gin.Context) {
	next := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		c.Request = r
		c.Next()
	})
	httptask.MiddlewareWith(next, httptask.Options{Label: func(r *http.Request) string {
		return r.Method + " " + c.FullPath()
	}}).ServeHTTP(c.Writer, c.Request)
}

// forEcho is the middleware that docs/observability.md names for echo.
func forEcho(next echo.HandlerFunc) echo.HandlerFunc {
	return func(c echo.Context) (err error) {
		handler := http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			c.SetRequest(r)
			err = next(c)
		})
		httptask.MiddlewareWith(handler, httptask.Options{Label: func(r *http.Request) string {
			return r.Method + " " + c.Path()
		}}).ServeHTTP(c.Response(), c.Request())
		return err
	}
}

// TestTheLabelIsTheRouteOfTheRouter: the handler forgets its transaction. While the transaction is
// open its connection has the route's label, and the request's task rolls it back.
func TestTheLabelIsTheRouteOfTheRouter(t *testing.T) {
	connector := pooldriver.New("sqlite:"+t.TempDir()+"/t.db", func(c *pooldriver.Config) { c.Logger = slog.New(slog.DiscardHandler) })
	db := sql.OpenDB(connector)
	t.Cleanup(func() { require.NoError(t, db.Close()) })
	label := ""
	look := func(r *http.Request) int {
		if _, err := db.BeginTx(r.Context(), nil); err != nil {
			return http.StatusInternalServerError
		}
		label = connector.Holders()[0].Label
		return http.StatusNoContent
	}

	gin.SetMode(gin.ReleaseMode)
	byChi, byGin, byEcho := chi.NewRouter(), gin.New(), echo.New()
	byChi.Use(forChi)
	byChi.Route("/shop", func(r chi.Router) {
		r.Get("/orders/{id}", func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(look(r)) })
	})
	byGin.Use(forGin)
	byGin.GET("/shop/orders/:id", func(c *gin.Context) { c.Status(look(c.Request)) })
	byEcho.Use(forEcho)
	byEcho.GET("/shop/orders/:id", func(c echo.Context) error { return c.NoContent(look(c.Request())) })

	for name, tc := range map[string]struct {
		router http.Handler
		want   string
	}{
		"chi":  {byChi, "GET /shop/orders/{id}"},
		"gin":  {byGin, "GET /shop/orders/:id"},
		"echo": {byEcho, "GET /shop/orders/:id"},
	} {
		t.Run(name, func(t *testing.T) {
			label = ""
			recorder := httptest.NewRecorder()
			tc.router.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/shop/orders/s3cr3t", nil))
			require.Equal(t, http.StatusNoContent, recorder.Code)
			require.Equal(t, tc.want, label)
			require.Zero(t, connector.Stats().Pool.Lent)
		})
	}
}
