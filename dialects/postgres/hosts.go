package postgres

import (
	"context"
	"io"
	"maps"
	"net"
	"reflect"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/hosts"
	"github.com/pooldriver/pooldriver/dialects/postgres/internal/ahead"
)

// addresses are the different hosts and ports to which config may connect, in order. pgx lists an
// address twice if it may be used without TLS.
func addresses(config *pgx.ConnConfig) []string {
	var list []string
	for _, f := range attempts(config) {
		if a := addressOf(f); !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}

// attempts are what pgx would try one after the other: its first host and port
// and its fallbacks.
func attempts(config *pgx.ConnConfig) []*pgconn.FallbackConfig {
	first := &pgconn.FallbackConfig{Host: config.Host, Port: config.Port, TLSConfig: config.TLSConfig}
	return append([]*pgconn.FallbackConfig{first}, config.Fallbacks...)
}

func addressOf(f *pgconn.FallbackConfig) string {
	return net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port)))
}

// keepAddress narrows config to one of its addresses, with and without TLS in pgx's order.
func keepAddress(config *pgx.ConnConfig, address string) {
	own := slices.DeleteFunc(attempts(config), func(f *pgconn.FallbackConfig) bool { return addressOf(f) != address })
	config.Host, config.Port, config.TLSConfig = own[0].Host, own[0].Port, own[0].TLSConfig
	config.Fallbacks = own[1:]
}

// roleOf is the role that the DSN, or the environment, asks for by target_session_attrs: pgx keeps
// only a function of it.
func roleOf(config *pgx.ConnConfig) hosts.Role {
	if config.ValidateConnect == nil {
		return hosts.Any
	}
	given := reflect.ValueOf(config.ValidateConnect).Pointer()
	for role, known := range map[hosts.Role]pgconn.ValidateConnectFunc{
		hosts.ReadWrite:     pgconn.ValidateConnectTargetSessionAttrsReadWrite,
		hosts.ReadOnly:      pgconn.ValidateConnectTargetSessionAttrsReadOnly,
		hosts.Primary:       pgconn.ValidateConnectTargetSessionAttrsPrimary,
		hosts.Standby:       pgconn.ValidateConnectTargetSessionAttrsStandby,
		hosts.PreferStandby: pgconn.ValidateConnectTargetSessionAttrsPreferStandby,
	} {
		if reflect.ValueOf(known).Pointer() == given {
			return role
		}
	}
	return hosts.Any // no parameter leads here; a test fails if a parameter does
}

func (t *template) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	found, err := hosts.Walk(ctx, t.list, func(ctx context.Context, host int, patience time.Duration) (*session, hosts.Outcome) {
		return t.dialHost(ctx, t.addresses[host], patience, cred)
	}, hosts.Drop)
	if err != nil {
		return nil, err
	}
	if len(t.addresses) > 1 {
		found.Conn.host, found.Conn.passedOver = t.addresses[found.Host], found.PassedOver
	}
	return found.Conn, nil
}

// dialHost connects to one host of the DSN. If its name has several addresses, each gets its share
// of the time; pgx would spend all the time on the first address that accepts and is silent. A name
// that the program dials counts as one address.
func (t *template) dialHost(ctx context.Context, address string, patience time.Duration, cred *dialects.Credential) (*session, hosts.Outcome) {
	config, err := t.configFor(address, cred)
	if err != nil {
		return nil, hosts.Outcome{Err: err}
	}
	network, _ := pgconn.NetworkAddress(config.Host, config.Port)
	if network == "unix" {
		return t.connect(ctx, config, patience)
	}
	found, err := config.LookupFunc(ctx, config.Host)
	if err != nil || len(found) < 2 {
		config.LookupFunc = func(context.Context, string) ([]string, error) { return found, err }
		return t.connect(ctx, config, patience)
	}
	return hosts.Addresses(ctx, found, patience, func(ctx context.Context, ip string, patience time.Duration) (*session, hosts.Outcome) {
		config := config.Copy()
		config.LookupFunc = func(context.Context, string) ([]string, error) { return []string{ip}, nil }
		return t.connect(ctx, config, patience)
	}, hosts.Drop)
}

// read parses the DSN again, because the files that it names (certificates, keys, the password
// file) may have been replaced meanwhile. Nothing is moved from one config to another: pgx keeps
// what it knows of a certificate in fields of the config that only Copy brings along (pgx 5.13.0:
// clientCertificateLoaders).
func (t *template) read() (*pgx.ConnConfig, error) {
	if t.dsn == "" {
		return t.config.Copy(), nil
	}
	now, err := pgx.ParseConfig(t.dsn)
	if err != nil {
		return nil, explainParse(err)
	}
	if now.User != t.config.User || now.Database != t.config.Database || !slices.EqualFunc(attempts(now), attempts(t.config), sameAttempt) {
		return t.config.Copy(), nil // the environment now leads to other servers
	}
	now.RuntimeParams = maps.Clone(t.config.RuntimeParams) // without those of the pool
	now.DescriptionCacheCapacity = t.config.DescriptionCacheCapacity
	now.DialFunc, now.LookupFunc = t.config.DialFunc, t.config.LookupFunc
	return now, nil
}

// sameAttempt reports whether a and b go to one server, both with TLS or both without.
func sameAttempt(a, b *pgconn.FallbackConfig) bool {
	return a.Host == b.Host && a.Port == b.Port && (a.TLSConfig == nil) == (b.TLSConfig == nil)
}

// configFor makes a configuration that is the driver's own: pgx and its hooks write to what they
// are given.
func (t *template) configFor(address string, cred *dialects.Credential) (*pgx.ConnConfig, error) {
	config, err := t.read()
	if err != nil {
		return nil, err
	}
	if cred != nil {
		config.User, config.Password = cred.User, cred.Password
	}
	keepAddress(config, address)
	if t.role != hosts.Any {
		config.ValidateConnect = nil // connect checks the role
	}
	if t.network != nil {
		config.DialFunc = pgconn.DialFunc(t.network)
		config.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	}
	return config, nil
}

// connect opens a connection and learns the role of its server.
func (t *template) connect(ctx context.Context, config *pgx.ConnConfig, patience time.Duration) (*session, hosts.Outcome) {
	var way reach
	config.DialFunc = t.throughWire(way.noting(patient(config.DialFunc, patience)))
	config.BuildFrontend = way.keeping(config.BuildFrontend)
	ahead.Install(&config.Config)
	conn, err := stdlib.GetConnector(*config).Connect(ctx)
	if err != nil {
		o := outcomeOf(t.Target(), config.Password, way.asked(), err)
		o.Unreachable = way.dialled.Load() && !way.opened.Load()
		return nil, o
	}
	way.end()
	s := newSession(conn.(*stdlib.Conn), t.Target())
	s.ahead, s.role, s.hooked = ahead.Of(s.pg), t.role, config.AfterConnect != nil
	if t.role == hosts.Any {
		return s, hosts.Outcome{Fit: hosts.Fits}
	}
	if !s.known {
		if s.atConnect, err = s.ask(ctx); err != nil {
			hosts.Drop(s)
			return nil, outcomeOf(t.Target(), config.Password, false, err)
		}
		s.known = true
	}
	fit := t.role.Of(s.atConnect)
	if fit == hosts.Unfit {
		hosts.Drop(s)
		return nil, hosts.Outcome{Err: t.role.Refuse(s.atConnect), Answered: true}
	}
	return s, hosts.Outcome{Fit: fit}
}

// outcomeOf is the outcome of a failed try. A wrong password ends libpq's walk and pgx's: every
// server would say the same. asked: the server wanted a password, and has not accepted it. Then
// 28000 is a refusal by LDAP, PAM or RADIUS (auth.c, auth_failed, says 28P01 only for passwords
// that PostgreSQL itself keeps). After a server that refuses this kind of login (28000 of
// ClientAuthentication: pg_hba.conf), another may accept it; the same holds for a server without
// the database, or without a place.
func outcomeOf(target, password string, asked bool, err error) hosts.Outcome {
	o := hosts.Outcome{Err: dialError(target, password, err)}
	for _, e := range serverErrors(err) {
		o.Answered = true
		o.Final = o.Final || e.Code == "28P01" || e.Code == "28000" && asked && e.Routine != "ClientAuthentication"
	}
	return o
}

// reach is how far a try has come. It distinguishes a server that cannot be reached from a slow
// server. pgx also dials for its requests to cancel.
type reach struct {
	dialled, opened atomic.Bool
	over            atomic.Bool
	frontends       []*pgproto3.Frontend // until the try is over; only pgx's own goroutine uses them
}

// end releases the frontends. pgx keeps the config with the function that builds them. Programs
// that ask for the config (sql.Conn.Raw) may connect with it, several at once.
func (r *reach) end() {
	r.over.Store(true)
	r.frontends = nil
}

func (r *reach) noting(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		r.dialled.Store(true)
		conn, err := dial(ctx, network, address)
		if err == nil {
			r.opened.Store(true)
		}
		return conn, err
	}
}

// keeping keeps the frontends that pgx makes: they know what a server wanted.
func (r *reach) keeping(build pgconn.BuildFrontendFunc) pgconn.BuildFrontendFunc {
	return func(in io.Reader, out io.Writer) *pgproto3.Frontend {
		f := build(in, out)
		if !r.over.Load() {
			r.frontends = append(r.frontends, f)
		}
		return f
	}
}

// asked reports whether a server wanted a password, and has not accepted it.
func (r *reach) asked() bool {
	return slices.ContainsFunc(r.frontends, func(f *pgproto3.Frontend) bool { return f.GetAuthType() != pgproto3.AuthTypeOk })
}

// patient bounds a dial.
func patient(dial pgconn.DialFunc, patience time.Duration) pgconn.DialFunc {
	if patience == 0 {
		return dial
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return dial(ctx, network, address)
	}
}
