package pool

import (
	"context"
	"runtime/debug"
)

// A hook is foreign code: it may panic, and it may end its goroutine. Each hook is called through
// a function of this file, which turns a panic or an exit into an error that names the hook.

// call runs f and returns its error, or a *PanicError. If f calls
// runtime.Goexit, which cannot be stopped, onExit gets the error on the way
// out and call does not return.
func call(hook string, f func() error, onExit func(error)) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			err = &PanicError{Hook: hook, Value: v, Stack: debug.Stack()}
			return
		}
		onExit(&PanicError{Hook: hook})
	}()
	err = f()
	returned = true
	return err
}

// detached runs f on a goroutine of the pool, and calls done with f's error,
// also if f panics or ends the goroutine.
func detached(hook string, f func() error, done func(error)) {
	exited := true
	var err error
	defer func() {
		if exited {
			done(&PanicError{Hook: hook})
		} else {
			done(err)
		}
	}()
	err = call(hook, f, func(error) {})
	exited = false
}

// report calls OnError with err, unless err is nil.
func (p *Pool[T]) report(hook string, err error) {
	if err == nil || p.cfg.OnError == nil {
		return
	}
	_ = call("OnError", func() error { p.cfg.OnError(hook, err); return nil }, func(error) {})
}

// reportRefusal calls OnError with why, the error of BeforeAcquire for r.
func (p *Pool[T]) reportRefusal(r *resource[T], why error) {
	if p.cfg.OnError == nil {
		return
	}
	returned := false
	defer func() {
		if !returned { // OnError has ended the goroutine
			p.dropUnprepared(r)
		}
	}()
	p.report("BeforeAcquire", why)
	returned = true
}

// callBeforeAcquire prepares r for its borrower. It repeats the code of call: every acquire runs it,
// and the two closures of call would cost a quarter of the acquire.
func (p *Pool[T]) callBeforeAcquire(ctx context.Context, r *resource[T]) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			err = &PanicError{Hook: "BeforeAcquire", Value: v, Stack: debug.Stack()}
			return
		}
		p.dropUnprepared(r)
		p.report("BeforeAcquire", &PanicError{Hook: "BeforeAcquire"})
	}()
	err = p.beforeAcquire(ctx, r.value)
	returned = true
	return err
}

// beforeRelease cleans r, which has no borrower any more.
func (p *Pool[T]) beforeRelease(r *resource[T]) error {
	ctx := context.Background()
	if d := p.cfg.ReleaseTimeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	return call("BeforeRelease",
		func() error { return p.cfg.BeforeRelease(ctx, r.value) },
		func(err error) { p.finishRelease(r, err) })
}
