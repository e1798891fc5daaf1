// Package httptask gives every HTTP request a task of pooldriver, with any router of net/http.
package httptask

import (
	"cmp"
	"fmt"
	"net/http"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/task"
)

// Mode says whether a handler's statements outside of its *sql.Tx join its transaction. A pool_ambient
// other than auto decides for all tasks instead.
type Mode uint8

const (
	// Separate is for handlers that may not know tasks: statements, transactions and *sql.Conns
	// share nothing, and mean the same as over plain database/sql. WithTask, Do and InTx in the
	// handler begin an explicit task, whose statements join.
	Separate Mode = iota
	// Join is for handlers that know tasks: while a transaction is open, all statements of the
	// request belong to this transaction, and BeginTx begins a savepoint (pooldriver.AmbientJoin).
	// A request needs one connection at a time.
	Join
)

// Options are those of MiddlewareWith. The zero value has the defaults.
type Options struct {
	// Mode says whether a handler's statements outside of its *sql.Tx join its transaction. Default
	// Separate.
	Mode Mode
	// Label returns the label of a request, as of pooldriver.Label: it appears in logs and
	// metrics, so it must not hold the request's path, and a program should have few labels. If
	// Label returns "", the request gets the label that Middleware would give. Label is for
	// routers such as chi, gin and echo, and for a ServeMux behind another middleware. It is called
	// once for each request, before next.
	Label func(r *http.Request) string
}

// Middleware calls next with requests whose context carries a task, in the given mode; the default
// is Separate. What the handler leaves open is rolled back, cleaned and given back when the handler
// returns or panics. A request whose context already carries a task keeps this task, except a task
// that is Separate if the mode is Join. Middleware panics if it gets no handler, more than one
// mode, or a mode that does not exist: this is a mistake in the program.
//
// The context has a label, as of pooldriver.Label. If next is a *http.ServeMux, the label is the
// pattern by which next serves the request. Otherwise it is the pattern by which the ServeMux
// around Middleware serves the request. If there is no pattern, it is the request's method. The
// path is never part of it. Middleware does not see a ServeMux behind another middleware: see
// Options.Label.
//
// The task ends with the handler: work that goes on after the handler needs its own context, made
// with pooldriver.Outside or pooldriver.NewTask and context.WithoutCancel.
func Middleware(next http.Handler, mode ...Mode) http.Handler {
	var o Options
	switch len(mode) {
	case 0:
	case 1:
		o.Mode = mode[0]
	default:
		panic(fmt.Sprintf("httptask: Middleware takes one mode, Separate or Join, and was given %d", mode))
	}
	return MiddlewareWith(next, o)
}

// MiddlewareWith is Middleware with options.
func MiddlewareWith(next http.Handler, o Options) http.Handler {
	if next == nil {
		panic("httptask: Middleware was given no handler")
	}
	if o.Mode > Join {
		panic(fmt.Sprintf("httptask: mode %d is neither Separate nor Join", o.Mode))
	}
	begin := task.WithImplicit
	if o.Mode == Join {
		begin = pooldriver.WithTask
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		label := ""
		if o.Label != nil {
			label = o.Label(r)
		}
		if label == "" {
			label = labelOf(r, next)
		}
		ctx, end := begin(pooldriver.Label(r.Context(), label))
		defer end()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// router is a *http.ServeMux, or behaves like one.
type router interface {
	Handler(r *http.Request) (h http.Handler, pattern string)
}

// mostNested bounds how many nested ServeMuxes patternOf asks.
const mostNested = 8

// patternOf is the pattern by which h serves r, or "". If a ServeMux leads to another one, the
// inner pattern says more.
func patternOf(h http.Handler, r *http.Request) (pattern string) {
	for range mostNested {
		mux, ok := h.(router)
		if !ok {
			break
		}
		served, p := mux.Handler(r)
		if p == "" {
			break
		}
		h, pattern = served, p
	}
	return pattern
}

// labelOf is the label of a request. A ServeMux sets Request.Pattern when it has found the
// handler. Before that labelOf asks the ServeMux: a later read of the field would be a race with
// the ServeMux, if a goroutine uses the context by then. The ServeMux behind is asked first: the
// pattern of the ServeMux in front may be only "/".
func labelOf(r *http.Request, next http.Handler) string {
	if pattern := cmp.Or(patternOf(next, r), r.Pattern); pattern != "" {
		return pattern
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch,
		http.MethodDelete, http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return r.Method
	}
	return "other method" // a client may send anything
}
