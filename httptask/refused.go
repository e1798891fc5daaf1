package httptask

import (
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/pooldriver/pooldriver"
)

// Refused answers a request whose statement was refused because of overload, if err says so
// (pooldriver.ErrOverloaded): with the status 503 (Service Unavailable) and a Retry-After. Otherwise it writes
// nothing and returns false.
//
//	if err != nil {
//		if !httptask.Refused(w, err) {
//			http.Error(w, "internal error", http.StatusInternalServerError)
//		}
//		return
//	}
//
// Nothing may have been written to w before.
func Refused(w http.ResponseWriter, err error) bool {
	refused, ok := errors.AsType[*pooldriver.AcquireError](err)
	if !ok || !errors.Is(refused, pooldriver.ErrOverloaded) {
		return false
	}
	seconds := (refused.RetryAfter + time.Second - 1) / time.Second // RFC 9110 knows whole seconds
	w.Header().Set("Retry-After", strconv.Itoa(int(seconds)))
	http.Error(w, http.StatusText(http.StatusServiceUnavailable), http.StatusServiceUnavailable)
	return true
}
