package conformance

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

func TestMain(m *testing.M) {
	randomtest.AtOnce(8)
	goleak.VerifyTestMain(m)
}
