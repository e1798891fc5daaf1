package listen

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"time"
)

// probeTime is how long a notification may take to arrive.
const probeTime = 2 * time.Second

// errNotRelayed is the error of a connection on which no notification arrives.
var errNotRelayed = fmt.Errorf("a notification that was sent as a test has not arrived within %v: a pooler in between, such as PgBouncer in transaction mode, lets LISTEN succeed and drops what it asks for; set Config.ListenDSN to a DSN that leads to the server itself, or to a pooler in session mode", probeTime)

// probe shows that notifications arrive on conn. A pooler in transaction mode executes LISTEN, and
// gives the session to somebody else. If it happens to execute the test's notification in the same
// session, the notification comes back with the answer. So behind a pooler another connection sends it.
//
// proven is false if the server refuses to send one: its queue may be full, or pg_notify not ours to call.
func (h *Hub) probe(ctx context.Context, conn Conn) (proven bool, _ error) {
	ctx, cancel := context.WithTimeout(ctx, h.config.Timeout+probeTime)
	defer cancel()
	relayed, err := conn.Relayed(ctx)
	if err != nil {
		return false, err
	}
	sender := conn
	if relayed {
		if sender, err = h.config.Dial(ctx); err != nil {
			return false, fmt.Errorf("a second connection, to see whether a pooler in between passes notifications on: %w", err)
		}
		defer sender.Close()
	}
	channel := []string{"pooldriver_probe_" + rand.Text()}
	if err := conn.Listen(ctx, channel); err != nil {
		return false, err
	}
	if err := sender.Notify(ctx, channel[0], ""); err != nil {
		if h.config.Outage(err) || sender.Ping(ctx) != nil {
			return false, err
		}
		return false, conn.Unlisten(ctx, channel)
	}
	if err := arrives(ctx, conn, channel[0]); err != nil {
		return false, err
	}
	return true, conn.Unlisten(ctx, channel)
}

// arrives waits for the notification of the probe.
func arrives(ctx context.Context, conn Conn, channel string) error {
	wait, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	for {
		name, _, err := conn.Wait(wait)
		switch {
		case err == nil && name == channel:
			return nil
		case err == nil: // a notification of the session's last user, behind a pooler
		case ctx.Err() == nil && wait.Err() != nil:
			_ = conn.Unlisten(ctx, []string{channel}) // it may reach the session that listens
			return errNotRelayed
		default:
			return errors.Join(err, ctx.Err())
		}
	}
}
