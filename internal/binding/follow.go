package binding

import (
	"bytes"
	"context"
	"database/sql/driver"
	"reflect"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/session"
	"github.com/pooldriver/pooldriver/internal/textcache"
)

// follow is a query that waits for a connection, or for its answer.
type follow struct {
	call      dialects.PipelinedQuery
	pace      *textcache.Pace
	label     *string
	size      int
	trials    int // pipelines that were trials
	pipelines int // that it has been in; who has it in its hands writes this: its caller, or the pool's lock

	before time.Duration // the waits that are over

	// The answer: written before Served, or before done is closed.
	answer session.Answer
	waited time.Duration // until it was taken along
	again  bool          // the connection was lost before the answer came
	done   chan struct{}
	fate   atomic.Uint32 // of a leader
}

// What becomes of a leader: the first to say so decides.
const (
	expected = iota
	answered // done is closed now, or very soon
	left     // its context has ended
)

// mostPipelines bounds how many pipelines one query is in. Then it takes a connection for itself: perhaps the
// query itself makes pipelines end.
const mostPipelines = 3

// mayFollow reports whether f may be in a pipeline once more. Whoever has f in his hands asks.
func (f *follow) mayFollow() bool { return !f.answer.Alone && f.pipelines < mostPipelines }

// newFollow copies the arguments: the pipeline may read them after the program's call has returned. nil: an
// argument cannot be copied, because it refers to memory of the program.
func newFollow(w *Want, label *string) *follow {
	f := &follow{call: dialects.PipelinedQuery{Text: w.Text}, pace: w.Pace, label: label, size: len(w.Text)}
	f.call.Args = make([]driver.NamedValue, len(w.Args))
	for i, arg := range w.Args {
		switch v := arg.Value.(type) {
		case []byte:
			arg.Value = bytes.Clone(v)
			f.size += len(v)
		case string:
			f.size += len(v)
		case nil, bool, int, int32, int64, float64, time.Time:
		default:
			of := reflect.TypeOf(v)
			if !isCopied(of) {
				return nil
			}
			f.size += sizeOf(reflect.ValueOf(v))
		}
		f.call.Args[i] = arg
	}
	return f
}

var timeType = reflect.TypeFor[time.Time]()

// isCopied reports whether an assignment copies all of a value of type t, as with uuid.UUID and
// sql.NullString.
func isCopied(t reflect.Type) bool {
	switch k := t.Kind(); {
	case k <= reflect.Complex128 && k != reflect.Uintptr, k == reflect.String, t == timeType:
		return true
	case k == reflect.Array:
		return isCopied(t.Elem())
	case k == reflect.Struct:
		for i := range t.NumField() {
			if !isCopied(t.Field(i).Type) {
				return false
			}
		}
		return true
	}
	return false
}

// sizeOf is about how many bytes v, which isCopied, takes.
func sizeOf(v reflect.Value) (n int) {
	switch v.Kind() {
	case reflect.String:
		return v.Len()
	case reflect.Array:
		for i := range v.Len() {
			n += sizeOf(v.Index(i))
		}
		return n
	case reflect.Struct:
		for i := range v.NumField() {
			n += sizeOf(v.Field(i))
		}
		return n
	}
	return int(v.Type().Size())
}

// wait waits for the answer of a leader. It reports false if ctx ends before.
func (f *follow) wait(ctx context.Context) bool {
	select {
	case <-f.done:
		return true
	case <-ctx.Done():
		if f.fate.CompareAndSwap(expected, left) {
			return false
		}
		<-f.done
		return true
	}
}
