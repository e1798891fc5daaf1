//go:build odbc && cgo

package odbc

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/base"
	"github.com/pooldriver/pooldriver/internal/pause"
)

// template opens connections by a connection string, or by the connector of another package. It
// prints as its target: both may hold a password.
type template struct {
	base.Destination
	source
	connector *base.Template // nil: the connection string
	dialect   deciding
	mode      atomic.Int32 // of PostgreSQL's ODBC driver; 0: not known yet

	ask asker // nil if there is no credential but the DSN's
}

var (
	_ dialects.OwnDialect      = (*template)(nil)
	_ dialects.CredentialAsker = (*template)(nil)
)

func newTemplate(src source) *template {
	return &template{Destination: base.NewDestination(src.target, src.params), source: src}
}

func wrap(c driver.Connector) (dialects.Template, error) {
	t, err := base.Wrap(c, "odbc by a connector")
	if err != nil {
		return nil, err
	}
	return &template{Destination: t.Destination, connector: t}, nil
}

func (t *template) Dialect() dialects.Dialect { return &t.dialect }

func (t *template) Driver() driver.Driver {
	if t.connector != nil {
		return t.connector.Driver()
	}
	return registeredDriver()
}

// Traits of the driver, whatever the database. Statements end with their conn.
func (t *template) Traits() dialects.Traits {
	return dialects.Traits{BadConnUnsure: true, Reprepares: true, StatementsEndWithSession: true}
}

// AskCredentials: ask is called when the database refuses a connection that would end another
// connection.
func (t *template) AskCredentials(ask func(context.Context, dialects.Credential) (dialects.Credential, error)) {
	t.ask = ask
}

func (t *template) TakesCredential() bool { return t.connector == nil }

func (t *template) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	if err := refuseManagerPooling(); err != nil {
		return nil, err
	}
	how := dialer{template: t, cred: cred}
	bare, err := how.dial(ctx)
	if err != nil {
		return nil, err
	}
	s := newSession(newConn(bare), how)
	if err := s.findDatabase(ctx); err == nil {
		err = t.dialect.decide(s.database)
		if err == nil {
			return s, nil
		}
		_ = s.Close(ctx)
		return nil, err
	}
	_ = s.Close(ctx)
	return nil, how.explain(err)
}

// Close closes the connector, if there is one.
func (t *template) Close() error {
	if t.connector == nil {
		return nil
	}
	return t.connector.Close()
}

// dialer dials a connection, and dials once more to end that connection.
type dialer struct {
	template *template
	cred     *dialects.Credential
}

// text is the connection string, with the credential in place of the DSN's.
func (d dialer) text() (string, []string) {
	attributes := d.template.attributes
	secrets := attributes.secrets()
	if d.cred != nil {
		attributes = append(attributes.without(append(userKeys, passwordKeys...)...),
			braced("UID", d.cred.User, false), braced("PWD", d.cred.Password, true))
		secrets = append(secrets, attributes.secrets()...)
	}
	return attributes.text(), secrets
}

// tooManyPatience is how long a server without a free place is asked again. After a disconnect a
// server needs a moment to free the place.
const tooManyPatience = 250 * time.Millisecond

func (d dialer) dial(ctx context.Context) (driver.Conn, error) {
	began := time.Now()
	for {
		conn, err := d.dialOnce(ctx)
		if err == nil || !isTooMany(err) || time.Since(began) > tooManyPatience || ctx.Err() != nil {
			return conn, err
		}
		pause.For(ctx, 5*time.Millisecond)
	}
}

// dialOnce waits for the driver, which knows no context, no longer than ctx. A
// connection that comes late is closed.
func (d dialer) dialOnce(ctx context.Context) (driver.Conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	type outcome struct {
		conn driver.Conn
		err  error
	}
	done := make(chan outcome)
	go func() {
		var o outcome
		defer func() {
			if p := recover(); p != nil {
				o = outcome{err: fmt.Errorf("the driver panicked: %v", p)}
			}
			select {
			case done <- o:
			case <-ctx.Done():
				if o.conn != nil {
					_ = o.conn.Close()
				}
			}
		}()
		o.conn, o.err = d.open(ctx)
	}()
	select {
	case o := <-done:
		return o.conn, d.explain(o.err)
	case <-ctx.Done():
		return nil, fmt.Errorf("the ODBC driver has not connected in time: %w", ctx.Err())
	}
}

func (d dialer) open(ctx context.Context) (driver.Conn, error) {
	if c := d.template.connector; c != nil {
		return c.Connect(ctx, d.cred)
	}
	text, _ := d.text()
	return registeredDriver().Open(text)
}

// explain makes the error of a connect fit to be shown.
func (d dialer) explain(err error) error {
	if err == nil {
		return nil
	}
	_, secrets := d.text()
	return explainDial(scrub(err, secrets))
}

// killer dials for a connection that ends another. On MySQL it has no database: this marks it in
// the server's list.
func (d dialer) killer(inDatabase bool) dialer {
	if d.template.connector == nil && !inDatabase {
		src := d.template.source
		src.attributes = src.attributes.without(databaseKeys...)
		d.template = newTemplate(src)
	}
	return d
}

// asker returns the current credential. refused is a credential that the database does not accept.
type asker func(ctx context.Context, refused dialects.Credential) (dialects.Credential, error)

// dialNow dials with the credential at hand, and with the current credential if the database
// refuses the first.
func (d dialer) dialNow(ctx context.Context, db database, ask asker) (driver.Conn, error) {
	conn, err := d.dial(ctx)
	if ask == nil || d.cred == nil || db.diagnose(err)&dialects.AuthFailed == 0 {
		return conn, err
	}
	cred, failed := ask(ctx, *d.cred)
	if failed != nil {
		return nil, errors.Join(err, failed)
	}
	d.cred = &cred
	return d.dial(ctx)
}
