package pooldriver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/pooldriver/pooldriver/internal/ctxerr"
	"github.com/pooldriver/pooldriver/internal/observe/report"
	"github.com/pooldriver/pooldriver/internal/pause"
)

// Retry makes InTx run a transaction again if the transaction conflicted with others:
//
//	err := pooldriver.InTx(ctx, db, opts, fn, pooldriver.Retry{})
//
// These errors count: a serialization failure or a deadlock (PostgreSQL: 40001, 40P01; MySQL and
// MariaDB: 1213, 1020; in a group of MySQL's 3100, 3101 and 1180 with 149), or a busy database
// (SQLite: SQLITE_BUSY with all its variants). The error of a server that has become read-only
// (25006, 1290, 1836) counts, too, if the DSN says what a server has to be, or names several
// servers. The error of a lock that a statement did not get in time (MySQL's 1205) does not
// count. SQLite waits for busy_timeout in each attempt, so keep that timeout short. The error may
// come from the begin, from fn, or from the commit. fn returns it as it is or wrapped, so that
// errors.As finds the driver's error.
//
// fn runs once for each attempt, so it has to be repeatable: everything that it does outside of
// the transaction happens again, and the program must not use a result of an attempt that failed.
// The last attempt is rolled back before the next one begins.
//
// InTx never repeats a transaction that fn has committed itself, or whose COMMIT has an unknown
// outcome (an io.ErrUnexpectedEOF, see the package's documentation), or that failed with any
// other error, or whose fn panicked, or that is a savepoint in another transaction. The error of
// a savepoint goes up to the outermost InTx, which repeats the whole transaction if it has a
// Retry.
//
// When no attempt is left, or ctx ends before the next one could begin, InTx returns the
// last error and says how often it has tried. Stats.TxRetries counts the further attempts.
//
// The zero value has the defaults.
type Retry struct {
	// MaxAttempts is how often fn runs at most, the first time included. 0 means 50.
	MaxAttempts int
	// MinBackoff is the longest pause before the second attempt. Before each further
	// attempt the longest pause doubles, up to MaxBackoff. A pause has a random length
	// between zero and the longest. No connection is held meanwhile, unless ctx's task
	// pins one. 0 means 2 ms.
	MinBackoff time.Duration
	// MaxBackoff is the longest pause of all. 0 means 1 s, or MinBackoff where that is
	// longer.
	MaxBackoff time.Duration
}

// withDefaults replaces what is zero.
func (r Retry) withDefaults() (Retry, error) {
	if r.MaxAttempts < 0 || r.MinBackoff < 0 || r.MaxBackoff < 0 {
		return r, errors.New("pooldriver: a field of Retry is negative")
	}
	r.MaxAttempts = cmp.Or(r.MaxAttempts, 50)
	r.MinBackoff = cmp.Or(r.MinBackoff, 2*time.Millisecond)
	r.MaxBackoff = cmp.Or(r.MaxBackoff, max(time.Second, r.MinBackoff))
	return r, nil
}

// run repeats attempt for as long as it meets a conflict.
func (r Retry) run(ctx context.Context, attempt func() (conflict *report.Report, err error)) error {
	r, err := r.withDefaults()
	if err != nil {
		return err
	}
	began := time.Now()
	for n := 1; ; n++ {
		conflict, err := attempt()
		if conflict == nil {
			return err
		}
		if n == r.MaxAttempts || !lasts(ctx, r.backoff(n)) {
			if ctx.Err() != nil {
				err = ctxerr.WithEnd(ctx, err)
			}
			return fmt.Errorf("pooldriver: InTx has given up, because each attempt conflicted with another transaction: %w (attempts %d, in %v)", err, n, time.Since(began).Round(time.Millisecond))
		}
		conflict.TxRetries.Add(1)
	}
}

// backoff is the pause after n attempts.
func (r Retry) backoff(n int) time.Duration {
	longest := time.Duration(0)
	for ; n > 0 && longest < r.MaxBackoff; n-- {
		longest = pause.Longer(longest, r.MinBackoff, r.MaxBackoff)
	}
	return rand.N(longest)
}

// lasts sleeps for d. It reports false if ctx has ended, or ends before d has passed. If the
// deadline of ctx shows this at once, lasts does not sleep.
func lasts(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false
	}
	return pause.For(ctx, d) && ctx.Err() == nil
}
