package pooldriver

import (
	"testing"
	"time"

	"github.com/pooldriver/pooldriver/internal/fakedb"
)

// soon requires that fn returns.
func soon(t *testing.T, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		fn()
	}()
	select {
	case <-done:
	case <-time.After(5 * time.Second):
		t.Fatalf("%s did not return", what)
	}
}

// held makes the next call with this text wait; it is running when the gate says
// that it has been entered.
func held(server *fakedb.Server, text string) *fakedb.Gate {
	gate := fakedb.NewGate()
	server.Inject(fakedb.Fault{Text: text, Gate: gate})
	return gate
}
