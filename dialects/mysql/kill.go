package mysql

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"
)

// killer ends connections whose socket the driver has closed while the server
// may still be at work. It has at most one connection to the server, shared by
// those who need it at the same time and closed with the last of them.
type killer struct {
	dial func(context.Context) (link, error)

	users atomic.Int32 // those between the beginning and the end of stop

	turn chan struct{} // holds a token while somebody uses what follows
	open bool
	link link
}

func newKiller(dial func(context.Context) (link, error)) *killer {
	return &killer{dial: dial, turn: make(chan struct{}, 1)}
}

// lock is a mutex that a context can end.
func (k *killer) lock(ctx context.Context) error {
	select {
	case k.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (k *killer) unlock() { <-k.turn }

// killLabel marks the statement in the server's process list and logs.
const killLabel = "/* pooldriver: kill a cancelled statement */ "

// errElsewhere: the number belongs to a connection of somebody else's.
var errElsewhere = errors.New("the connection cannot be killed: it was not found on the server that answers now")

// errProxied: the number in the greeting is that of a proxy, which shares the
// server's connections among its clients.
var errProxied = errors.New("a connection may still be at work on the server: behind a proxy that shares connections it cannot be found")

// stop kills the connection numbered thread, whose own end is local, and
// returns when the server no longer lists it.
func (k *killer) stop(ctx context.Context, thread uint64, local string) error {
	if thread == 0 {
		return errProxied
	}
	k.users.Add(1)
	defer k.leave()
	asked := false
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		gone, err := k.step(ctx, thread, local, &asked)
		switch {
		case gone:
			return nil
		case err != nil && ctx.Err() == nil && !fullHouse(err):
			return fmt.Errorf("ending a connection on the server: %w", err)
		}
		if pause(ctx, wait); ctx.Err() != nil {
			return errors.Join(fmt.Errorf("a connection may still be at work on the server: %w", context.Cause(ctx)), err)
		}
	}
}

// fullHouse reports whether the server has no place for the connection that
// kills. What it is to kill takes one of the places, and may end by itself.
func fullHouse(err error) bool {
	switch errorNumber(err) {
	case erConnectionLimit, erUserLimit, erUserResourceLimitReached:
		return true
	}
	return false
}

// step looks whether the connection is still there and kills it once.
func (k *killer) step(ctx context.Context, thread uint64, local string, asked *bool) (gone bool, err error) {
	if err := k.lock(ctx); err != nil {
		return false, err
	}
	defer k.unlock()
	if !k.open {
		if k.link, err = k.dial(ctx); err != nil {
			return false, err
		}
		k.open = true
	}
	defer func() {
		if err != nil {
			k.hangUp() // the next one dials again
		}
	}()
	gone, err = k.look(ctx, thread, local)
	if gone || err != nil || *asked {
		return gone, err
	}
	err = execute(ctx, k.link.conn, fmt.Sprintf("%sKILL %d", killLabel, thread))
	if errorNumber(err) == erNoSuchThread {
		return true, nil
	}
	*asked = err == nil
	return false, err
}

// look reports whether the server no longer lists the connection. Behind a load
// balancer this may be another server, where the number is somebody else's. So
// the user has to be the same, and, where the server sees our ports as they
// are, the port too.
func (k *killer) look(ctx context.Context, thread uint64, local string) (gone bool, err error) {
	answer, err := ask(ctx, k.link.conn, fmt.Sprintf(
		"SELECT id = CONNECTION_ID(), host, user = SUBSTRING_INDEX(USER(), '@', 1) FROM information_schema.processlist WHERE id IN (CONNECTION_ID(), %d)", thread))
	if err != nil {
		return false, err
	}
	var own, other string
	listed, sameUser := false, false
	for _, row := range answer {
		if row[0].string == "1" {
			own = port(row[1].string)
			continue
		}
		listed, other, sameUser = true, port(row[1].string), row[2].string == "1"
	}
	switch {
	case !listed:
		return true, nil
	case !sameUser:
		return false, errElsewhere
	case k.link.wire != nil && own != "" && own == port(k.link.wire.LocalAddr().String()) && local != "" && other != port(local):
		return false, errElsewhere
	}
	return false, nil
}

// port is what follows the last colon of an address; "" for a Unix socket.
func port(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	return port
}

// leave closes the connection with its last user. It does not wait for its
// turn: whoever has it came later, and will leave in turn.
func (k *killer) leave() {
	if k.users.Add(-1) > 0 {
		return
	}
	select {
	case k.turn <- struct{}{}:
	default:
		return
	}
	defer k.unlock()
	if k.users.Load() == 0 {
		k.hangUp()
	}
}

// hangUp closes the connection; the lock is held.
func (k *killer) hangUp() {
	if k.open {
		k.link.drop()
		k.open, k.link = false, link{}
	}
}
