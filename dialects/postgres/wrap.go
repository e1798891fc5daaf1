package postgres

import (
	"context"
	"database/sql/driver"

	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/plain"
)

// wrapped is a template of somebody else's connector: pgx with hooks, or with a
// configuration that no DSN expresses. Nothing counts bytes under it.
type wrapped struct{ *plain.Template }

func wrap(c driver.Connector) (dialects.Template, error) {
	if c == nil {
		return nil, dialects.ErrNotMine
	}
	if _, ok := c.Driver().(*stdlib.Driver); !ok {
		return nil, dialects.ErrNotMine
	}
	if err := plain.RefusePool(c); err != nil { // stdlib.GetPoolConnector
		return nil, err
	}
	return wrapped{plain.NewTemplate(c, "postgres by a connector")}, nil
}

func (w wrapped) Traits() dialects.Traits { return traits }

func (w wrapped) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	conn, err := w.Connect(ctx, cred)
	if err != nil {
		return nil, dialError(w.Target(), err)
	}
	c, ok := conn.(*stdlib.Conn)
	if !ok {
		// A connector may give pgx's driver for its own and wrap the connection.
		return plain.NewSession(conn, w.Target()), nil
	}
	return newSession(c, w.Target()), nil
}
