package pooldriver

import (
	"context"
	"errors"

	"github.com/pooldriver/pooldriver/dialects"
)

// What becomes of connections whose server is no longer what the DSN asks for:
// the primary that was demoted, the standby that was promoted.
//
// That a server refuses to write does not show it: the program's own READ ONLY
// transaction is refused in the same words. So an error only raises a doubt, and
// when the connection is back from its borrower, rolled back and clean, the
// server is asked. Health checks ask, too.

// fits asks the server. Where it does not do, the other connections of its time
// are replaced as they come back; this one is the caller's to close.
func (c *core) fits(ctx context.Context, r *realConn) error {
	err := r.CheckRole(ctx)
	if !errors.Is(err, dialects.ErrWrongRole) {
		return err
	}
	host, _ := location(r.Server())
	c.report.RoleChanged(c.flushOnce(r.poolGeneration), host, err)
	return err
}

// settleRole asks the server for its role, because an error has cast doubt on it. It
// reports whether the connection can be lent again.
func (c *core) settleRole(ctx context.Context, r *realConn) bool {
	r.EndRoleDoubt()
	return c.fits(ctx, r) == nil
}

func location(s dialects.Session) (host, passed string) {
	if l, ok := s.(dialects.Hosted); ok {
		return l.Host()
	}
	return "", ""
}
