package httptask_test

import (
	"bytes"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/httptask"
)

// anyToken is of a write whose position is not known.
const anyToken = "1.Pw"

func TestACookieCarriesWhatAClientHasWritten(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	httptask.SetReads(w, pooldriver.WithToken(t.Context(), anyToken))
	res := w.Result()
	require.NoError(t, res.Body.Close())
	cookies := res.Cookies()
	require.Len(t, cookies, 1)
	require.True(t, cookies[0].HttpOnly)
	require.Equal(t, http.SameSiteLaxMode, cookies[0].SameSite)
	require.Equal(t, 600, cookies[0].MaxAge)

	r := httptest.NewRequest(http.MethodGet, "/", nil)
	require.Empty(t, pooldriver.Token(httptask.Reads(r)))
	r.AddCookie(cookies[0])
	require.Equal(t, anyToken, pooldriver.Token(httptask.Reads(r)))
}

func TestWithoutWritesThereIsNoCookie(t *testing.T) {
	t.Parallel()
	w := httptest.NewRecorder()
	httptask.SetReads(w, pooldriver.WithReads(t.Context()))
	require.Empty(t, w.Header())
}

// writtenWriter is a writer that tells whether its header is sent, as those of routers do.
type writtenWriter struct {
	http.ResponseWriter
	sent bool
}

func (w *writtenWriter) Written() bool               { return w.sent }
func (w *writtenWriter) Write(p []byte) (int, error) { w.sent = true; return w.ResponseWriter.Write(p) }

type status struct {
	http.ResponseWriter
	code int
}

func (w *status) Status() int          { return w.code }
func (w *status) WriteHeader(code int) { w.code = code; w.ResponseWriter.WriteHeader(code) }

type around struct{ http.ResponseWriter }

func (a around) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func TestSetReadsThatHasNoEffectIsInTheLogOnce(t *testing.T) { //nolint:paralleltest // it replaces slog.Default
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	written := pooldriver.WithToken(t.Context(), anyToken)
	w := &writtenWriter{ResponseWriter: httptest.NewRecorder()}
	httptask.SetReads(w, pooldriver.WithReads(t.Context()))
	httptask.SetReads(around{w}, written)
	httptask.SetReads(&status{ResponseWriter: w}, written)
	require.Empty(t, log.String())
	for range 2 {
		httptask.SetReads(w, t.Context())
	}
	require.Equal(t, 1, strings.Count(log.String(), "a context that keeps no writes"))
	s := &status{ResponseWriter: w}
	s.WriteHeader(http.StatusOK)
	_, err := w.Write([]byte("body"))
	require.NoError(t, err)
	httptask.SetReads(around{w}, written)
	httptask.SetReads(s, written)
	require.Equal(t, 1, strings.Count(log.String(), "when the response had begun"))
}

func TestTheReadsOfATaskAreThoseOfItsRequest(t *testing.T) {
	t.Parallel()
	h := httptask.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := httptask.Reads(r)
		require.Equal(t, r.Context(), ctx, "a task has its writes itself")
		require.Equal(t, anyToken, pooldriver.Token(r.Context()))
		httptask.SetReads(w, r.Context())
	}))
	r := httptest.NewRequest(http.MethodGet, "/", nil)
	r.AddCookie(&http.Cookie{Name: "pooldriver-reads", Value: anyToken})
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	require.Contains(t, w.Header().Get("Set-Cookie"), anyToken)
}
