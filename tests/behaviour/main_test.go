// Package behaviour has the tests of what pooldriver promises, through its public API.
package behaviour

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/pooldriver/pooldriver/internal/testing/randomtest"
)

func TestMain(m *testing.M) {
	randomtest.AtOnce(8)
	goleak.VerifyTestMain(m)
}
