package httptask

import (
	"context"
	"log/slog"
	"net/http"
	"sync"
	"time"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/floor"
)

const (
	readsCookie = "pooldriver-reads"
	// readsFor is how long a client's next requests have to see what it wrote. It is far longer than replicas
	// are late; one that is later than that should not serve at all (pool_replica_max_lag).
	readsFor = 10 * time.Minute
)

// SetReads gives the client a cookie with the token of ctx (pooldriver.Token), so that its next requests see on
// replicas what was written under ctx. A handler calls it after its writes, and before it writes the
// response. If nothing was written under ctx, and ctx has no token, SetReads does nothing.
//
// A mistake is in the log of slog.Default, once: a ctx that keeps nothing, because it is neither of Reads nor of WithReads nor of a task;
// and a w whose header is sent, if w can tell (the writers of gin and chi can, that of net/http cannot).
//
// Another client does not see these writes for certain: the cookie is for the one who has made them.
func SetReads(w http.ResponseWriter, ctx context.Context) { //nolint:revive // it is w that is changed
	token := pooldriver.Token(ctx)
	if token == "" {
		if !floor.Keeps(ctx) {
			otherContext.Do(func() {
				slog.WarnContext(ctx, "httptask.SetReads was given a context that keeps no writes: give it the context of the writes, which is of httptask.Reads, pooldriver.WithReads or a task")
			})
		}
		return
	}
	if isSent(w) {
		tooLate.Do(func() {
			slog.WarnContext(ctx, "httptask.SetReads was called when the response had begun, so the client gets no cookie: call it before the body")
		})
	}
	http.SetCookie(w, &http.Cookie{
		Name: readsCookie, Value: token, Path: "/", MaxAge: int(readsFor / time.Second), HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
}

var otherContext, tooLate sync.Once

// isSent reports whether the header is known to be sent.
func isSent(w http.ResponseWriter) bool {
	for {
		switch known := w.(type) {
		case interface{ Written() bool }: // gin
			return known.Written()
		case interface{ Status() int }: // chi
			return known.Status() != 0
		case interface{ Unwrap() http.ResponseWriter }:
			w = known.Unwrap()
		default:
			return false
		}
	}
}

// Reads returns the context of r with the token of its cookie (pooldriver.WithToken). Without a cookie it is
// pooldriver.WithReads.
func Reads(r *http.Request) context.Context {
	token := ""
	if c, err := r.Cookie(readsCookie); err == nil {
		token = c.Value
	}
	return pooldriver.WithToken(r.Context(), token)
}
