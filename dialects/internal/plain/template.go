// Package plain is a template and a session made of nothing but what
// database/sql/driver promises of every driver. The generic dialect consists
// of it; the others embed it where they are given somebody else's connector
// and override what they know better.
package plain

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/redact"
)

// Template dials by a connector of somebody else's. It prints as its target: a
// connector's fields may hold a password.
type Template struct {
	redact.Label
	connector driver.Connector
}

// NewTemplate makes a template of c. target is what Target answers.
func NewTemplate(c driver.Connector, target string) *Template {
	return &Template{Label: redact.Label(target), connector: c}
}

// PoolParams is empty: there is no DSN.
func (t *Template) PoolParams() []dialects.Param { return nil }

// Target is the one given to NewTemplate.
func (t *Template) Target() string { return t.String() }

// Driver is the connector's.
func (t *Template) Driver() driver.Driver { return t.connector.Driver() }

// Traits are those of a driver of which nothing is known.
func (t *Template) Traits() dialects.Traits { return dialects.Traits{} }

// TakesCredential is false: the connector has its own.
func (t *Template) TakesCredential() bool { return false }

// Dial connects by the connector.
func (t *Template) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	conn, err := t.Connect(ctx, cred)
	if err != nil {
		return nil, err
	}
	return NewSession(conn, t.Target()), nil
}

// Connect is Dial for those who make another session of the connection.
func (t *Template) Connect(ctx context.Context, cred *dialects.Credential) (driver.Conn, error) {
	if cred != nil {
		return nil, errors.New("a wrapped connector cannot be given a credential; use a DSN instead of Wrap")
	}
	return t.connector.Connect(ctx)
}

// Close closes the connector if it wants that, as sql.DB.Close does.
func (t *Template) Close() error {
	if c, ok := t.connector.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
