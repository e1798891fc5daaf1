// Package wrappers runs pooldriver above and below the libraries that trace and measure
// database/sql: docs/wrappers.md. DataDog's is in a module of its own beside this one.
package wrappers

import (
	"os"
	"testing"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

func TestMain(m *testing.M) { os.Exit(testbed.Run(m)) }
