package inspect_test

import (
	"database/sql"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/inspect"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// open returns a pool with one idle connection.
func open(t *testing.T) (*pooldriver.Connector, *sql.DB) {
	c := pooldriver.Wrap(fakedb.NullConnector{})
	db := sql.OpenDB(c)
	t.Cleanup(func() { _ = db.Close() })
	require.NoError(t, db.Ping())
	return c, db
}

// request is one from this machine.
func request(method, target string) *http.Request {
	r := httptest.NewRequest(method, target, nil)
	r.RemoteAddr, r.Host = "127.0.0.1:5000", "localhost:6060"
	return r
}

func answer(h http.Handler, r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestOnlyThisMachineIsAnswered(t *testing.T) {
	c, _ := open(t)
	for _, tc := range []struct {
		remote, host, header string
		old, allowed         bool
	}{
		{remote: "127.0.0.1:4000", host: "127.0.0.1:6060", allowed: true},
		{remote: "127.3.2.1:4000", host: "LOCALHOST", allowed: true},
		{remote: "[::1]:4000", host: "[::1]", allowed: true},
		{remote: "[::ffff:127.0.0.1]:4000", host: "[::1]:80", allowed: true},
		{remote: "10.0.0.7:4000", host: "localhost"},
		{remote: "192.0.2.1:4000", host: "pool.example"},
		{remote: "127.0.0.1:4000", host: "rebound.example:6060"},
		{remote: "127.0.0.1:4000", host: "localhost.example"},
		{remote: "127.0.0.1:4000", host: ""},
		{remote: "", host: "localhost"},
		{remote: "127.0.0.1:4000", host: "localhost", header: "X-Forwarded-For"},
		{remote: "127.0.0.1:4000", host: "localhost", header: "Forwarded"},
		{remote: "127.0.0.1:4000", host: "localhost", header: "X-Real-Ip"},
		{remote: "127.0.0.1:4000", host: "localhost", header: "X-Forwarded-Proto"},
		{remote: "127.0.0.1:4000", host: "localhost", header: "Via"},
		{remote: "127.0.0.1:4000", host: "127.0.0.1:6060", old: true}, // as nginx asks
	} {
		for _, h := range []http.Handler{inspect.Handler(c), inspect.Profile(c)} {
			r := request(http.MethodGet, "/debug/pool")
			r.RemoteAddr, r.Host = tc.remote, tc.host
			if tc.old {
				r.Proto, r.ProtoMinor = "HTTP/1.0", 0
			}
			if tc.header != "" {
				r.Header.Set(tc.header, "10.0.0.7")
			}
			w := answer(h, r)
			if tc.allowed {
				require.Equal(t, http.StatusOK, w.Code, "%+v", tc)
				continue
			}
			require.Equal(t, http.StatusForbidden, w.Code, "%+v", tc)
			require.NotContains(t, w.Body.String(), c.Target())
		}
	}
}

func TestAllowDecidesInstead(t *testing.T) {
	c, _ := open(t)
	h := inspect.Handler(c)
	h.Allow = func(r *http.Request) bool { return r.Header.Get("Authorization") == "Bearer right" }
	r := request(http.MethodGet, "/")
	require.Equal(t, http.StatusForbidden, answer(h, r).Code)
	r.RemoteAddr, r.Host = "10.0.0.7:4000", "pool.example"
	r.Header.Set("Authorization", "Bearer right")
	require.Equal(t, http.StatusOK, answer(h, r).Code)
}

func TestFlushIsForThePageItself(t *testing.T) {
	post := func(flush string, headers ...string) *http.Request {
		r := request(http.MethodPost, "/debug/pool")
		r.Body = http.NoBody
		r.PostForm = url.Values{"flush": {flush}}
		for i := 0; i < len(headers); i += 2 {
			r.Header.Set(headers[i], headers[i+1])
		}
		return r
	}
	for _, tc := range []struct {
		name    string
		request *http.Request
		code    int
	}{
		{"the page, by Sec-Fetch-Site", post("0", "Sec-Fetch-Site", "same-origin"), http.StatusSeeOther},
		{"the page, by Origin", post("0", "Origin", "http://localhost:6060"), http.StatusSeeOther},
		{"another site", post("0", "Sec-Fetch-Site", "cross-site", "Origin", "http://localhost:6060"), http.StatusForbidden},
		{"another port", post("0", "Origin", "http://localhost:6061"), http.StatusForbidden},
		{"a sandboxed page", post("0", "Origin", "null"), http.StatusForbidden},
		{"the address bar", post("0", "Sec-Fetch-Site", "none"), http.StatusForbidden},
		{"no page", post("0"), http.StatusForbidden},
		{"no such pool", post("1", "Sec-Fetch-Site", "same-origin"), http.StatusBadRequest},
		{"no number", post("-1", "Sec-Fetch-Site", "same-origin"), http.StatusBadRequest},
		{"GET", request(http.MethodGet, "/debug/pool?flush=0"), http.StatusOK},
		{"PUT", request(http.MethodPut, "/debug/pool?flush=0"), http.StatusMethodNotAllowed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, _ := open(t)
			h := inspect.Handler(c)
			h.AllowFlush = true
			w := answer(h, tc.request)
			require.Equal(t, tc.code, w.Code, w.Body.String())
			flushed := c.Stats().Pool.Destroyed.Flushed
			if tc.code == http.StatusSeeOther {
				require.Equal(t, "?", w.Header().Get("Location"), "the page, wherever the browser has it")
				require.EqualValues(t, 1, flushed)
			} else {
				require.Zero(t, flushed)
			}
		})
	}
}

func TestThePageChangesNothingUnlessItIsAllowedTo(t *testing.T) {
	c, _ := open(t)
	h := inspect.Handler(c)
	r := request(http.MethodPost, "/debug/pool")
	r.Body, r.PostForm = http.NoBody, url.Values{"flush": {"0"}}
	r.Header.Set("Sec-Fetch-Site", "same-origin")
	w := answer(h, r)
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Contains(t, w.Body.String(), "AllowFlush")
	require.Zero(t, c.Stats().Pool.Destroyed.Flushed)
	require.NotContains(t, answer(h, request(http.MethodGet, "/debug/pool")).Body.String(), "<form")
	h.AllowFlush = true
	require.Contains(t, answer(h, request(http.MethodGet, "/debug/pool")).Body.String(), "<form")
	require.Equal(t, "no-store", answer(inspect.Profile(c), request(http.MethodGet, "/p")).Header().Get("Cache-Control"))
}

func TestJSONIsTheSnapshot(t *testing.T) {
	c, db := open(t)
	ctx, end := pooldriver.NewTask(pooldriver.Label(t.Context(), "report"))
	defer end()
	_, err := db.BeginTx(ctx, nil)
	require.NoError(t, err)
	h := inspect.Handler(c, c)
	w := answer(h, request(http.MethodGet, "/debug/pool?format=json"))
	require.Equal(t, "application/json; charset=utf-8", w.Header().Get("Content-Type"))
	var s inspect.Snapshot
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &s))
	require.Len(t, s.Pools, 2)
	require.Equal(t, c.Target(), s.Pools[1].Name)
	require.Equal(t, 1, s.Pools[0].Stats.Pool.Lent)
	require.Len(t, s.Pools[0].Holders, 1)
	require.Equal(t, "report", s.Pools[0].Holders[0].Label)
	require.Equal(t, pooldriver.PinTransaction, s.Pools[0].Holders[0].Pin)
}

// TestADatabaseBelongsToItsConnector: also if the page did not know the Connector before.
func TestADatabaseBelongsToItsConnector(t *testing.T) {
	first, _ := open(t)
	second, db := open(t)
	db.SetMaxOpenConns(3)
	pools := inspect.Handler(first).AddDB(second, db).AddDB(second, db).Snapshot().Pools
	require.Len(t, pools, 2)
	require.Empty(t, pools[0].DBs)
	require.Equal(t, []inspect.DB{{MaxOpen: 3}, {MaxOpen: 3}}, pools[1].DBs)
}
