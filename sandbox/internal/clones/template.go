package clones

import (
	"context"
	"errors"
	"sync"
	"time"
)

// template is what this process knows of a template.
type template struct {
	keep time.Duration
	turn chan struct{} // a lock that a context ends; it protects the following fields
	// prepared is when the template was made, or found; zero before that.
	prepared time.Time
	recipe   recipe
	broken   *MigrationError
}

type templateKey struct {
	kind      Kind
	dsn, hash string
}

var templates sync.Map // of templateKey to *template

func templateOf(p Plan) *template {
	t, _ := templates.LoadOrStore(templateKey{p.Kind, p.DSN, p.Hash}, &template{keep: p.Keep, turn: make(chan struct{}, 1)})
	return t.(*template)
}

var errNoReturn = errors.New("the function that runs them did not return: it has panicked, or called FailNow of a test")

// prepare makes the template ready, and says again that it is used when half of the time is over for which it stays.
func (t *template) prepare(ctx context.Context, s server, test string) (r recipe, err error) {
	if err := t.lock(ctx); err != nil {
		return recipe{}, err
	}
	defer t.unlock()
	if t.broken != nil {
		return recipe{}, t.broken
	}
	if !t.prepared.IsZero() && time.Since(t.prepared) < t.keep/2 {
		return t.recipe, nil
	}
	err = &MigrationError{Err: errNoReturn} // unless prepare returns
	defer func() { t.note(err, test) }()
	now := time.Now()
	if r, err = s.prepare(ctx); err == nil {
		t.prepared, t.recipe = now, r
	}
	return r, err
}

// remember notes the error of migrations for later tests, and returns err.
func (t *template) remember(err error, test string) error {
	_ = t.lock(context.Background())
	defer t.unlock()
	t.note(err, test)
	return err
}

// note is called under the lock.
func (t *template) note(err error, test string) {
	var broken *MigrationError
	if errors.As(err, &broken) && t.broken == nil {
		t.broken = &MigrationError{Test: test, Err: broken.Err}
	}
}

func (t *template) lock(ctx context.Context) error {
	select {
	case t.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (t *template) unlock() { <-t.turn }
