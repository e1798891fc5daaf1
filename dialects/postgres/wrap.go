package postgres

import (
	"context"
	"database/sql/driver"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/plain"
)

// wrapped is a template of somebody else's connector: pgx with hooks, or with a
// configuration that no DSN expresses. Nothing counts bytes under it.
type wrapped struct {
	*plain.Template
	hooked bool // something of the program's may run on each new connection
}

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
	return wrapped{plain.NewTemplate(c, "postgres by a connector"), mayHook(c)}, nil
}

// mayHook reports whether a connection of c may begin with more than the server
// gives it: by stdlib.OptionAfterConnect, or because c is not pgx's. What a
// hook sets up, cleaning would take away. The field is exported, its struct is
// not; a pgx that has renamed it counts as hooked.
func mayHook(c driver.Connector) bool {
	v, own := reflect.ValueOf(c), reflect.ValueOf(stdlib.GetConnector(pgx.ConnConfig{}))
	if v.Type() != own.Type() {
		return v.Kind() != reflect.Pointer || v.Type().Elem().PkgPath() != own.Type().PkgPath()
	}
	hook, none := v.FieldByName("AfterConnect"), own.FieldByName("AfterConnect")
	return hook.Kind() != reflect.Func || hook.Pointer() != none.Pointer()
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
	s := newSession(c, w.Target())
	s.hooked = w.hooked || s.pgx.Config().AfterConnect != nil
	return s, nil
}
