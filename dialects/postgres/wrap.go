package postgres

import (
	"context"
	"database/sql/driver"
	"reflect"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/base"
	"github.com/pooldriver/pooldriver/internal/unwrap"
)

// wrapped is a template of the program's connector: pgx with hooks, or with a
// configuration that no DSN expresses. The bytes under it are not counted.
type wrapped struct {
	*base.Template
	hooked bool // a hook of the program may run on each new connection
	resets bool // a hook of the program may run for each borrower, and set something for this one
	own    bool // the connections are pgx's, with nothing around them
}

func wrap(c driver.Connector) (dialects.Template, error) {
	if c == nil {
		return nil, dialects.ErrNotMine
	}
	if own, ok := c.(*configured); ok {
		return own.template()
	}
	if _, ok := c.Driver().(*stdlib.Driver); !ok {
		return nil, dialects.ErrNotMine
	}
	t, err := base.Wrap(c, "postgres by a connector") // stdlib.GetPoolConnector is refused
	if err != nil {
		return nil, err
	}
	return wrapped{t, mayHook(c, "AfterConnect"), mayHook(c, "ResetSession"), fromPgx(c)}, nil
}

// fromPgx reports whether c is pgx's own, not one that calls it.
func fromPgx(c driver.Connector) bool {
	t := reflect.TypeOf(c)
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.PkgPath() == reflect.TypeFor[stdlib.Driver]().PkgPath()
}

// mayHook reports whether a hook of the program's may run, by stdlib.OptionAfterConnect or
// OptionResetSession, whose field this is, or because c is not pgx's. A connection may then begin with more
// than the server gives it, which the cleaning would remove, or differ from borrower to borrower. The field is
// exported, but its struct is not. If a pgx has renamed the field, c counts as hooked.
func mayHook(c driver.Connector, field string) bool {
	v, own := reflect.ValueOf(c), reflect.ValueOf(stdlib.GetConnector(pgx.ConnConfig{}))
	if v.Type() != own.Type() {
		return !fromPgx(c)
	}
	hook, none := v.FieldByName(field), own.FieldByName(field)
	return hook.Kind() != reflect.Func || hook.Pointer() != none.Pointer()
}

// Traits are pgx's. A wrapper around pgx may reuse the memory of rows, which pgx does
// not, may check arguments, and may derive contexts.
func (w wrapped) Traits() dialects.Traits {
	t := traits
	t.BytesKept, t.ArgsAsGiven, t.TxDerivesContext = w.own, w.own, !w.own
	return t
}

func (w wrapped) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	conn, err := w.Connect(ctx, cred)
	if err != nil {
		return nil, dialError(w.Target(), "", err)
	}
	c, ok := unwrap.Conn(conn).(*stdlib.Conn)
	if !ok {
		// A wrapper, such as sqlmw, that does not show pgx's connection.
		return base.NewSession(conn, w.Target()), nil
	}
	s := newSession(c, w.Target())
	s.outer = conn
	s.hooked, s.resets = w.hooked || s.pgx.Config().AfterConnect != nil, w.resets
	return s, nil
}
