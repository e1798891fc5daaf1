package conformance

import (
	"context"
	"crypto/sha256"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"time"
)

// describe tells a value and its type. Long values are told by a digest.
func describe(v any) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case error:
		return describeError(v)
	case time.Time:
		// The offset counts; whether the zone has a name depends on the
		// machine, not on the driver.
		return "time.Time(" + v.Format("2006-01-02T15:04:05.999999999Z07:00") + ")"
	case []byte:
		if v == nil {
			return "[]byte(nil)"
		}
		return "[]byte(" + shorten(string(v)) + ")"
	case string:
		return "string(" + shorten(v) + ")"
	}
	if b, ok := v.(sql.RawBytes); ok {
		if b == nil {
			return "sql.RawBytes(nil)"
		}
		return "sql.RawBytes(" + shorten(string(b)) + ")"
	}
	return fmt.Sprintf("%T(%s)", v, shorten(fmt.Sprintf("%+v", v)))
}

func shorten(s string) string {
	if len(s) <= 200 {
		return fmt.Sprintf("%q", s)
	}
	return fmt.Sprintf("%d bytes, sha256 %.8x", len(s), sha256.Sum256([]byte(s)))
}

var sentinels = []struct {
	name string
	err  error
}{
	{"sql.ErrNoRows", sql.ErrNoRows},
	{"sql.ErrTxDone", sql.ErrTxDone},
	{"sql.ErrConnDone", sql.ErrConnDone},
	{"driver.ErrBadConn", driver.ErrBadConn},
	{"driver.ErrSkip", driver.ErrSkip},
	{"driver.ErrRemoveArgument", driver.ErrRemoveArgument},
	{"context.Canceled", context.Canceled},
	{"context.DeadlineExceeded", context.DeadlineExceeded},
	{"io.EOF", io.EOF},
	{"io.ErrUnexpectedEOF", io.ErrUnexpectedEOF},
	{"errBoom", errBoom},
}

// address is a pointer, which some error texts have and no two runs share.
var address = regexp.MustCompile(`0x[0-9a-f]{6,}`)

// describeError tells the text of an error, its types down the chain, and
// which well-known errors it is.
func describeError(err error) string {
	if err == nil {
		return "no error"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "error %q", address.ReplaceAllString(err.Error(), "0x…"))
	for link := err; link != nil; link = errors.Unwrap(link) {
		fmt.Fprintf(&b, " <%T>", link)
	}
	for _, s := range sentinels {
		switch {
		case err == s.err:
			b.WriteString(" == " + s.name)
		case errors.Is(err, s.err):
			b.WriteString(" is " + s.name)
		}
	}
	return b.String()
}

func describeIs(err error, targets []error) string {
	if err == nil {
		return "no error"
	}
	var is []string
	for _, target := range targets {
		if errors.Is(err, target) {
			is = append(is, target.Error())
		}
	}
	if len(is) == 0 {
		return "none of them: " + err.Error()
	}
	return "is " + strings.Join(is, ", ")
}

// pointee is what a destination of Scan points to, through every pointer.
func pointee(dest any) any {
	v := reflect.ValueOf(dest)
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	return v.Interface()
}

func typeName(v any) string { return fmt.Sprintf("%T", v) }
