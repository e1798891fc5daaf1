package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/base"
	"github.com/pooldriver/pooldriver/dialects/internal/hosts"
)

// template makes connections from a DSN.
type template struct {
	base.Destination

	servers []*server // the servers that the DSN names
	list    *hosts.List
	role    hosts.Role
	network dialects.DialFunc // the program's function; nil: ours

	at     parts // the pieces of the DSN
	params params

	logins logins
	proofs resetProofs
}

var _ dialects.HostLister = (*template)(nil)

func parse(dsn string) (*template, error) {
	at, err := take(dsn)
	if err != nil {
		return nil, err
	}
	p, err := readParams(at.query)
	if err != nil {
		return nil, err
	}
	return templateOf(at, p, p.role)
}

// templateOf makes a template of the pieces of a DSN.
func templateOf(at parts, p params, role hosts.Role) (*template, error) {
	t := &template{Destination: base.NewDestination(target(at), p.pool), role: role, at: at, params: p}
	var names []string
	for _, where := range at.endpoints() {
		s, err := t.newServer(at, where, p)
		if err != nil {
			return nil, err
		}
		names = append(names, s.name)
	}
	t.list = hosts.New(names...)
	t.Tell(p.told, shownParams)
	return t, nil
}

// shownParams are the parameters whose values are no secrets.
const shownParams = `target_session_attrs tls charset collation parsetime loc timeout readtimeout writetimeout maxallowedpacket
	interpolateparams multistatements clientfoundrows columnswithalias rejectreadonly checkconnliveness compress
	allowallfiles allowcleartextpasswords allowfallbacktoplaintext allownativepasswords allowoldpasswords serverpubkey
	timetruncate autocommit sql_mode time_zone wait_timeout transaction_isolation tx_isolation max_execution_time
	max_statement_time innodb_lock_wait_timeout`

// target describes where connections go. The user's name is no secret. Host and database were
// checked: they are no pieces of a mistyped password.
func target(at parts) string {
	s := "mysql "
	if at.user != "" {
		s += at.user + "@"
	}
	s += endpoint{at.network, at.address}.String() + "/" + at.database
	if n := len(at.more); n > 0 {
		s += fmt.Sprintf(" (+%d more)", n)
	}
	return s
}

// Hosts are the servers of the DSN.
func (t *template) Hosts() []string { return t.list.Names() }

func (t *template) Driver() driver.Driver { return &mysql.MySQLDriver{} }

// Traits of a connection whose settings are known: with interpolateParams the
// driver prepares nothing.
func (t *template) Traits() dialects.Traits {
	own := traits
	own.Reprepares = !t.servers[0].config.InterpolateParams
	own.AnswersOverwrite = true
	own.RoleMatters = t.asksRole()
	return own
}

// traits: the driver returns ErrBadConn only if nothing was sent. Prepare is an exception, but
// Prepare executes nothing. The driver's transactions forget their context. Its byte slices lie in
// the buffer that the next packets are read into, by the text and by the binary protocol
// (go-sql-driver/mysql 1.10.0, readLengthEncodedString and buffer.fill).
var traits = dialects.Traits{StatusKnown: true, StatementsEndWithSession: true}

func (t *template) TakesCredential() bool { return true }

var _ dialects.NetworkTemplate = (*template)(nil)

// DialNetworkBy implements dialects.NetworkTemplate. The program then dials all networks, also
// those that it has registered with the driver.
func (t *template) DialNetworkBy(dial dialects.DialFunc) {
	t.network = dial
	for _, s := range t.servers {
		s.useWire()
	}
}

func (t *template) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	found, err := hosts.Walk(ctx, t.list, func(ctx context.Context, host int, patience time.Duration) (*session, hosts.Outcome) {
		return t.dialHost(ctx, t.servers[host], patience, cred)
	}, hosts.Drop)
	if err != nil {
		return nil, err
	}
	if cred != nil {
		own := *cred
		t.logins.newest.Store(&own)
	}
	if len(t.servers) > 1 {
		found.Conn.host, found.Conn.passedOver = t.servers[found.Host].name, found.PassedOver
	}
	return found.Conn, nil
}

// asksRole reports whether servers are asked for their role: if the DSN wants a certain role, or names
// several servers. A node of a cluster may accept a login and then refuse every statement.
func (t *template) asksRole() bool { return t.role != hosts.Any || len(t.servers) > 1 }

// dialHost connects to one server of the DSN, whose name may have several addresses. If
// the server's role matters, each address is a server to be asked. If not, the dialer tries the
// addresses: it does not wait for IPv6 that leads nowhere (RFC 8305). If the program dials, it
// looks the name up.
func (t *template) dialHost(ctx context.Context, srv *server, patience time.Duration, cred *dialects.Credential) (*session, hosts.Outcome) {
	if t.network != nil {
		return t.connect(ctx, srv, "", patience, cred)
	}
	found, err := addresses(ctx, srv.config)
	switch {
	case err != nil && t.asksRole():
		return nil, hosts.Outcome{Err: err}
	case err != nil || len(found) == 0:
		return t.connect(ctx, srv, "", patience, cred)
	case len(found) == 1:
		return t.connect(ctx, srv, found[0], patience, cred) // not looked up again
	case t.asksRole():
		return t.dialEach(ctx, srv, found, patience, cred)
	}
	return t.dialAny(ctx, srv, found, patience, cred)
}

// addresses returns the addresses of a server's name; none if the driver looks the name up.
func addresses(ctx context.Context, c *mysql.Config) ([]string, error) {
	host, port, err := net.SplitHostPort(c.Addr)
	if c.Net != "tcp" || err != nil {
		return nil, nil
	}
	found, err := lookup(ctx, host)
	for i, ip := range found {
		found[i] = net.JoinHostPort(ip, port)
	}
	return found, err
}

// dialEach tries one address after the other.
func (t *template) dialEach(ctx context.Context, srv *server, found []string, patience time.Duration, cred *dialects.Credential) (*session, hosts.Outcome) {
	return hosts.Addresses(ctx, found, patience, func(ctx context.Context, address string, patience time.Duration) (*session, hosts.Outcome) {
		return t.connect(ctx, srv, address, patience, cred)
	}, hosts.Drop)
}

// dialAny lets the dialer choose an address. If the address that accepts is then silent
// for its share of the time, the others follow.
func (t *template) dialAny(ctx context.Context, srv *server, found []string, patience time.Duration, cred *dialects.Credential) (*session, hosts.Outcome) {
	own, cancel := ctx, func() {}
	if deadline, ok := ctx.Deadline(); ok {
		own, cancel = context.WithTimeout(ctx, time.Until(deadline)/time.Duration(len(found)))
	}
	defer cancel()
	s, o, reached := t.connectTo(own, srv, "", patience, cred)
	others := slices.DeleteFunc(found, func(address string) bool { return address == reached })
	if o.Err == nil || o.Final || reached == "" || len(others) == 0 || ctx.Err() != nil {
		return s, o
	}
	first := fmt.Errorf("%s: %w", reached, o.Err)
	if s, o = t.dialEach(ctx, srv, others, patience, cred); o.Err != nil {
		o.Err = errors.Join(first, o.Err)
	}
	return s, o
}

// lookup finds a name's addresses; tests have names of their own.
var lookup = net.DefaultResolver.LookupHost

// connect opens a connection, to address if it is not empty, and asks for the server's role.
func (t *template) connect(ctx context.Context, srv *server, address string, patience time.Duration, cred *dialects.Credential) (*session, hosts.Outcome) {
	s, o, _ := t.connectTo(ctx, srv, address, patience, cred)
	return s, o
}

// connectTo is connect. reached is the address that has accepted, if any.
func (t *template) connectTo(ctx context.Context, srv *server, address string, patience time.Duration, cred *dialects.Credential) (_ *session, _ hosts.Outcome, reached string) {
	c := srv.config.Clone()
	if cred != nil {
		c.User, c.Passwd = cred.User, cred.Password
	}
	password := c.Passwd
	login := dialects.Credential{User: c.User, Password: c.Passwd}
	fail := func(err error) (*session, hosts.Outcome, string) {
		o := outcomeOf(err)
		o.Err = scrub(err, password, t.Target())
		return nil, o, reached
	}
	l, err := dial(ctx, c, way{address, patience, t.network}, t.Target())
	if l.wire != nil {
		reached = l.wire.RemoteAddr().String()
	}
	if err != nil {
		s, o, _ := fail(err)
		o.Unreachable = (t.network != nil || wired(c.Net)) && l.wire == nil
		return s, o, reached
	}
	s := newSession(l, srv.killer, t)
	s.proofs = &t.proofs
	s.uncounted, s.login = c.RejectReadOnly, login
	if s.role, s.asksRole = t.role, t.asksRole(); s.asksRole {
		// This question comes first: a node that is not ready refuses every other statement, and
		// such a refusal is no finding.
		if s.atConnect, err = askServer(ctx, l.conn); err != nil {
			l.drop()
			return fail(err)
		}
	}
	fit := t.role.Of(s.atConnect)
	if fit == hosts.Unfit {
		l.drop()
		return nil, hosts.Outcome{Err: t.role.Refuse(s.atConnect), Answered: true}, reached
	}
	if err = s.identify(ctx, srv, c); err != nil {
		l.drop()
		return fail(err)
	}
	return s, hosts.Outcome{Fit: fit}, reached
}

// identify asks a new connection for its number and its state at connect.
func (s *session) identify(ctx context.Context, srv *server, c *mysql.Config) (err error) {
	if s.wire == nil || s.thread == 0 {
		if s.thread, err = askThread(ctx, s.conn); err != nil {
			return err
		}
		return s.checkAutocommit()
	}
	if s.home, err = findHome(ctx, s.conn, c, s.thread); err != nil {
		return fmt.Errorf("reading the state at connect: %w", err)
	}
	if s.carrier = srv.carrier(s.link, s.inner); s.carrier == nil {
		s.home.unusable = errSealed
	}
	if s.home.proxied {
		s.thread = 0
	}
	return s.checkAutocommit()
}

// outcomeOf is the outcome of a failed try. If one server refuses a credential, the others would
// refuse it too, and some lock the account after a few tries.
func outcomeOf(err error) hosts.Outcome {
	return hosts.Outcome{Answered: errorNumber(err) != 0, Final: diagnose(err)&dialects.AuthFailed != 0}
}
