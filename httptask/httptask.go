// Package httptask gives every HTTP request a task of pooldriver, with any router of net/http.
package httptask

import (
	"fmt"
	"net/http"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/task"
)

// Mode says whether a handler's other statements join its transaction, unless pool_ambient says so
// for all tasks.
type Mode uint8

const (
	// Separate is for handlers that may not know tasks: statements, transactions and *sql.Conns
	// share nothing, and mean the same as over plain database/sql. WithTask, Do and InTx in the
	// handler begin an explicit task, whose statements join.
	Separate Mode = iota
	// Join is for handlers that rely on it: while a transaction is open, all statements of the
	// request belong to it, and BeginTx begins a savepoint (pooldriver.AmbientJoin). A request
	// needs one connection at a time.
	Join
)

// Middleware calls next with requests whose context carries a task, in the given mode; the default
// is Separate. What the handler leaves open is rolled back, cleaned and given back when the handler
// returns or panics. A request whose context already carries a task keeps this task, except a task
// that is Separate if the mode is Join. Middleware panics if it gets no handler, more than one
// mode, or a mode that does not exist: this is a mistake in the program.
//
// The context has a label, as of pooldriver.Label: the pattern by which a *http.ServeMux
// serves the request. The pattern is known if Middleware is inside of the ServeMux, or next is a
// ServeMux. Otherwise the label is the request's method. The path is never part of it.
//
// The task ends with the handler: work that goes on after the handler needs its own context, made
// with pooldriver.Outside or pooldriver.NewTask and context.WithoutCancel.
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
// handler. Before that labelOf asks the ServeMux: a later read of the field would be a race with
// the ServeMux, if a goroutine uses the context by then.
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
