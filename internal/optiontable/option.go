// Package optiontable describes the fields of a configuration in one table. Parsing,
// defaults, checks and printing follow from the table. C is the type of the configuration.
package optiontable

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/internal/bytesize"
)

// Option is one row of the table: a parameter of the DSN and the field that it sets.
type Option[C any] struct {
	Name    string // of the DSN's parameter
	Default string // as a DSN writes it
	Doc     string // one sentence for the documentation
	// Set writes a value to the field. Its error does not repeat the value.
	Set func(*C, string) error
	// Get is the field's value as a DSN writes it.
	Get func(*C) string
	// Check reports a value that makes no sense.
	Check func(*C) error
}

// Number is a whole number that is not below least.
func Number[C any](name, value string, least int, doc string, field func(*C) *int) Option[C] {
	return Option[C]{
		Name: name, Default: value, Doc: doc,
		Set: func(c *C, s string) error {
			n, err := strconv.Atoi(s)
			if err != nil {
				return errors.New("wants a whole number")
			}
			*field(c) = n
			return nil
		},
		Get: func(c *C) string { return strconv.Itoa(*field(c)) },
		Check: func(c *C) error {
			if n := *field(c); n < least {
				return fmt.Errorf("%d is too small; the least is %d", n, least)
			}
			return nil
		},
	}
}

// Flag is true or false.
func Flag[C any](name, value, doc string, field func(*C) *bool) Option[C] {
	return Option[C]{
		Name: name, Default: value, Doc: doc,
		Set: func(c *C, s string) error {
			on, err := strconv.ParseBool(s)
			if err != nil {
				return errors.New("wants true or false")
			}
			*field(c) = on
			return nil
		},
		Get:   func(c *C) string { return strconv.FormatBool(*field(c)) },
		Check: func(*C) error { return nil },
	}
}

// List is a list of words. A DSN has commas between them.
func List[C any](name, value, doc string, field func(*C) *[]string) Option[C] {
	return Option[C]{
		Name: name, Default: value, Doc: doc,
		Set: func(c *C, s string) error {
			var list []string
			for word := range strings.SplitSeq(s, ",") {
				if word = strings.TrimSpace(word); word != "" {
					list = append(list, word)
				}
			}
			*field(c) = list
			return nil
		},
		Get:   func(c *C) string { return strings.Join(*field(c), ",") },
		Check: func(*C) error { return nil },
	}
}

// Duration is a duration that is not below least.
func Duration[C any](name, value string, least time.Duration, doc string, field func(*C) *time.Duration) Option[C] {
	return Option[C]{
		Name: name, Default: value, Doc: doc,
		Set: func(c *C, s string) error {
			d, err := time.ParseDuration(s)
			if err != nil {
				return errors.New("wants a duration with its unit, such as 30s or 5m")
			}
			*field(c) = d
			return nil
		},
		Get: func(c *C) string { return field(c).String() },
		Check: func(c *C) error {
			if d := *field(c); d < least {
				return fmt.Errorf("%v is too short; the least is %v", d, least)
			}
			return nil
		},
	}
}

// Word is one of several words. The field is the word's index.
func Word[C any](name, value, doc string, words []string, field func(*C) *uint8) Option[C] {
	wants := "wants one of " + strings.Join(words, ", ")
	return Option[C]{
		Name: name, Default: value, Doc: doc + ": " + strings.Join(words, ", "),
		Set: func(c *C, s string) error {
			i := slices.Index(words, s)
			if i < 0 {
				return errors.New(wants)
			}
			*field(c) = uint8(i)
			return nil
		},
		Get: func(c *C) string {
			if i := int(*field(c)); i < len(words) {
				return words[i]
			}
			return strconv.Itoa(int(*field(c)))
		},
		Check: func(c *C) error {
			if int(*field(c)) >= len(words) {
				return errors.New(wants)
			}
			return nil
		},
	}
}

// Bytes is a number of bytes, with or without a unit.
func Bytes[C any](name, value, doc string, field func(*C) *int64) Option[C] {
	return Option[C]{
		Name: name, Default: value, Doc: doc,
		Set: func(c *C, s string) error {
			n, err := bytesize.Parse(s)
			if err == nil {
				*field(c) = n
			}
			return err
		},
		Get: func(c *C) string { return bytesize.Format(*field(c)) },
		Check: func(c *C) error {
			if n := *field(c); n < 0 {
				return fmt.Errorf("%d bytes are too few; the least is 0", n)
			}
			return nil
		},
	}
}

// WordOf is how a DSN spells the value i of an option of words.
func WordOf[M ~uint8](words []string, i M) string {
	if int(i) < len(words) {
		return words[i]
	}
	_, name, _ := strings.Cut(fmt.Sprintf("%T", i), ".")
	return fmt.Sprintf("%s(%d)", name, uint8(i))
}
