package sandbox

import (
	"context"
	"reflect"
	"runtime"
	"testing"
	"time"
)

// What package testing does not tell.

// untilDeadline ends shortly before the test does, so that its error is seen.
func untilDeadline(t testing.TB) (context.Context, context.CancelFunc) {
	if d, ok := t.(interface{ Deadline() (time.Time, bool) }); ok {
		if at, ok := d.Deadline(); ok {
			return context.WithDeadline(context.Background(), at.Add(-time.Second))
		}
	}
	return context.WithCancel(context.Background())
}

// isParallel reports whether a test has called t.Parallel. Package testing does not tell, but the
// field does; if a Go release has renamed the field, a second subtest finds the first.
func isParallel(t testing.TB) bool {
	parallel, _ := parallelField(reflect.ValueOf(t))
	return parallel
}

// isSerial reports whether neither a test nor one around it has called t.Parallel: then no test that waits in
// t.Parallel goes on before this one has ended. false: one has, or that is not known.
func isSerial(t testing.TB) bool {
	for v := reflect.ValueOf(t); ; {
		parallel, known := parallelField(v)
		if parallel || !known {
			return false
		}
		parent := v.Elem().FieldByName("parent")
		if !parent.IsValid() || parent.Kind() != reflect.Pointer {
			return false
		}
		if parent.IsNil() {
			return true
		}
		v = parent
	}
}

// parallelField reads the field of a *testing.T, or of what is inside of one.
func parallelField(v reflect.Value) (parallel, known bool) {
	if v.Kind() != reflect.Pointer || v.Elem().Kind() != reflect.Struct {
		return false, false
	}
	f := v.Elem().FieldByName("isParallel")
	if !f.IsValid() || f.Kind() != reflect.Bool {
		return false, false
	}
	return f.Bool(), true
}

// hasFailed reports in a cleanup whether the test has failed. A test that panics is not marked yet when its
// cleanups run: package testing calls them while the panic goes on.
func hasFailed(t testing.TB) bool {
	if t.Failed() {
		return true
	}
	var stack [64]uintptr // the panic lies between the cleanup and what has panicked
	return place{stack: stack[:runtime.Callers(1, stack[:])]}.through("runtime.gopanic")
}
