// Package ctxsettings has the session settings that a program puts into a context: they are
// in force for the statements of that context.
package ctxsettings

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"unicode/utf8"

	"github.com/pooldriver/pooldriver/dialects"
)

// Settings are the settings of a context. They do not change.
type Settings struct {
	list []dialects.ContextSetting // by name, each name once
	err  error
}

type key struct{}

// used is true as soon as a context has settings. Until then no statement looks for them.
var used atomic.Bool

// Used reports whether any context has settings.
func Used() bool { return used.Load() }

// With returns a context with the settings of ctx and values. If a name is in both, its value in
// values counts. Without values With returns ctx.
func With(ctx context.Context, values map[string]string) context.Context {
	if len(values) == 0 {
		return ctx
	}
	all := make(map[string]string)
	var err error
	if outer := Of(ctx); outer != nil {
		for _, s := range outer.list {
			all[s.Name] = s.Value
		}
		err = outer.err
	}
	maps.Copy(all, values)
	s := &Settings{err: err, list: make([]dialects.ContextSetting, 0, len(all))}
	for name, value := range all {
		s.list = append(s.list, dialects.ContextSetting{Name: name, Value: value})
	}
	slices.SortFunc(s.list, func(a, b dialects.ContextSetting) int { return cmp.Compare(a.Name, b.Name) })
	for _, setting := range s.list {
		if s.err == nil {
			s.err = check(setting)
		}
	}
	used.Store(true)
	return context.WithValue(ctx, key{}, s)
}

// Of returns the settings of ctx, nil if it has none.
func Of(ctx context.Context) *Settings {
	s, _ := ctx.Value(key{}).(*Settings)
	return s
}

// List returns the settings, sorted by name. It is empty if s is nil. The error names a setting
// that no database can have.
func (s *Settings) List() ([]dialects.ContextSetting, error) {
	if s == nil {
		return nil, nil
	}
	return s.list, s.err
}

// String keeps package fmt from printing values.
func (s *Settings) String() string { return "pooldriver.Settings" }

// GoString is String, for %#v.
func (s *Settings) GoString() string { return s.String() }

// maxName is PostgreSQL's limit for a name, which is lower than MySQL's.
const maxName = 63

// syntax is what both PostgreSQL and MySQL accept as a name without quotes. Lower case only:
// PostgreSQL ignores the case, and a context must not have one setting twice.
var syntax = regexp.MustCompile(`^[a-z_][a-z0-9_]*(\.[a-z_][a-z0-9_]*)*$`)

func check(s dialects.ContextSetting) error {
	switch {
	case len(s.Name) > maxName || !syntax.MatchString(s.Name):
		return fmt.Errorf("%.*q is not the name of a setting: use lower-case letters, digits and underscores, with dots between words, %d bytes at the most, such as app.tenant", maxName, s.Name, maxName)
	case strings.ContainsRune(s.Value, 0) || !utf8.ValidString(s.Value):
		return fmt.Errorf("the value of %s is not UTF-8, or has a zero byte: no database takes it", s.Name)
	}
	return nil
}
