// Package redact keeps secrets out of all printed forms of a value.
//
// A type that holds a secret prints as a Label. The type embeds a Label or, if its text depends on
// its fields, makes a Label in its methods Format, MarshalText and LogValue.
package redact

import (
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Label is all that a value shows of itself. A struct that embeds a Label prints as the Label under
// every verb of fmt, in encoding/json and in log/slog. Its other fields, which may hold a password,
// are never reached.
type Label string

// String is the label.
func (l Label) String() string { return string(l) }

// Format implements fmt.Formatter for every verb: %#v and %+v would otherwise
// walk the fields of the struct.
func (l Label) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, string(l)) }

// MarshalText is what encoding/json and similar packages use.
func (l Label) MarshalText() ([]byte, error) { return []byte(l), nil }

// LogValue is what log/slog uses.
func (l Label) LogValue() slog.Value { return slog.StringValue(string(l)) }

// Mask stands for a secret.
const Mask = "xxxxx"

// Strike replaces a secret in a text. An empty secret is no secret.
func Strike(text, secret string) string {
	if secret == "" {
		return text
	}
	return strings.ReplaceAll(text, secret, Mask)
}
