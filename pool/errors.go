package pool

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"
)

var (
	// ErrClosed is returned by every operation on a closed pool. It is the reason of an AcquireError
	// for an acquirer that waits when the pool is closed.
	ErrClosed = errors.New("pool: closed")

	// ErrUnavailable is the reason of an AcquireError when the circuit
	// breaker refuses.
	ErrUnavailable = errors.New("pool: unavailable: the circuit breaker is open")

	// ErrTooManyWaiters is the reason of an AcquireError when Config.MaxWaiters
	// acquirers wait already.
	ErrTooManyWaiters = errors.New("pool: too many waiters")
	// ErrOverloaded is the reason of an AcquireError when Config.QueueTarget refuses an acquirer. Who waited
	// would be served too late, or make others too late.
	ErrOverloaded = errors.New("pool: overloaded")

	// ErrNoneNow is returned by AcquireNow, and for OnlyIdle, when it would have to wait for
	// another borrower.
	ErrNoneNow = errors.New("pool: no resource is available without waiting")

	// ErrServed is returned by an acquire that another acquirer took along: the work is done. There is
	// no lease. See Lease.TakeAlong.
	ErrServed = errors.New("pool: served by another acquirer")

	// ErrStaleLease is returned by a Lease's Release and Discard when the
	// lease has been given back before, or is the zero Lease.
	// Such a call has no effect on the resource or on its present borrower.
	ErrStaleLease = errors.New("pool: the lease was given back before")

	// errOrphaned is passed to OnError.
	errOrphaned = errors.New("pool: Destroy has not returned within DestroyTimeout; the resource is orphaned")

	// ErrTimeout is the reason of an AcquireError after Config.AcquireTimeout.
	// errors.Is(err, context.DeadlineExceeded) holds for it too.
	ErrTimeout error = timeoutError{}
)

type timeoutError struct{}

func (timeoutError) Error() string        { return "pool: timed out" }
func (timeoutError) Timeout() bool        { return true }
func (timeoutError) Is(target error) bool { return target == context.DeadlineExceeded }

// AcquireError says why an acquirer got no resource, and describes the pool at
// that moment.
type AcquireError struct {
	// Reason is ErrTimeout, ErrTooManyWaiters, ErrOverloaded, ErrUnavailable, ErrClosed, or the
	// error of the acquirer's context.
	Reason error
	// Cause is context.Cause of the acquirer's context. It is nil if the cause
	// is Reason.
	Cause error
	// Max, Allowed, Idle, Active and Waiting are those of Stats; Waiting does not
	// count this acquirer. Creating is how many of the Active resources are being created. The
	// first of these creates has run for CreatingFor.
	Max, Allowed, Idle, Active, Waiting, Creating int
	CreatingFor                                   time.Duration
	// Waited is how long this acquirer has waited.
	Waited time.Duration
	// PredictedWait is how long an acquirer that comes now would wait, and RetryAfter is when a new try
	// makes sense: after this wait, and at random between a half and one and a half Config.QueueInterval
	// more, so that not all come back at once. Both are 0 if Reason is not ErrOverloaded.
	PredictedWait, RetryAfter time.Duration
	// LastCreateErr is the error of the most recent create, nil if that create succeeded. Unwrap
	// does not return it, because this acquire failed for another reason.
	LastCreateErr error
	// Refusal is the last error of Config.BeforeAcquire for this acquirer; nil: BeforeAcquire has
	// refused no resource. Unwrap does not return Refusal.
	Refusal error
}

func (e *AcquireError) Error() string {
	var b strings.Builder
	b.WriteString("pool: acquire: ")
	b.WriteString(strings.TrimPrefix(e.Reason.Error(), "pool: "))
	if e.Cause != nil {
		fmt.Fprintf(&b, ": %v", e.Cause)
	}
	if e.Creating > 0 && e.Waited > 0 {
		b.WriteString(" while a resource is being created")
	}
	if e.Refusal != nil {
		fmt.Fprintf(&b, "; the last resource was not fit: %v", e.Refusal)
	}
	if e.LastCreateErr != nil {
		fmt.Fprintf(&b, "; the last create failed: %v", e.LastCreateErr)
	}
	// The parts that differ each time stand at the end, so that error trackers can group the errors
	// by their beginning.
	fmt.Fprintf(&b, " (max %d, active %d, idle %d, waiting %d", e.Max, e.Active, e.Idle, e.Waiting)
	if e.Allowed < e.Max {
		fmt.Fprintf(&b, ", the server allows %d", e.Allowed)
	}
	if e.Waited > 0 {
		fmt.Fprintf(&b, "; waited %v", shown(e.Waited))
	}
	if e.RetryAfter > 0 {
		fmt.Fprintf(&b, "; a new try would wait %v, retry after %v", shown(e.PredictedWait), shown(e.RetryAfter))
	}
	if e.Creating > 0 {
		fmt.Fprintf(&b, "; creating %d, for %v", e.Creating, shown(e.CreatingFor))
	}
	b.WriteByte(')')
	return b.String()
}

func shown(d time.Duration) time.Duration { return d.Round(time.Microsecond) }

// Unwrap gives Reason, and Cause where there is one.
func (e *AcquireError) Unwrap() []error {
	if e.Cause == nil {
		return []error{e.Reason}
	}
	return []error{e.Reason, e.Cause}
}

// Timeout reports whether time was the reason, as in net.Error.
func (e *AcquireError) Timeout() bool { return errors.Is(e, context.DeadlineExceeded) }

// CreateError is what an acquirer gets when the Create it waited for failed.
type CreateError struct {
	// Err is what Create returned, or a *PanicError.
	Err error
	// Ago is the time since the last create, if that create was refused (Config.Denied) and
	// therefore no create was started for this acquirer; else 0. After a refusal the pool pauses
	// between creates, for 100 ms and then for up to 1 s.
	Ago time.Duration
	// Waited is how long the acquirer has waited for the create; 0: the acquirer has not waited.
	Waited time.Duration
}

func (e *CreateError) Error() string {
	if e.Ago == 0 {
		return "pool: create: " + e.Err.Error()
	}
	return fmt.Sprintf("pool: create: %v (not tried again: the last try was refused %v ago)", e.Err, shown(e.Ago))
}

// Unwrap gives Err.
func (e *CreateError) Unwrap() error { return e.Err }

// PanicError stands for the result of a hook that did not return.
type PanicError struct {
	// Hook is the name of the field of Config whose function has failed, such as "Create".
	Hook string
	// Value is the value of the panic; nil if the hook called runtime.Goexit.
	Value any
	// Stack is the stack of the panic. Error does not print it.
	Stack []byte
}

// Error names the hook and the value of its panic. If that value is neither an error nor a string,
// Error prints only its type: the value may be a configuration with a password in it.
func (e *PanicError) Error() string {
	switch v := e.Value.(type) {
	case nil:
		return "pool: " + e.Hook + " called runtime.Goexit"
	case runtime.Error:
		return fmt.Sprintf("pool: %s panicked: %v", e.Hook, v)
	case error, string:
		return fmt.Sprintf("pool: %s panicked: %T: %v", e.Hook, v, v)
	default:
		return fmt.Sprintf("pool: %s panicked with a %T", e.Hook, v)
	}
}

// Unwrap gives Value where it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
