package pooldriver

import (
	"runtime"
	"testing"
	"time"

	"github.com/pooldriver/pooldriver/internal/fakedb"
)

// soon requires that fn returns. It runs in the test's goroutine, where it may end the
// test; if it hangs, nothing else could.
func soon(t *testing.T, what string, fn func()) {
	t.Helper()
	limit := time.AfterFunc(20*time.Second, func() {
		stacks := make([]byte, 1<<20)
		panic(t.Name() + ": " + what + " did not return\n\n" + string(stacks[:runtime.Stack(stacks, true)]))
	})
	defer limit.Stop()
	fn()
}

// held makes the next call with this text wait; it is running when the gate says
// that it has been entered.
func held(server *fakedb.Server, text string) *fakedb.Gate {
	gate := fakedb.NewGate()
	server.Inject(fakedb.Fault{Text: text, Gate: gate})
	return gate
}
