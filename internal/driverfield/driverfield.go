// Package driverfield reads private fields of drivers. A driver has some things that a pool has to
// know and that it tells nobody: which rows are behind its rows, or what its server has said of a
// transaction. docs/adr/0045 names each such field, and what is off without it.
package driverfield

import (
	"log/slog"
	"reflect"
	"runtime/debug"
	"strings"
	"sync"
	"unsafe"
)

// Field is a private field of type T in a struct of a driver. A number of T's size is a T.
type Field[T any] struct {
	of     reflect.Type
	name   string
	off    string // what the program loses without it
	offset uintptr
	found  bool
}

// Of finds the field of a struct. off says what is off if the driver's release has no such field, or
// has one of another type there.
func Of[T any](of reflect.Type, name, off string) Field[T] {
	f := Field[T]{of: of, name: name, off: off}
	t := reflect.TypeFor[T]()
	if s, ok := of.FieldByName(name); ok && len(s.Index) == 1 && (s.Type == t || isNumber(t) && s.Type.Kind() == t.Kind()) {
		f.offset, f.found = s.Offset, true
	}
	return f
}

func isNumber(t reflect.Type) bool {
	return t.PkgPath() == "" && t.Kind() >= reflect.Int && t.Kind() <= reflect.Complex128
}

// Known reports whether the driver's release has the field. The first time that it has not, the log
// says so, once for each field in a process.
func (f *Field[T]) Known() bool {
	if !f.found {
		f.tell()
	}
	return f.found
}

// In returns the field in the struct at p, for as long as the struct is used. The field is Known, and the
// struct has the type that was given to Of.
func (f *Field[T]) In(p unsafe.Pointer) *T { return (*T)(unsafe.Add(p, f.offset)) }

var told sync.Map // by type and name of the field

// tell writes to slog.Default: a dialect knows no Connector, and the driver is the same for all.
func (f *Field[T]) tell() {
	if _, before := told.LoadOrStore(f.of.String()+"."+f.name, true); before {
		return
	}
	module, release := f.of.PkgPath(), "unknown"
	if build, ok := debug.ReadBuildInfo(); ok {
		module, release = moduleOf(module, build.Deps)
	}
	slog.Warn("pooldriver: the driver's release is not known: it has no such private field, so a part of pooldriver is off; use the release in pooldriver's go.mod",
		"driver", module, "release", release, "field", f.of.String()+"."+f.name, "off", f.off)
}

// moduleOf returns the one of the modules that has the package, and its release.
func moduleOf(path string, modules []*debug.Module) (module, release string) {
	for _, m := range modules {
		if path != m.Path && !strings.HasPrefix(path, m.Path+"/") {
			continue
		}
		if m.Replace != nil {
			return m.Path, strings.TrimSpace(m.Replace.Path + " " + m.Replace.Version)
		}
		return m.Path, m.Version
	}
	return path, "unknown"
}
