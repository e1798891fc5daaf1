package dialects

import (
	"fmt"
	"io"
	"log/slog"
	"time"
)

const redacted = "xxxxx"

// Credential is a user and password together, with the time until which they
// are good. No way of printing it shows the password.
type Credential struct {
	User     string
	Password string
	// Expires is when the password stops working; zero: not known.
	Expires time.Time
}

// String shows the user and the expiry.
func (c Credential) String() string {
	s := "user=" + c.User + " password=" + redacted
	if !c.Expires.IsZero() {
		s += " expires=" + c.Expires.Format(time.RFC3339)
	}
	return s
}

// Format implements fmt.Formatter for every verb: %#v would reach the fields.
func (c Credential) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, c.String()) }

// MarshalText shows what String shows; encoding/json uses it.
func (c Credential) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// LogValue shows what String shows.
func (c Credential) LogValue() slog.Value { return slog.StringValue(c.String()) }
