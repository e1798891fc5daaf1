package pooldriver

import (
	"context"

	"github.com/pooldriver/pooldriver/internal/mergedctx"
)

// credential returns what a dial is to use, a copy of its own. Connections made
// with another one are replaced as they come back, but not the one that ctx, the
// pool's, is for.
func (c *core) credential(ctx context.Context, refused uint64) (*Credential, uint64, error) {
	cred, serial, changed, err := c.credentials.Get(ctx, refused)
	if changed {
		c.pool.FlushOthers(ctx)
	}
	if err != nil {
		return nil, 0, err
	}
	return &cred, serial, nil
}

// renewCredential asks the source for the next credential before this one
// expires, so that no connection outlives its credential for want of a dial. If
// the source fails it is asked again, and connections go on.
func (c *core) renewCredential() {
	if c.real.Empty() {
		return // the next dial asks
	}
	ctx, cancel := context.WithTimeout(c.credentials.Context(), c.config.ConnectTimeout)
	defer cancel()
	var panicked error // the next dial reports it
	defer c.report.Guarded("Config.Credentials", &panicked)
	changed, err := c.credentials.Renew(ctx)
	if err != nil && c.credentials.Context().Err() == nil {
		c.report.NoCredential(err)
	}
	if changed {
		c.pool.Flush()
	}
}

// credentialOfNow is for what is to be ended on the server beside the dials: the
// killer of a dialect, on the goroutine that closes a connection.
func (c *core) credentialOfNow(ctx context.Context, refused Credential) (_ Credential, err error) {
	if err := c.credentials.Context().Err(); err != nil {
		return refused, err // the program has closed us, and perhaps its source
	}
	ctx, merged := mergedctx.New(ctx, c.credentials.Context())
	defer merged.Release()
	defer c.report.Guarded("Config.Credentials", &err)
	cred, serial, err := c.credential(ctx, 0)
	if err == nil && !cred.Expires.IsZero() && cred.User == refused.User && cred.Password == refused.Password {
		cred, _, err = c.credential(ctx, serial) // the server did not wait for its end
	}
	if err != nil {
		return refused, err
	}
	return *cred, nil
}
