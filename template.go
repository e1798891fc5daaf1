package pooldriver

import (
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/generic"
	"github.com/pooldriver/pooldriver/internal/unwrap"
)

// From a DSN or a wrapped connector to a template.

// parse makes c the connector of a DSN.
func (c *Connector) parse(dsn string, options []Option) error {
	d, err := dialects.Find(dsn)
	if err != nil {
		return fmt.Errorf("pooldriver: %w", err)
	}
	t, err := d.Parse(dsn)
	if err != nil {
		return fmt.Errorf("pooldriver: the DSN for %s: %w", d.Name(), err)
	}
	if err := c.config.apply(t.PoolParams()); err != nil {
		return fmt.Errorf("pooldriver: %w", err)
	}
	return c.use(d, t, options)
}

// wrap makes c the connector that pools the connections of inner.
func (c *Connector) wrap(inner driver.Connector, options []Option) error {
	switch unwrap.Connector(inner).(type) {
	case nil:
		return errors.New("pooldriver: Wrap was given no connector")
	case *Connector:
		return errWrapSelf
	}
	d, t, err := dialects.Wrap(inner, generic.Dialect{})
	if _, unknown := d.(generic.Dialect); unknown && err == nil {
		d, t, err = dialects.Wrap(unwrap.Shown(inner), generic.Dialect{})
	}
	if err != nil {
		return fmt.Errorf("pooldriver: Wrap: %w", err)
	}
	return c.use(d, t, options)
}
