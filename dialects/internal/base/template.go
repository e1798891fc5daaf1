// Package base is the base driver: a template and a session made of nothing but what
// database/sql/driver promises of every driver. The generic dialect consists of them.
// The other dialects embed them and override what they know better.
package base

import (
	"context"
	"database/sql/driver"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/redact"
	"github.com/pooldriver/pooldriver/internal/unwrap"
)

// Destination is where a template's connections lead, and what its DSN says to the pool.
// Every template embeds it, and prints as its target: its other fields may hold a
// password.
type Destination struct {
	redact.Label
	params []dialects.Param
	driver []dialects.Param // the driver's parameters without secrets, for errors and logs
}

// NewDestination makes a Destination.
func NewDestination(target string, params []dialects.Param) Destination {
	return Destination{Label: redact.Label(target), params: params}
}

// notShown stands for a value that may be a secret.
const notShown = "(not shown)"

// Tell notes what the DSN says to the driver. A value is shown if its name is in shown, a list
// separated by white space.
func (d *Destination) Tell(all []dialects.Param, shown string) {
	for _, p := range all {
		if !slices.Contains(strings.Fields(shown), strings.ToLower(p.Name)) {
			p.Value = notShown
		}
		d.driver = append(d.driver, p)
	}
}

// DriverParams implements dialects.ParamLister.
func (d *Destination) DriverParams() []dialects.Param { return d.driver }

// PoolParams are the parameters of the DSN that belong to the pool.
func (d *Destination) PoolParams() []dialects.Param { return d.params }

// Target says where connections go.
func (d *Destination) Target() string { return d.String() }

// Close has nothing to free.
func (d *Destination) Close() error { return nil }

// Template dials by a connector that the program has made.
type Template struct {
	Destination
	connector driver.Connector
}

// Wrap makes a template of c, unless c pools. target is the result of Target.
func Wrap(c driver.Connector, target string) (*Template, error) {
	for _, c := range []driver.Connector{c, unwrap.Connector(c)} {
		if err := refusePool(c); err != nil {
			return nil, err
		}
	}
	return &Template{NewDestination(target, nil), c}, nil
}

// Driver is the connector's driver.
func (t *Template) Driver() driver.Driver { return t.connector.Driver() }

// Traits are the traits of an unknown driver.
func (t *Template) Traits() dialects.Traits { return dialects.Traits{StatementsOwned: true} }

// TakesCredential is false: the connector has its own credential.
func (t *Template) TakesCredential() bool { return false }

// Dial connects by the connector.
func (t *Template) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	conn, err := t.Connect(ctx, cred)
	if err != nil {
		return nil, err
	}
	return NewSession(conn, t.Target()), nil
}

// Connect returns the driver's connection, for a dialect that makes a session of its own of it.
func (t *Template) Connect(ctx context.Context, cred *dialects.Credential) (driver.Conn, error) {
	if cred != nil {
		return nil, errors.New("a wrapped connector cannot be given a credential; use a DSN instead of Wrap")
	}
	return t.connector.Connect(ctx)
}

// Close closes the connector if it is an io.Closer, as sql.DB.Close does.
func (t *Template) Close() error {
	if c, ok := t.connector.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
