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
	// Separate is for handlers that may know nothing of tasks: statements and
	// transactions keep the meaning they have over plain database/sql. A
	// transaction holds its own statements only (pooldriver.AmbientSeparate), and
	// one beside it takes a connection of its own, for which it waits as over
	// plain database/sql. InTx joins all the same, and so does what runs in the task of
	// a WithTask or Do in the handler.
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
		ctx, end := begin(r.Context())
		defer end()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
