package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/base"
	"github.com/pooldriver/pooldriver/dialects/internal/hosts"
	"github.com/pooldriver/pooldriver/dialects/internal/wire"
	"github.com/pooldriver/pooldriver/internal/redact"
)

// template is a parsed DSN. It prints as its target: config holds the password.
type template struct {
	base.Destination
	dsn    string          // in pgx's form
	config *pgx.ConnConfig // never handed out, only copies of it

	addresses []string // of the hosts that config names
	list      *hosts.List
	network   dialects.DialFunc // the program's; nil: pgx's
	role      hosts.Role
}

var _ dialects.HostLister = (*template)(nil)

// traits of pgx, with its reasons in dialects.Traits. Byte slices come from
// bytea, json, jsonb and xml, in both formats scanned into memory made for each
// value (pgx 5.12.0: stdlib's initValueFuncs; pgtype's scanPlanBinaryBytesToBytes,
// scanPlanTextByteaToBytes and scanPlanAnyTextToBytes). A codec that a program
// registers for one of these types must not retain what it scans, either, says
// pgtype.ScanPlan.
var traits = dialects.Traits{TxKeepsContext: true, BadConnUnsure: true, StatusKnown: true, StatementsEndWithSession: true, PreparedAges: true,
	BytesKept: true, ArgsAsGiven: true}

// targetOf says where config leads: the user if there is one to name, the first
// host, and how many there are besides.
func targetOf(config *pgx.ConnConfig, user string) string {
	list := addresses(config)
	s := "postgres "
	if user != "" {
		s += user + "@"
	}
	s += list[0] + "/" + config.Database
	if n := len(list) - 1; n > 0 {
		s += fmt.Sprintf(" (+%d more)", n)
	}
	return s
}

// Hosts are the servers of the DSN.
func (t *template) Hosts() []string { return t.list.Names() }

func (t *template) Driver() driver.Driver { return stdlib.GetDefaultDriver() }

// Traits are pgx's.
func (t *template) Traits() dialects.Traits {
	own := traits
	own.RoleMatters, own.ResetOnlyLooks = t.role != hosts.Any, true
	return own
}

func (t *template) TakesCredential() bool { return true }

var _ dialects.NetworkTemplate = (*template)(nil)

// DialNetworkBy implements dialects.NetworkTemplate.
func (t *template) DialNetworkBy(dial dialects.DialFunc) { t.network = dial }

// throughWire puts our network connection under pgx's. pgx dials by it for a request
// to cancel, too, where it does no harm. That request goes to the remote address of the
// connection, which has to be one that dial understands.
func (t *template) throughWire(dial pgconn.DialFunc) pgconn.DialFunc {
	if t.network == nil {
		return through(dial, func(nc net.Conn, _, _ string) net.Conn { return wire.New(nc, 0) })
	}
	return through(dial, func(nc net.Conn, network, address string) net.Conn { return wire.Dialled(nc, network, address, 0) })
}

// through puts something of ours around what dial returns.
func through(dial pgconn.DialFunc, put func(nc net.Conn, network, address string) net.Conn) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return put(nc, network, address), nil
	}
}

// connectError replaces pgx's error, from which errors.As gives the whole configuration
// with the password. It unwraps to what was below: the server's error, the network's, the
// context's.
type connectError struct {
	text string
	err  error
}

func (e *connectError) Error() string { return e.text }
func (e *connectError) Unwrap() error { return e.err }

// dialError makes an error of pgx's connecting fit to be shown. A connector of
// somebody else's may have put words of its own around it; they stay in the
// text and leave the chain. password is the one that was used, where it is known.
func dialError(target, password string, err error) error {
	var parseErr *pgconn.ParseConfigError
	if errors.As(err, &parseErr) {
		return explainParse(err)
	}
	text := err.Error()
	var connectErr *pgconn.ConnectError
	if errors.As(err, &connectErr) {
		outermost := err == error(connectErr)
		password, err = connectErr.Config.Password, connectErr.Unwrap()
		if outermost {
			text = err.Error() // what pgx says before it the target says already
		}
	}
	// pgx never puts the password there by intention; a server or a proxy
	// might. One that is also part of the target, or that short, would be
	// given away by its absence. Where it is there, the chain below has it too;
	// of the server's errors remain the codes, by which the pool decides: the
	// password "password" is refused in words that contain it.
	servers := serverErrors(err)
	has := func(s string) bool { return strings.Contains(s, password) }
	if len(password) >= 4 && !has(target) && (has(text) || slices.ContainsFunc(servers, func(e *pgconn.PgError) bool { return anyText(e, has) })) {
		struck := &connectError{text: redact.Strike(text, password)}
		var errs []error
		for _, e := range servers {
			errs = append(errs, &pgconn.PgError{Severity: redact.Strike(e.Severity, password), Code: redact.Strike(e.Code, password),
				Message: redact.Strike(e.Message, password)})
		}
		struck.err = errors.Join(errs...)
		return struck
	}
	return &connectError{text: text, err: err}
}

// serverErrors finds the server's errors in all branches of err: pgx joins those
// of several tries, and a list those of its servers.
func serverErrors(err error) []*pgconn.PgError {
	var found []*pgconn.PgError
	switch e := err.(type) { //nolint:errorlint // it walks the tree itself: errors.As finds one branch only
	case nil:
	case *pgconn.PgError:
		found = append(found, e)
	case interface{ Unwrap() error }:
		return serverErrors(e.Unwrap())
	case interface{ Unwrap() []error }:
		for _, below := range e.Unwrap() {
			found = append(found, serverErrors(below)...)
		}
	}
	return found
}

// anyText reports whether one of the texts of a server's error is such a one:
// Error shows its message, other ways to print it show its detail, hint and so on.
func anyText(e *pgconn.PgError, such func(string) bool) bool {
	for _, field := range reflect.ValueOf(*e).Fields() {
		if field.Kind() == reflect.String && such(field.String()) {
			return true
		}
	}
	return false
}
