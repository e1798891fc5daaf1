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

// template is a parsed DSN, or the config of FromConfig. It prints as its target: config holds the password.
type template struct {
	base.Destination
	dsn    string          // in pgx's form; empty: of FromConfig
	config *pgx.ConnConfig // never handed out, only copies of it

	addresses []string // of the hosts that config names
	list      *hosts.List
	network   dialects.DialFunc // the program's function; nil: pgx's
	role      hosts.Role
}

var _ dialects.HostLister = (*template)(nil)

// traits of pgx; dialects.Traits has the reasons. Byte slices come from bytea, json, jsonb and xml.
// In both formats they are scanned into memory that is made for each value (pgx 5.12.0: stdlib's
// initValueFuncs; pgtype's scanPlanBinaryBytesToBytes, scanPlanTextByteaToBytes and
// scanPlanAnyTextToBytes). By pgtype.ScanPlan, a codec that a program registers for such a type
// must not retain what it scans, either.
var traits = dialects.Traits{TxKeepsContext: true, BadConnUnsure: true, StatusKnown: true, StatementsEndWithSession: true, PreparedAges: true,
	BytesKept: true, ArgsAsGiven: true, Pipelines: true}

// targetOf says where config leads: the user, if there is a user to name, the first host, and the
// number of other hosts.
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
	own.BatchesBypass = t.config.DefaultQueryExecMode == pgx.QueryExecModeExec // by pgconn.PgConn.ExecBatch
	return own
}

func (t *template) TakesCredential() bool { return true }

var _ dialects.NetworkTemplate = (*template)(nil)

// DialNetworkBy implements dialects.NetworkTemplate.
func (t *template) DialNetworkBy(dial dialects.DialFunc) { t.network = dial }

// throughWire puts our network connection under pgx's. pgx also uses it to dial for a request to
// cancel: this does no harm. That request goes to the remote address of the connection, so dial
// must understand that address.
func (t *template) throughWire(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := dial(ctx, network, address)
		switch {
		case err != nil:
			return nil, err
		case t.network == nil && hasSocket(nc):
			return wire.New(nc, 0), nil
		}
		return wire.Dialled(nc, network, address, 0), nil
	}
}

// connectError replaces pgx's error, from which errors.As gives the whole configuration with the
// password. connectError unwraps to the errors below: the server's, the network's, the context's.
type connectError struct {
	text string
	err  error
}

func (e *connectError) Error() string { return e.text }
func (e *connectError) Unwrap() error { return e.err }

// dialError makes an error of pgx's connect fit to be shown. Another connector may have put its own
// words around the error: they stay in the text and leave the chain. password is the password that
// was used, if it is known.
func dialError(target, password string, err error) error {
	if _, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		return explainParse(err)
	}
	text := err.Error()
	if connectErr, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		outermost := err == error(connectErr)
		password, err = connectErr.Config.Password, connectErr.Unwrap()
		if outermost {
			text = lastFirst(err) // the target already says what pgx says before it
		}
	}
	// pgx never puts the password there by intention, but a server or a proxy might. A password
	// that is part of the target, or is shorter than four bytes, stays: its absence would give it
	// away. If the text contains the password, the chain below contains it too. The codes of the
	// server's errors, by which the pool decides, remain: the password "password" is refused in
	// words that contain it.
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

// lastFirst is the text of an error of several attempts, such as without TLS after the server has refused TLS. The last attempt says why
// there is no connection, and a log or a page may show only the beginning.
func lastFirst(err error) string {
	all, ok := err.(interface{ Unwrap() []error })
	if !ok {
		return err.Error()
	}
	var texts []string
	for _, e := range slices.Backward(all.Unwrap()) {
		texts = append(texts, e.Error())
	}
	return strings.Join(texts, "; before that ")
}

// serverErrors finds the server's errors in all branches of err: pgx joins the errors of several
// tries, and a list joins the errors of its servers.
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

// anyText reports whether such returns true for one of the texts of a server's error: Error shows
// the message, other ways to print the error show its detail, hint and so on.
func anyText(e *pgconn.PgError, such func(string) bool) bool {
	for _, field := range reflect.ValueOf(*e).Fields() {
		if field.Kind() == reflect.String && such(field.String()) {
			return true
		}
	}
	return false
}
