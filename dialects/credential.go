package dialects

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/pooldriver/pooldriver/internal/redact"
)

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
	s := "user=" + c.User + " password=" + redact.Mask
	if !c.Expires.IsZero() {
		s += " expires=" + c.Expires.Format(time.RFC3339)
	}
	return s
}

func (c Credential) label() redact.Label { return redact.Label(c.String()) }

// Format prints String for every verb.
func (c Credential) Format(f fmt.State, verb rune) { c.label().Format(f, verb) }

// MarshalText is String, for encoding/json.
func (c Credential) MarshalText() ([]byte, error) { return c.label().MarshalText() }

// LogValue is String, for log/slog.
func (c Credential) LogValue() slog.Value { return c.label().LogValue() }
