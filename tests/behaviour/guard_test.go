package behaviour

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/pool"
)

// TestAPanicOfAFunctionThatWeCallForOurselvesIsReportedWithItsStack, and ends no statement that
// does not need its result.
func TestAPanicOfAFunctionThatWeCallForOurselvesIsReportedWithItsStack(t *testing.T) {
	_, db, _, log := openGateway(t, func(c *pooldriver.Config) {
		c.Observer = &pooldriver.Observer{AcquireDone: func(context.Context, pooldriver.AcquireInfo) { panic("no more") }}
	})
	require.NoError(t, db.Ping())
	require.Equal(t, 1, log.lines("function=Config.Observer.AcquireDone panic=string stack="))
	require.Positive(t, log.lines("guard_test.go:"))
}

// TestAPanicOfTheKeyFunctionIsTheStatementsError: its task is not known.
func TestAPanicOfTheKeyFunctionIsTheStatementsError(t *testing.T) {
	known := false
	_, db, _, log := openGateway(t, func(c *pooldriver.Config) {
		c.TaskKey = func(context.Context) (any, context.Context) {
			if !known {
				panic("no more")
			}
			return nil, nil
		}
	})
	var panicked *pool.PanicError
	require.ErrorAs(t, db.Ping(), &panicked)
	require.Equal(t, "Config.TaskKey", panicked.Hook)
	require.Positive(t, log.lines("function=Config.TaskKey panic=string stack="))
	known = true
	require.NoError(t, db.Ping())
}
