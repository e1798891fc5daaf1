package behaviour

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
)

// TestAnAcquisitionIsReportedOnce also if the task ends before the statement has its connection.
func TestAnAcquisitionIsReportedOnce(t *testing.T) {
	var end func()
	var reported []error
	_, db, _ := openStub(t, dialects.Traits{}, func(c *pooldriver.Config) {
		c.Observer = &pooldriver.Observer{AcquireDone: func(_ context.Context, i pooldriver.AcquireInfo) {
			reported = append(reported, i.Err)
			if end != nil {
				end()
			}
		}}
	})
	require.NoError(t, db.Ping())
	reported = nil
	ctx, endTask := pooldriver.WithTask(t.Context())
	end = endTask
	_, err := db.ExecContext(ctx, "SELECT 1")
	require.ErrorIs(t, err, pooldriver.ErrTaskEnded)
	require.Equal(t, []error{nil}, reported)
}
