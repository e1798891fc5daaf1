// Package goroutine tells which goroutine calls, and in which bubble of testing/synctest it runs. Go has
// no function for either. Both are in the first line of the goroutine's stack:
//
//	goroutine 21 [running, synctest bubble 1]:
//
// That costs about a microsecond. If a release of Go writes another line, Number is 0, Bubble is empty,
// and the tests of this package fail.
package goroutine

import (
	"bytes"
	"runtime"
	"strconv"
)

// Number is the number of the calling goroutine.
func Number() uint64 {
	var buf [128]byte
	number, _, _ := bytes.Cut(bytes.TrimPrefix(line(buf[:]), []byte("goroutine ")), []byte(" "))
	n, _ := strconv.ParseUint(string(number), 10, 64)
	return n
}

// Bubble is the name of the bubble in which the calling goroutine runs; "": it runs in none.
func Bubble() string {
	var buf [128]byte
	_, after, found := bytes.Cut(line(buf[:]), []byte("synctest bubble "))
	if !found {
		return ""
	}
	name, _, _ := bytes.Cut(after, []byte("]"))
	return string(name)
}

// line is the first line of the stack, at most as long as buf.
func line(buf []byte) []byte { return buf[:runtime.Stack(buf, false)] }
