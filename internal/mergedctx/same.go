package mergedctx

import (
	"context"
	"unsafe"
)

// IsSame reports whether two contexts are known to be the same one: they have the same type and the same
// data. The operator == would panic if the program's type cannot be compared, and reflect.Value.Comparable
// takes longer than the rest of what a statement asks its context. So IsSame compares the two words of
// the interface values. TestIsSame fails on a release of Go whose interface values are something else.
func IsSame(a, b *context.Context) bool {
	return *(*[2]uintptr)(unsafe.Pointer(a)) == *(*[2]uintptr)(unsafe.Pointer(b)) //nolint:gosec // it looks at no other memory
}
