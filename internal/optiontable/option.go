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
	// Of has the default of a dialect, by its name, where that is another one.
	Of  map[string]string
	Doc string // one sentence for the documentation
	// Set writes a value to the field. Its error does not repeat the value.
	Set func(*C, string) error
	// Get is the field's value as a DSN writes it.
	Get func(*C) string
	// Check reports a value that makes no sense.
	Check func(*C) error
}

// DefaultOf is the default for a dialect; "": of none.
func (o Option[C]) DefaultOf(dialect string) string {
	if value, ok := o.Of[dialect]; ok {
		return value
	}
	return o.Default
}

// option is an option whose value parse reads, and format writes. check reports a value that makes no sense.
func option[C, V any](name, value, doc string, field func(*C) *V, parse func(string) (V, error), format func(V) string, check func(V) error) Option[C] {
	return Option[C]{
		Name: name, Default: value, Doc: doc,
		Set: func(c *C, s string) error {
			v, err := parse(s)
			if err == nil {
				*field(c) = v
			}
			return err
		},
		Get:   func(c *C) string { return format(*field(c)) },
		Check: func(c *C) error { return check(*field(c)) },
	}
}

// wanting wraps parse: the error says what is wanted, and does not repeat the value.
func wanting[V any](what string, parse func(string) (V, error)) func(string) (V, error) {
	return func(s string) (V, error) {
		v, err := parse(s)
		if err != nil {
			err = errors.New("wants " + what)
		}
		return v, err
	}
}

// anyValue accepts every value.
func anyValue[V any](V) error { return nil }

// Number is a whole number that is not below least.
func Number[C any](name, value string, least int, doc string, field func(*C) *int) Option[C] {
	return option(name, value, doc, field, wanting("a whole number", strconv.Atoi), strconv.Itoa, func(n int) error {
		if n < least {
			return fmt.Errorf("%d is too small; the least is %d", n, least)
		}
		return nil
	})
}

// Flag is true or false.
func Flag[C any](name, value, doc string, field func(*C) *bool) Option[C] {
	return option(name, value, doc, field, wanting("true or false", strconv.ParseBool), strconv.FormatBool, anyValue)
}

// List is a list of words. A DSN has commas between them.
func List[C any](name, value, doc string, field func(*C) *[]string) Option[C] {
	return option(name, value, doc, field, func(s string) (list []string, _ error) {
		for word := range strings.SplitSeq(s, ",") {
			if word = strings.TrimSpace(word); word != "" {
				list = append(list, word)
			}
		}
		return list, nil
	}, func(list []string) string { return strings.Join(list, ",") }, anyValue)
}

// Duration is a duration that is not below least.
func Duration[C any](name, value string, least time.Duration, doc string, field func(*C) *time.Duration) Option[C] {
	return option(name, value, doc, field, wanting("a duration with its unit, such as 30s or 5m", time.ParseDuration), time.Duration.String, func(d time.Duration) error {
		if d < least {
			return fmt.Errorf("%v is too short; the least is %v", d, least)
		}
		return nil
	})
}

// Word is one of several words. The field is the word's index.
func Word[C any](name, value, doc string, words []string, field func(*C) *uint8) Option[C] {
	list := strings.Join(words, ", ")
	wants := errors.New("wants one of " + list)
	return option(name, value, doc+": "+list, field, func(s string) (uint8, error) {
		i := slices.Index(words, s)
		if i < 0 {
			return 0, wants
		}
		return uint8(i), nil
	}, func(i uint8) string {
		if int(i) < len(words) {
			return words[i]
		}
		return strconv.Itoa(int(i))
	}, func(i uint8) error {
		if int(i) >= len(words) {
			return wants
		}
		return nil
	})
}

// Bytes is a number of bytes, with or without a unit.
func Bytes[C any](name, value, doc string, field func(*C) *int64) Option[C] {
	return option(name, value, doc, field, bytesize.Parse, bytesize.Format, func(n int64) error {
		if n < 0 {
			return fmt.Errorf("%d bytes are too few; the least is 0", n)
		}
		return nil
	})
}

// WordOf is how a DSN spells the value i of an option of words.
func WordOf[M ~uint8](words []string, i M) string {
	if int(i) < len(words) {
		return words[i]
	}
	_, name, _ := strings.Cut(fmt.Sprintf("%T", i), ".")
	return fmt.Sprintf("%s(%d)", name, uint8(i))
}
