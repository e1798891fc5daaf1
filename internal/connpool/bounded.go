package connpool

import (
	"context"
	"time"
)

// callBounded calls f on a goroutine of its own. It returns f's error if f returns before ctx has
// ended and grace has passed. Otherwise left is not nil: f still runs, and left receives
// its error when it returns. If f panics or ends its goroutine, the error is the result of
// panicked, which is called on f's goroutine with the value of recover.
func callBounded(ctx context.Context, grace time.Duration, f func() error, panicked func(value any) error) (left <-chan error, _ error) {
	done := make(chan error, 1)
	go func() {
		err, returned := error(nil), false
		defer func() {
			if !returned {
				err = panicked(recover())
			}
			done <- err
		}()
		err = f()
		returned = true
	}()
	select {
	case err := <-done:
		return nil, err
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case err := <-done:
		return nil, err
	case <-timer.C:
		return done, nil
	}
}
