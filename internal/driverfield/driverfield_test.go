package driverfield

import (
	"bytes"
	"log/slog"
	"reflect"
	"runtime/debug"
	"sync/atomic"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

type flags uint16

type conn struct {
	name   string
	status flags
	closed atomic.Bool
}

func TestAFieldIsReadAndWrittenInItsStruct(t *testing.T) {
	of := reflect.TypeFor[conn]()
	name, status, closed := Of[string](of, "name", ""), Of[uint16](of, "status", ""), Of[atomic.Bool](of, "closed", "")
	require.True(t, name.Known() && status.Known() && closed.Known())
	c := &conn{name: "a", status: 3}
	p := unsafe.Pointer(c)
	require.Equal(t, "a", *name.In(p))
	require.EqualValues(t, 3, *status.In(p))
	c.closed.Store(true)
	require.True(t, closed.In(p).Load())
	*name.In(p) = "b"
	require.Equal(t, "b", c.name)
}

func TestAFieldThatIsElsewhereIsToldOnce(t *testing.T) {
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	defer slog.SetDefault(before)
	of := reflect.TypeFor[conn]()
	for range 2 {
		moved, other, longer := Of[string](of, "moved", "this is off"), Of[*conn](of, "name", "that is off"), Of[uint32](of, "status", "")
		for range 2 {
			require.False(t, moved.Known())
			require.False(t, other.Known())
			require.False(t, longer.Known())
		}
	}
	require.Equal(t, 3, bytes.Count(log.Bytes(), []byte("level=WARN")), "%s", &log)
	require.Contains(t, log.String(), "field=driverfield.conn.moved off=\"this is off\"")
}

func TestTheLogNamesTheDriversModuleAndRelease(t *testing.T) {
	modules := []*debug.Module{
		{Path: "example.com/a", Version: "v1.0.0"},
		{Path: "example.com/ab/v5", Version: "v5.1.0"},
		{Path: "example.com/b", Version: "v1.2.0", Replace: &debug.Module{Path: "../b"}},
	}
	for path, want := range map[string][2]string{
		"example.com/a":           {"example.com/a", "v1.0.0"},
		"example.com/ab/v5/inner": {"example.com/ab/v5", "v5.1.0"},
		"example.com/b/c":         {"example.com/b", "../b"},
		"example.com/ab":          {"example.com/ab", "unknown"},
	} {
		module, release := moduleOf(path, modules)
		require.Equal(t, want, [2]string{module, release}, path)
	}
}
