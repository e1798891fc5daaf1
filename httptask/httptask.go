// Package httptask gives every HTTP request a task of pooldriver's, for any
// router of net/http.
package httptask

import (
	"net/http"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/adopted"
)

// Middleware calls next with requests whose context carries a task. What the
// handler leaves open is rolled back, cleaned and given back when it returns,
// also by a panic. A request whose context carries a task already keeps it.
//
// Handlers below may know nothing of tasks. Unless pool_ambient says otherwise,
// their statements and transactions therefore keep the meaning they have over
// plain database/sql: a transaction holds its own statements only
// (pooldriver.AmbientSeparate). InTx joins all the same.
//
// The task ends with the handler: work that goes on behind it needs a context
// of its own, made with pooldriver.Outside or pooldriver.NewTask and
// context.WithoutCancel.
func Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := pooldriver.WithTask(adopted.Mark(r.Context()))
		defer end()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
