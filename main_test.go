package pooldriver_test

import (
	"log/slog"
	"testing"

	"go.uber.org/goleak"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

func TestMain(m *testing.M) {
	randomtest.AtOnce(8)
	goleak.VerifyTestMain(m)
}

// quietly keeps what the pool logs out of a passing run's output.
func quietly(c *pooldriver.Config) { c.Logger = slog.New(slog.DiscardHandler) }
