package httptask

import (
	"context"
	"net/http"
	"time"

	"github.com/pooldriver/pooldriver"
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
// Another client does not see these writes for certain: the cookie is for the one who has made them.
func SetReads(w http.ResponseWriter, ctx context.Context) { //nolint:revive // it is w that is changed
	token := pooldriver.Token(ctx)
	if token == "" {
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: readsCookie, Value: token, Path: "/", MaxAge: int(readsFor / time.Second), HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
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
