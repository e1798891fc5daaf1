package hosts

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
)

const (
	// trialPatience bounds the try of a server that could not be reached the last
	// time, if there are other servers to try or one has answered. A dead server must
	// not delay the error of the dial, or the next try of a server that is about to
	// become the primary.
	trialPatience = time.Second
	// connectPatience bounds the opening of the network connection if there are other
	// servers to try. Even over the longest distances the opening takes a fraction of this time.
	connectPatience = 2 * time.Second
)

// Outcome is the outcome of a try.
type Outcome struct {
	// Fit is how well the server fits; Unfit with an error.
	Fit Fit
	// Err is why the try gave no connection. It holds no secret.
	Err error
	// Answered: the server was reached, and refused or has the wrong role.
	Answered bool
	// Unreachable: not even the network connection could be opened.
	Unreachable bool
	// Final: every other server would refuse as well. A wrong password must not be
	// tried on each of them.
	Final bool
}

// Try opens a connection to one server. patience bounds the opening of the network connection; 0:
// no bound but ctx.
type Try[T any] func(ctx context.Context, host int, patience time.Duration) (T, Outcome)

// Found is a connection, and the server to which it leads.
type Found[T any] struct {
	Conn T
	Host int
	Fit  Fit
	// PassedOver says which servers were tried in vain before, and why.
	PassedOver string
}

// Walk tries the servers of a list until one fits. If none fits, it uses the first second
// choice. A walk has one connection at a time: drop gets a connection that is not wanted
// before the next server is tried. Each server gets an equal share of the time that ctx
// has left. If the list has one server, Walk calls try once, without a bound.
func Walk[T any](ctx context.Context, l *List, try Try[T], drop func(T)) (Found[T], error) {
	if l.Len() == 1 {
		conn, o := try(ctx, 0, 0)
		return Found[T]{Conn: conn, Fit: o.Fit}, o.Err
	}
	l.rest(ctx)
	w := walk[T]{list: l, try: try, drop: drop, tried: make([]bool, l.Len()), left: l.Len()}
	for ctx.Err() == nil {
		c, ok := l.choose(w.tried)
		if !ok || w.seconds != nil && c.paused || w.step(ctx, c) {
			break
		}
	}
	w.again(ctx)
	if w.held != nil || !errors.Is(ctx.Err(), context.Canceled) {
		l.recordWalk(w.held != nil)
	}
	return w.result(ctx)
}

// walk is one walk along a list.
type walk[T any] struct {
	list  *List
	try   Try[T]
	drop  func(T)
	tried []bool
	left  int // servers still to be tried

	held     *Found[T] // the connection that the walk holds
	seconds  []int     // second choices, which were dropped for others
	cut      []int     // servers whose try ended early: they might have answered
	answered bool      // a server has answered
	final    bool      // a refusal that holds for all servers, such as of the password
	why      []reason  // why servers were not used, in order of the tries
}

// reason is why a server was not used.
type reason struct {
	host int
	err  error
}

// step tries one server, and reports whether that is the end of the walk.
func (w *walk[T]) step(ctx context.Context, c choice) (end bool) {
	w.tried[c.host] = true
	returned := false
	defer func() {
		if !returned {
			w.list.endTrial(c) // a panic passes here on its way to the pool
		}
	}()
	own, cancel, patience := w.bound(ctx, c)
	defer cancel()
	conn, o := w.try(own, c.host, patience)
	returned = true
	w.left--
	switch {
	case o.Err == nil && o.Fit == Fits:
		w.list.reached(c.host)
		w.held = &Found[T]{Conn: conn, Host: c.host, Fit: o.Fit}
		return true
	case o.Err == nil:
		w.list.refused(c.host)
		w.answered = true
		if w.seconds == nil && !w.list.hasUntried(w.tried) {
			w.held = &Found[T]{Conn: conn, Host: c.host, Fit: o.Fit}
			return true
		}
		w.drop(conn)
		w.seconds = append(w.seconds, c.host)
		return false
	case o.Answered:
		w.list.refused(c.host)
		w.answered = true
	case errors.Is(ctx.Err(), context.Canceled):
		w.list.endTrial(c)
	default:
		w.list.failed(c)
		if !o.Unreachable && endedEarly(own, ctx) {
			w.cut = append(w.cut, c.host)
		}
	}
	w.why = append(w.why, reason{c.host, o.Err})
	w.final = o.Final
	return o.Final
}

// endedEarly: the try's own time is over, and ctx has time left.
func endedEarly(own, ctx context.Context) bool {
	bound, bounded := own.Deadline()
	deadline, ok := ctx.Deadline()
	return bounded && own.Err() != nil && ctx.Err() == nil && (!ok || bound.Before(deadline))
}

// isOutOfTime reports whether there is no time left.
func isOutOfTime(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() != nil || ok && time.Until(deadline) <= 0
}

// again ends a walk that has found no fitting server. It dials the second choices again, in order.
// If there is none, the servers whose try ended early get the time that is left: a login may take
// longer than a share of the time. Servers that the network does not reach are not among them. For
// each server only one dial at a time does this. The other dials report their errors.
func (w *walk[T]) again(ctx context.Context) {
	for i, host := range w.seconds {
		if w.held != nil || isOutOfTime(ctx) {
			return
		}
		w.retry(ctx, choice{host: host}, len(w.seconds)-i)
	}
	if w.final {
		return
	}
	for i, host := range w.cut {
		if w.held != nil || isOutOfTime(ctx) {
			return
		}
		if w.list.claim(host) {
			w.retry(ctx, choice{host: host, suspect: true}, len(w.cut)-i)
		}
	}
}

// retry tries a server once more, in its share of the time. Its earlier error is
// dropped.
func (w *walk[T]) retry(ctx context.Context, c choice, left int) {
	noted := false
	defer func() {
		if !noted {
			w.list.endTrial(c)
		}
	}()
	own, cancel := ctx, func() {}
	if deadline, ok := ctx.Deadline(); ok {
		own, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(left))
	}
	defer cancel()
	w.why = slices.DeleteFunc(w.why, func(r reason) bool { return r.host == c.host })
	conn, o := w.try(own, c.host, 0)
	if noted = o.Err == nil; noted {
		if o.Fit == Fits {
			w.list.reached(c.host)
		} else {
			w.list.refused(c.host)
		}
		w.held = &Found[T]{Conn: conn, Host: c.host, Fit: o.Fit}
		return
	}
	switch noted = true; {
	case o.Answered:
		w.list.refused(c.host)
	case errors.Is(ctx.Err(), context.Canceled):
		w.list.endTrial(c)
	default:
		w.list.failed(c)
	}
	w.why = append(w.why, reason{c.host, o.Err})
	w.final = w.final || o.Final
}

// bound gives a try its share of the time.
func (w *walk[T]) bound(ctx context.Context, c choice) (own context.Context, cancel context.CancelFunc, patience time.Duration) {
	left := w.left
	if w.seconds != nil {
		left++ // a second choice is dialled again
	}
	var share time.Duration // 0: no bound
	if deadline, ok := ctx.Deadline(); ok {
		share = max(time.Until(deadline)/time.Duration(left), 1)
	}
	if left > 1 {
		patience = connectPatience
	}
	if c.suspect && (left > 1 || w.answered) && (share == 0 || share > trialPatience) {
		share = trialPatience
	}
	if share == 0 {
		return ctx, func() {}, patience
	}
	own, cancel = context.WithTimeout(ctx, share)
	return own, cancel, patience
}

func (w *walk[T]) result(ctx context.Context) (Found[T], error) {
	var notes []string
	var errs []error
	for _, r := range w.why {
		notes = append(notes, w.list.names[r.host]+": "+oneLine(r.err))
		errs = append(errs, r.err)
	}
	if w.held != nil {
		w.held.PassedOver = strings.Join(notes, "; ")
		return *w.held, nil
	}
	text := fmt.Sprintf("none of %d servers will do: ", w.list.Len())
	if last := len(errs) - 1; w.final {
		// This error comes first, so that errors.As finds it first.
		text = "the others would refuse it, too: "
		errs = append([]error{errs[last]}, errs[:last]...)
	} else if err := ctx.Err(); err != nil {
		for i, tried := range w.tried {
			if !tried {
				notes = append(notes, w.list.names[i]+": not tried, the time was up")
			}
		}
		errs = append(errs, err)
	}
	return Found[T]{}, &noneError{text: text + strings.Join(notes, "; "), errs: errs}
}

// noneError says for each server why it was not used, and unwraps to these errors.
type noneError struct {
	text string
	errs []error
}

func (e *noneError) Error() string   { return e.text }
func (e *noneError) Unwrap() []error { return e.errs }

// oneLine is an error's text; errors.Join puts its parts on lines of their own.
func oneLine(err error) string {
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", ", ")
}

// dropPatience bounds the end of a connection to a server that does not fit.
const dropPatience = time.Second

// Drop ends a connection that a walk does not want. Nothing was done on it, so an error of its
// Close does not matter.
func Drop[S dialects.Session](s S) {
	ctx, cancel := context.WithTimeout(context.Background(), dropPatience)
	defer cancel()
	_ = s.Close(ctx)
}

// Addresses tries the addresses of a server's name, as Walk tries servers. It remembers no outcome.
func Addresses[T any](ctx context.Context, addresses []string, patience time.Duration,
	try func(ctx context.Context, address string, patience time.Duration) (T, Outcome), drop func(T),
) (T, Outcome) {
	if len(addresses) == 1 {
		return try(ctx, addresses[0], patience)
	}
	answered, final, unreachable := false, false, true
	found, err := Walk(ctx, New(addresses...), func(ctx context.Context, i int, own time.Duration) (T, Outcome) {
		conn, o := try(ctx, addresses[i], cmp.Or(own, patience))
		answered, final = answered || o.Err == nil || o.Answered, final || o.Final
		unreachable = unreachable && o.Unreachable
		return conn, o
	}, drop)
	if err != nil {
		return found.Conn, Outcome{Err: err, Answered: answered, Final: final, Unreachable: unreachable}
	}
	return found.Conn, Outcome{Fit: found.Fit}
}
