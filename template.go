package pooldriver

import (
	"fmt"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/connpool"
)

// useDial gives Config.Dial to the template.
func (c *core) useDial(d dialects.Dialect, t dialects.Template) error {
	if c.config.Dial == nil {
		return nil
	}
	network, ok := t.(dialects.NetworkTemplate)
	if !ok {
		return fmt.Errorf("pooldriver: Config.Dial cannot be used with this %s connection: pooldriver opens no network connection for it; leave Config.Dial out, or use New with a DSN for PostgreSQL or MySQL", d.Name())
	}
	network.DialNetworkBy(connpool.BoundedDial(c.config.Dial))
	return nil
}
