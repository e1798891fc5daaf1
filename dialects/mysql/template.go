package mysql

import (
	"context"
	"database/sql/driver"
	"fmt"
	"sync/atomic"

	"github.com/go-sql-driver/mysql"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/opaque"
)

// template makes connections from a DSN.
type template struct {
	opaque.Label

	pool []dialects.Param
	// config and killConfig are never handed to the driver, only clones of
	// them: it fills in what is missing and, where a server has no TLS and
	// need not, strikes it out.
	config     *mysql.Config
	killConfig *mysql.Config // without database, variables and character sets
	resettable bool          // neither TLS nor compression between us and the wire

	newest atomic.Pointer[dialects.Credential] // the last one that Dial was given
	home   atomic.Pointer[home]
	killer *killer
}

var _ dialects.Template = (*template)(nil)

func parse(dsn string) (*template, error) {
	at, err := take(dsn)
	if err != nil {
		return nil, err
	}
	p, err := readParams(at.query)
	if err != nil {
		return nil, err
	}
	t := &template{Label: opaque.Label(target(at)), pool: p.pool}
	if t.config, err = config(at, p.all); err != nil {
		return nil, err
	}
	at.database = ""
	if t.killConfig, err = config(at, p.transport); err != nil {
		return nil, err
	}
	t.killConfig.ConnectionAttributes = "program_name:pooldriver-kill"
	t.resettable = wired(at.network) && t.config.TLS == nil && !p.compress
	if wired(at.network) {
		// The driver cannot look at a socket that is wrapped; Session.Peek can.
		t.config.CheckConnLiveness = false
	}
	t.killer = newKiller(t.dialKiller)
	return t, nil
}

// target describes where connections go. The user's name is no secret; host and
// database have been checked not to be pieces of a mistyped password.
func target(at parts) string {
	s := "mysql "
	if at.user != "" {
		s += at.user + "@"
	}
	if at.network == "tcp" {
		s += at.address
	} else {
		s += at.network + "(" + at.address + ")"
	}
	return s + "/" + at.database
}

func (t *template) PoolParams() []dialects.Param { return t.pool }

func (t *template) Target() string { return t.String() }

func (t *template) Driver() driver.Driver { return &mysql.MySQLDriver{} }

// Traits of a connection whose settings are known: with interpolateParams the
// driver prepares nothing.
func (t *template) Traits() dialects.Traits {
	own := traits
	own.Reprepares = !t.config.InterpolateParams
	return own
}

// traits: the driver says ErrBadConn only where nothing was sent, Prepare
// apart, which executes nothing. Its transactions forget their context. Its byte
// slices lie in the buffer that the next packets are read into, by the text and
// by the binary protocol (go-sql-driver/mysql 1.10.0, readLengthEncodedString
// and buffer.fill).
var traits = dialects.Traits{StatusKnown: true, StatementsEndWithSession: true}

func (t *template) TakesCredential() bool { return true }

func (t *template) Close() error { return nil }

func (t *template) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	c := t.config.Clone()
	if cred != nil {
		c.User, c.Passwd = cred.User, cred.Password
		latest := *cred
		t.newest.Store(&latest)
	}
	l, err := dial(ctx, c, t.Target())
	if err != nil {
		return nil, err
	}
	s := newSession(l, t.killer, t.Label)
	s.uncounted = c.RejectReadOnly
	switch {
	case l.wire == nil || s.thread == 0:
		s.thread, err = askThread(ctx, l.conn)
	default:
		if s.home, err = t.homeOf(ctx, l.conn, c, s.thread); err == nil && s.home.proxied {
			s.thread = 0
		}
	}
	if err != nil {
		l.drop()
		return nil, scrub(err, c.Passwd, t.Target())
	}
	return s, nil
}

// dialKiller opens the connection that kills. A credential that has expired
// since the statement began is of no use, hence the newest.
func (t *template) dialKiller(ctx context.Context) (link, error) {
	c := t.killConfig.Clone()
	if cred := t.newest.Load(); cred != nil {
		c.User, c.Passwd = cred.User, cred.Password
	}
	return dial(ctx, c, t.Target())
}

// homeOf returns the state that connections of the template have at connect.
// It costs a round trip on the first connection of each user; the others have
// the same.
func (t *template) homeOf(ctx context.Context, conn driver.Conn, c *mysql.Config, thread uint64) (*home, error) {
	if h := t.home.Load(); h != nil && h.user == c.User {
		return h, nil
	}
	h, err := findHome(ctx, conn, c, thread)
	if err != nil {
		return nil, fmt.Errorf("reading the state at connect: %w", err)
	}
	if !t.resettable {
		h.unusable = errSealed
	}
	t.home.Store(h)
	return h, nil
}
