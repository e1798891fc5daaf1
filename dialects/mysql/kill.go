package mysql

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/myerror"
	"github.com/pooldriver/pooldriver/internal/pause"
)

// killer ends connections on the server if the driver has closed their socket while the server may
// still execute a statement. It has at most one connection of its own, which all concurrent calls
// of stop share. The last of these calls closes it.
type killer struct {
	dial   killerDial
	logins *logins

	users atomic.Int32 // calls of stop that run now

	held  chan struct{} // a lock with a context, for the following fields
	open  bool
	link  link
	at    string              // the address to which link leads
	as    dialects.Credential // the credential with which link has logged in
	all   bool                // the user of link may see the connections of other users
	tried attempts
}

// killerDial connects to an address of the server; "" is any.
type killerDial func(ctx context.Context, address string, as dialects.Credential) (link, error)

func newKiller(dial killerDial) *killer {
	return &killer{dial: dial, logins: &logins{}, held: make(chan struct{}, 1)}
}

// lock is a mutex that a context can end.
func (k *killer) lock(ctx context.Context) error {
	select {
	case k.held <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (k *killer) unlock() { <-k.held }

// killLabel marks the statement in the server's process list and logs.
const killLabel = "/* pooldriver: kill a cancelled statement */ "

// errElsewhere: the number belongs to another client's connection.
var errElsewhere = errors.New("the connection cannot be killed: it was not found on the server that answers now")

// errProxied: the number in the greeting is that of a proxy, which shares the
// server's connections among its clients.
var errProxied = errors.New("a connection may still be at work on the server: behind a proxy that shares connections it cannot be found")

// victim is a connection to be killed: its number, and its two ends; "": not known. login is the
// credential with which it was dialled; empty: user and password are not ours.
type victim struct {
	thread        uint64
	local, remote string
	login         dialects.Credential
}

// stop kills a connection and returns when the server no longer lists it.
func (k *killer) stop(ctx context.Context, v victim) error {
	if v.thread == 0 {
		return errProxied
	}
	k.users.Add(1)
	defer k.leave()
	asked := false
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		gone, err := k.step(ctx, v, "KILL", &asked)
		switch {
		case gone:
			return nil
		case errors.Is(err, errRefused):
			wait = refusedPause
		case err != nil && ctx.Err() == nil && !isFull(err):
			return fmt.Errorf("ending a connection on the server: %w", err)
		}
		if pause.For(ctx, wait); ctx.Err() != nil {
			return errors.Join(fmt.Errorf("a connection may still be at work on the server: %w", context.Cause(ctx)), err)
		}
	}
}

// isFull reports whether the server has no place for the connection that kills. The
// connection to be killed takes one of the places, and may end by itself.
func isFull(err error) bool { return myerror.IsFull(int(errorNumber(err))) }

// step looks whether the connection is still there, and kills it, or its statement, once.
func (k *killer) step(ctx context.Context, v victim, kill string, asked *bool) (gone bool, err error) {
	if err := k.lock(ctx); err != nil {
		return false, err
	}
	defer k.unlock()
	if err := k.connect(ctx, v); err != nil {
		return false, err
	}
	defer func() {
		if err != nil && !errors.Is(err, errRefused) {
			k.hangUp() // the next call dials again
		}
	}()
	gone, err = k.look(ctx, v)
	if gone || err != nil || *asked {
		return gone, err
	}
	err = execute(ctx, k.link.conn, fmt.Sprintf("%s%s %d", killLabel, kill, v.thread))
	switch errorNumber(err) {
	case myerror.NoSuchThread:
		return true, nil
	case myerror.KillDenied:
		return false, fmt.Errorf("%w: %w", errDenied, err)
	}
	*asked = err == nil
	return false, err
}

// look reports whether the server no longer lists the connection. Behind a load balancer another
// server may answer, where the number belongs to another connection. So the user must be the same
// and, if the server sees our ports as they are, the port too. A user other than the connection's
// needs a privilege to see the connection. With that privilege the user also sees the connections
// of other users.
func (k *killer) look(ctx context.Context, v victim) (gone bool, err error) {
	foreign := k.as.User != v.login.User
	own, listed, err := k.list(ctx, v, foreign)
	switch {
	case err != nil:
		return false, err
	case listed == nil && foreign && !k.all:
		return false, errUnseen
	case listed == nil:
		return true, nil
	case listed[2].string != "1" || k.portsAreOurs(own) && v.local != "" && port(listed[1].string) != port(v.local):
		return false, errElsewhere
	}
	return false, nil
}

// The views of the server's list of connections. MySQL refuses to read the old view while any
// connection that the user may see sends bytes that are not UTF-8 in its text or its arguments
// (error 3854). MySQL has the new view since 8.0.22; the new view is empty if the performance
// schema is off. MariaDB has only the old view.
const (
	newView = "performance_schema.processlist"
	oldView = "information_schema.processlist"
)

// errUnlisted: the list of a working server contains at least the connection that asks.
var errUnlisted = errors.New("the server's list of connections does not show the one that asks for it")

// list returns the port of the killer's own connection as the server sees it, and the
// row of the victim; nil if there is none.
func (k *killer) list(ctx context.Context, v victim, foreign bool) (own string, listed []text, err error) {
	views := []string{newView, oldView}
	if k.link.isMariaDB() {
		views = views[1:]
	}
	for _, view := range views {
		var rows [][]text
		listed = nil
		rows, err = ask(ctx, k.link.conn, k.question(view, v, foreign))
		if err != nil && errorNumber(err) == 0 {
			return "", nil, err // the connection is broken
		}
		if err == nil {
			err = errUnlisted
		}
		for _, row := range rows {
			k.all = k.all || foreign && row[3].string == "1"
			if row[0].string == "1" {
				own, err = port(row[1].string), nil
			} else {
				listed = row
			}
		}
		if err == nil {
			return own, listed, nil
		}
	}
	return "", nil, err
}

func (k *killer) question(view string, v victim, foreign bool) string {
	same, others := "user = SUBSTRING_INDEX(USER(), '@', 1)", "0"
	if foreign {
		same = fmt.Sprintf("user = X'%x'", v.login.User)
		others = "(SELECT COUNT(*) > 0 FROM " + view +
			" WHERE user NOT IN (SUBSTRING_INDEX(USER(), '@', 1), SUBSTRING_INDEX(CURRENT_USER(), '@', 1)))"
	}
	return fmt.Sprintf("SELECT id = CONNECTION_ID(), host, %s, %s FROM %s WHERE id IN (CONNECTION_ID(), %d)", same, others, view, v.thread)
}

// portsAreOurs reports whether the server sees our ports as they are. own is the port of the
// connection that kills, as the server sees it.
func (k *killer) portsAreOurs(own string) bool {
	return k.link.wire != nil && own != "" && own == port(k.link.wire.LocalAddr().String())
}

// port is what follows the last colon of an address; "" for a Unix socket.
func port(address string) string {
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		return ""
	}
	return port
}

// leave closes the connection after its last user. It does not wait for the lock: whoever holds the
// lock came later, and will call leave, too.
func (k *killer) leave() {
	if k.users.Add(-1) > 0 {
		return
	}
	select {
	case k.held <- struct{}{}:
	default:
		return
	}
	defer k.unlock()
	if k.users.Load() == 0 {
		k.hangUp()
		k.tried = attempts{}
	}
}

// hangUp closes the connection; the lock is held.
func (k *killer) hangUp() {
	if k.open {
		k.link.drop()
		k.open, k.link, k.as, k.all = false, link{}, dialects.Credential{}, false
	}
}
