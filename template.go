package pooldriver

import (
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/generic"
	"github.com/pooldriver/pooldriver/internal/connpool"
	"github.com/pooldriver/pooldriver/internal/unwrap"
)

// A template makes the real connections of a Connector. It comes from a DSN or from a wrapped connector.

// parse finds the dialect of a DSN and makes its template. It sets the fields of c to the dialect's defaults and
// to what the DSN says.
func (c *Config) parse(dsn string) (dialects.Dialect, dialects.Template, error) {
	d, err := dialects.Find(dsn)
	if err != nil {
		return nil, nil, fmt.Errorf("pooldriver: %w", err)
	}
	t, err := d.Parse(dsn)
	if err != nil {
		return nil, nil, fmt.Errorf("pooldriver: the DSN for %s: %w", d.Name(), err)
	}
	*c = defaultConfig(d.Name())
	if err := c.apply(t.PoolParams()); err != nil {
		return nil, nil, fmt.Errorf("pooldriver: %w", err)
	}
	return d, t, nil
}

// wrapped makes a template of inner, and finds its dialect.
func wrapped(inner driver.Connector) (dialects.Dialect, dialects.Template, error) {
	switch unwrap.Connector(inner).(type) {
	case nil:
		return nil, nil, errors.New("pooldriver: Wrap was given no connector")
	case *Connector:
		return nil, nil, errWrapSelf
	}
	d, t, err := dialects.Wrap(inner, generic.Dialect{})
	_, unknown := d.(generic.Dialect)
	if _, own := t.(dialects.OwnDialect); unknown && !own && err == nil {
		d, t, err = dialects.Wrap(unwrap.Shown(inner), generic.Dialect{})
	}
	if err != nil {
		return nil, nil, fmt.Errorf("pooldriver: Wrap: %w", err)
	}
	return d, t, nil
}

// fit reports a field of c that the template cannot use, and gives Config.Dial to the template.
func (c *Config) fit(d dialects.Dialect, t dialects.Template) error {
	if c.Credentials != nil && !t.TakesCredential() {
		return fmt.Errorf("pooldriver: Config.Credentials cannot be used with this %s connection: pooldriver does not give it a user and password; leave Config.Credentials out, or use New with a DSN for PostgreSQL, MySQL or ODBC", d.Name())
	}
	if c.Pipeline > 0 && !t.Traits().Pipelines {
		return fmt.Errorf("pooldriver: pool_pipeline cannot be used with this %s connection: only PostgreSQL has pipelines; leave pool_pipeline out", d.Name())
	}
	if c.Dial == nil {
		return nil
	}
	network, ok := t.(dialects.NetworkTemplate)
	if !ok {
		return fmt.Errorf("pooldriver: Config.Dial cannot be used with this %s connection: pooldriver opens no network connection for it; leave Config.Dial out, or use New with a DSN for PostgreSQL or MySQL", d.Name())
	}
	network.DialNetworkBy(connpool.BoundedDial(c.Dial))
	return nil
}
