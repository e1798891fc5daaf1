package inspect

import (
	"database/sql"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/pooldriver/pooldriver"
)

// Inspector is an http.Handler with the page of some Connectors. It answers
//
//	GET             the page
//	GET  ?format=json  the same as JSON, see Snapshot
//	POST flush=N    calls Flush on the Nth Connector, counted from 0, and shows the page;
//	                only if AllowFlush is set
//
// A POST is accepted only from the page itself: its Origin or Sec-Fetch-Site header must say so.
//
// An Inspector is safe for concurrent use. Its fields must be set before its first request.
type Inspector struct {
	// Allow decides which requests are answered; others get status 403. Nil is
	// LoopbackOnly.
	Allow func(*http.Request) bool
	// AllowFlush shows a button that replaces all connections, and answers it. By default the page
	// changes nothing: a proxy on the program's machine may look like a browser there, and then
	// visitors from outside can only read.
	AllowFlush bool

	pools []*watched
}

// Handler returns the page of connectors, in their order.
func Handler(connectors ...*pooldriver.Connector) *Inspector {
	i := new(Inspector)
	for _, c := range connectors {
		i.pools = append(i.pools, &watched{connector: c})
	}
	return i
}

// AddDB says that db uses the connections of c. The page then says if SetMaxOpenConns of db keeps
// callers waiting, which the pool does not see. If Handler was not given c, AddDB adds its pool to
// the page. AddDB must be called before the first request. It returns i.
func (i *Inspector) AddDB(c *pooldriver.Connector, db *sql.DB) *Inspector {
	w := *entry(&i.pools, func(w *watched) bool { return w.connector == c }, &watched{connector: c})
	w.dbs = append(w.dbs, db)
	return i
}

func allowed(allow func(*http.Request) bool, r *http.Request) bool {
	if allow == nil {
		allow = LoopbackOnly
	}
	return allow(r)
}

func refuse(w http.ResponseWriter) {
	http.Error(w, "pooldriver/inspect: only requests of this machine are answered; the field Allow changes that", http.StatusForbidden)
}

// LoopbackOnly reports whether r comes from this machine: its address is a loopback address, it
// asks for a loopback host (so that a page of another site cannot ask by a name of its own), and no
// proxy seems to have passed it on.
//
// A proxy on this machine that adds no header, and asks by a loopback name, looks the same as a
// browser here. Behind such a proxy, set Inspector.Allow, or give the page a listener of its own.
func LoopbackOnly(r *http.Request) bool {
	for name := range r.Header {
		if name == "Forwarded" || name == "Via" || name == "X-Real-Ip" || strings.HasPrefix(name, "X-Forwarded-") {
			return false
		}
	}
	// By default many releases of nginx ask in HTTP/1.0, with no header, for the host in
	// proxy_pass. Browsers and curl do not.
	return r.ProtoAtLeast(1, 1) && isLoopback(r.RemoteAddr) && isLoopback(r.Host)
}

// isLoopback reports whether an address, with or without a port, belongs to this machine.
func isLoopback(address string) bool {
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = strings.Trim(address, "[]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip, err := netip.ParseAddr(host)
	return err == nil && ip.Unmap().IsLoopback()
}

// ServeHTTP answers a request.
func (i *Inspector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !allowed(i.Allow, r) {
		refuse(w)
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		i.show(w, r)
	case http.MethodPost:
		i.flush(w, r)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		http.Error(w, "pooldriver/inspect: GET shows the page, POST flushes", http.StatusMethodNotAllowed)
	}
}

func (i *Inspector) show(w http.ResponseWriter, r *http.Request) {
	h := w.Header()
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	if r.URL.Query().Get("format") == "json" {
		h.Set("Content-Type", "application/json; charset=utf-8")
		writeJSON(w, i.Snapshot())
		return
	}
	writePage(w, i.Snapshot(), i.AllowFlush)
}

// flush replaces the connections of one pool.
func (i *Inspector) flush(w http.ResponseWriter, r *http.Request) {
	if !i.AllowFlush {
		http.Error(w, "pooldriver/inspect: this page changes nothing; the field AllowFlush lets it flush", http.StatusForbidden)
		return
	}
	if !sameOrigin(r) {
		http.Error(w, "pooldriver/inspect: flush is for the page itself: the request names another origin, or none", http.StatusForbidden)
		return
	}
	n, err := strconv.Atoi(r.PostFormValue("flush"))
	if err != nil || n < 0 || n >= len(i.pools) {
		http.Error(w, fmt.Sprintf("pooldriver/inspect: flush takes the number of a pool (of %d, counted from 0)", len(i.pools)), http.StatusBadRequest)
		return
	}
	i.pools[n].connector.Flush()
	// The browser knows the page's path. We may not know it, because of http.StripPrefix or a
	// proxy.
	w.Header().Set("Location", "?")
	w.WriteHeader(http.StatusSeeOther)
}

// sameOrigin reports whether a request comes from a page of the same origin. Browsers say so in
// Sec-Fetch-Site. Older browsers send Origin with a POST. A request without both is refused: it
// comes from no page.
func sameOrigin(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" {
		return site == "same-origin"
	}
	origin, err := url.Parse(r.Header.Get("Origin"))
	return err == nil && origin.Host != "" && origin.Host == r.Host
}
