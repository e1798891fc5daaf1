// Package bytesize writes and reads numbers of bytes as people do: 64KiB, 16MiB.
package bytesize

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// units are the units of sizes, the largest first.
var units = []struct {
	name string
	size int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// Format writes n in the largest unit of which n is a whole number, or without a unit.
func Format(n int64) string {
	for _, u := range units {
		if n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// suspicious: below this number of bytes, a number without a unit counts as a number whose unit was
// forgotten.
const suspicious = 4096

// Parse reads what Format writes.
func Parse(s string) (int64, error) {
	unit, named := int64(1), false
	for _, u := range units {
		if digits, ok := strings.CutSuffix(s, u.name); ok {
			s, unit, named = digits, u.size, true
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n > math.MaxInt64/unit {
		return 0, errors.New("wants a number of bytes, such as 65536, 64KiB or 16MiB")
	}
	if !named && 0 < n && n < suspicious {
		return 0, errors.New("has a number without a unit, which is bytes, and so few are probably a slip; write the unit, as in 16MiB, 64KiB or 100B")
	}
	return n * unit, nil
}
