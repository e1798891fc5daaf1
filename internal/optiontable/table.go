package optiontable

import (
	"fmt"
	"slices"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
)

// Table is the rows, in the order of the documentation.
type Table[C any] []Option[C]

// Default is a configuration with every row's default for a dialect; "": of none. If a row's default is
// no valid value of the row, Default panics: this is a mistake in the program.
func (t Table[C]) Default(dialect string) C {
	var c C
	for _, o := range t {
		if err := o.Set(&c, o.DefaultOf(dialect)); err != nil {
			panic("pooldriver: default of " + o.Name + ": " + err.Error())
		}
	}
	return c
}

// Apply sets the fields that a DSN's parameters name. An error names the parameter and
// never its value: a mistyped DSN may have anything there. An error names an unknown parameter only
// if the name is close to a known name, or can be the name of a parameter of the pool: otherwise it
// may be a part of a password.
func (t Table[C]) Apply(c *C, params []dialects.Param) error {
	seen := make(map[string]bool)
	for _, p := range params {
		i := slices.IndexFunc(t, func(o Option[C]) bool { return o.Name == p.Name })
		if i < 0 {
			if near, ok := t.near(p.Name); ok {
				return fmt.Errorf("unknown parameter %s in the DSN; did you mean %s?", p.Name, near)
			}
			name := "pool_…"
			if dialects.IsPoolParam(p.Name) {
				name = p.Name
			}
			return fmt.Errorf("unknown parameter %s in the DSN; the known ones are %s", name, t.names())
		}
		if seen[p.Name] {
			return fmt.Errorf("the DSN has the parameter %s twice; leave one of them out", p.Name)
		}
		seen[p.Name] = true
		if err := t[i].Set(c, p.Value); err != nil {
			return fmt.Errorf("the DSN's parameter %s %w", p.Name, err)
		}
	}
	return nil
}

// mostSlips is how many characters of a name may be wrong, missing or too many.
const mostSlips = 2

// near returns the known name that differs from name by mostSlips at the most, and by a
// quarter of its length at the most.
func (t Table[C]) near(name string) (known string, ok bool) {
	best := mostSlips + 1
	for _, o := range t {
		if d := distance(name, o.Name); d < best && 4*d <= len(o.Name) {
			best, known = d, o.Name
		}
	}
	return known, known != ""
}

// distance is the least number of bytes to insert, delete or replace in a to get b (Levenshtein).
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Check reports the first field whose value makes no sense.
func (t Table[C]) Check(c *C) error {
	for _, o := range t {
		if err := o.Check(c); err != nil {
			return fmt.Errorf("%s: %w", o.Name, err)
		}
	}
	return nil
}

// Text lists all parameters with their values, as name=value.
func (t Table[C]) Text(c *C) string {
	var settings []string
	for _, o := range t {
		settings = append(settings, o.Name+"="+o.Get(c))
	}
	return strings.Join(settings, " ")
}

func (t Table[C]) names() string {
	var names []string
	for _, o := range t {
		names = append(names, o.Name)
	}
	return strings.Join(names, ", ")
}
