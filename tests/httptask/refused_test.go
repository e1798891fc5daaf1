package httptask_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/httptask"
)

func TestRefusedAnswersARequestThatOverloadHasRefused(t *testing.T) {
	for name, c := range map[string]struct {
		err   error
		after string // Retry-After; empty: Refused writes nothing
	}{
		"overload":            {&pooldriver.AcquireError{Reason: pooldriver.ErrOverloaded, RetryAfter: 1100 * time.Millisecond}, "2"},
		"overload, wrapped":   {fmt.Errorf("orders: %w", &pooldriver.AcquireError{Reason: pooldriver.ErrOverloaded, RetryAfter: time.Second}), "1"},
		"a timeout":           {&pooldriver.AcquireError{Reason: pooldriver.ErrTimeout}, ""},
		"an ended context":    {context.DeadlineExceeded, ""},
		"no error":            {nil, ""},
		"an error by another": {io.EOF, ""},
	} {
		t.Run(name, func(t *testing.T) {
			w := httptest.NewRecorder()
			require.Equal(t, c.after != "", httptask.Refused(w, c.err))
			if c.after == "" {
				require.Empty(t, w.Header())
				require.Zero(t, w.Body.Len())
				return
			}
			require.Equal(t, http.StatusServiceUnavailable, w.Code)
			require.Equal(t, c.after, w.Header().Get("Retry-After"))
			require.Equal(t, "Service Unavailable\n", w.Body.String())
		})
	}
}

func TestARefusedStatementOfAHandlerIsAnswered503(t *testing.T) {
	db, c := open(t, "&pool_max_conns=1&pool_queue_target=1ns")
	tx, err := db.BeginTx(t.Context(), nil)
	require.NoError(t, err)
	handler := httptask.Middleware(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := db.ExecContext(r.Context(), "insert into t values (1)"); err != nil && !httptask.Refused(w, err) {
			t.Error(err)
		}
	}))
	answers := make(chan *httptest.ResponseRecorder, 2)
	for i, priority := range []pooldriver.Priority{pooldriver.PriorityLow, pooldriver.PriorityNormal} {
		ctx := pooldriver.WithPriority(t.Context(), priority)
		go func() {
			w := httptest.NewRecorder()
			handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
			answers <- w
		}()
		require.Eventually(t, func() bool { return c.Stats().Pool.Waiting == i+1 }, time.Minute, time.Millisecond)
	}
	require.NoError(t, tx.Rollback())
	codes := []int{(<-answers).Code, (<-answers).Code}
	require.ElementsMatch(t, []int{http.StatusServiceUnavailable, http.StatusOK}, codes)
	require.Equal(t, 1, number(t, t.Context(), db, rowsOfT))
}
