// Package httptask gives every HTTP request a task of pooldriver's, for any
// router of net/http.
package httptask

import (
	"fmt"
	"net/http"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/task"
)

// Mode says what a handler's transaction is to its other statements, unless
// pool_ambient says so for all tasks.
type Mode uint8

const (
	// Separate is for handlers that may know nothing of tasks: statements,
	// transactions and *sql.Conns share nothing, and keep the meaning that they have
	// over plain database/sql. WithTask, Do and InTx in the handler begin an explicit
	// task, whose statements join.
	Separate Mode = iota
	// Join is for handlers that count on it: while a transaction is open, all
	// statements of the request belong to it, and BeginTx begins a savepoint
	// (pooldriver.AmbientJoin). A request needs one connection at a time.
	Join
)

// Middleware calls next with requests whose context carries a task, in the mode
// given, which is Separate if none is. What the handler leaves open is rolled back,
// cleaned and given back when it returns, also by a panic. A request whose context
// carries a task already keeps it, except that Join is not content with one that
// is Separate. No handler, more than one mode, or one that there is not, is a mistake in
// the program, and Middleware panics.
//
// The context has a label, as of pooldriver.Label: the pattern by which a *http.ServeMux
// serves the request. It is known if Middleware is inside of the ServeMux, or next is one.
// Otherwise the label is the request's method. The path is never part of it.
//
// The task ends with the handler: work that goes on behind it needs a context
// of its own, made with pooldriver.Outside or pooldriver.NewTask and
// context.WithoutCancel.
func Middleware(next http.Handler, mode ...Mode) http.Handler {
	if next == nil {
		panic("httptask: Middleware was given no handler")
	}
	if len(mode) > 1 || len(mode) == 1 && mode[0] > Join {
		panic(fmt.Sprintf("httptask: Middleware takes one mode, Separate or Join, and was given %d", mode))
	}
	begin := task.WithImplicit
	if len(mode) == 1 && mode[0] == Join {
		begin = pooldriver.WithTask
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, end := begin(pooldriver.Label(r.Context(), labelOf(r, next)))
		defer end()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// router is a *http.ServeMux, or behaves like one.
type router interface {
	Handler(r *http.Request) (h http.Handler, pattern string)
}

// labelOf is the label of a request. A ServeMux sets Request.Pattern when it has found the
// handler. Before that it is asked: to read the field later would be a race with the
// ServeMux, if a goroutine uses the context by then.
func labelOf(r *http.Request, next http.Handler) string {
	if r.Pattern != "" {
		return r.Pattern
	}
	if mux, ok := next.(router); ok {
		if _, pattern := mux.Handler(r); pattern != "" {
			return pattern
		}
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return r.Method
	}
	return "other method" // a client may send anything
}
