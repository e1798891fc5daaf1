package pooldriver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"runtime/debug"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/bounded"
	"github.com/pooldriver/pooldriver/pool"
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
	network.DialNetworkBy(boundedDial(c.config.Dial))
	return nil
}

var errNoConn = errors.New("Config.Dial has returned neither a connection nor an error")

// boundedDial is dial for as long as its context lasts, and hookGrace. It returns a
// connection or an error, whatever dial does. A connection that comes late is closed.
func boundedDial(dial dialects.DialFunc) dialects.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		var nc net.Conn
		running, err := bounded.Call(ctx, hookGrace, func() (err error) {
			switch nc, err = dial(ctx, network, address); {
			case err != nil:
				return fmt.Errorf("Config.Dial: %w", err)
			case isNil(nc):
				return errNoConn
			}
			return nil
		}, func(value any) error {
			return &pool.PanicError{Hook: "Config.Dial", Value: value, Stack: debug.Stack()}
		})
		if running != nil {
			go func() {
				if <-running == nil {
					_ = nc.Close()
				}
			}()
			return nil, fmt.Errorf("Config.Dial does not return, although its context has ended: %w", ctx.Err())
		}
		if err != nil {
			return nil, err
		}
		return nc, nil
	}
}

// isNil reports whether nc is nil, or a nil pointer that looks like a connection.
func isNil(nc net.Conn) bool {
	if nc == nil {
		return true
	}
	v := reflect.ValueOf(nc)
	return v.Kind() == reflect.Pointer && v.IsNil()
}
