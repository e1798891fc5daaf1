package httptask_test

import (
	"net/http"
	"net/http/httptest"
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
	httptask.SetReads(w, t.Context())
	require.Empty(t, w.Header())
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
