package sandbox

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/beneath"
	"github.com/pooldriver/pooldriver/internal/config"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

// someConnector is the inside of a connector of which only this is asked.
type someConnector struct {
	beneath.Beneath
	most int
}

func (c *someConnector) Config() *config.Config {
	return &config.Config{Dialect: stubdialect.New(dialects.Traits{}), MaxConns: c.most}
}

func TestTurnsComeInOrderAndLeaveOneConnection(t *testing.T) {
	var w turnstile
	of := &someConnector{most: 3}
	first, err := w.wait(t.Context(), of, visitor{test: "first"})
	require.NoError(t, err)
	second, err := w.wait(t.Context(), of, visitor{test: "second"})
	require.NoError(t, err)
	var mu sync.Mutex
	var order []int
	var all sync.WaitGroup
	for i := range 5 {
		all.Go(func() {
			leave, err := w.wait(context.Background(), of, visitor{test: fmt.Sprint(i)})
			if err != nil {
				t.Error(err)
				return
			}
			mu.Lock()
			order = append(order, i)
			mu.Unlock()
			leave()
		})
		require.Eventually(t, func() bool {
			w.mu.Lock()
			defer w.mu.Unlock()
			return len(w.all[of].queue) == i+1
		}, 30*time.Second, time.Millisecond)
	}
	first()
	all.Wait()
	require.Equal(t, []int{0, 1, 2, 3, 4}, order)
	second()
	require.Empty(t, w.all, "nothing is kept of a connector that nobody uses")
}

func TestATurnThatDoesNotComeNamesWhoHasIt(t *testing.T) {
	var w turnstile
	of := &someConnector{most: 1}
	leave, err := w.wait(t.Context(), of, visitor{test: "TestOfAnHour"})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(time.Millisecond, cancel)
	_, err = w.wait(ctx, of, visitor{test: "late"})
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorContains(t, err, "TestOfAnHour")
	leave()
	require.Empty(t, w.all)
}
