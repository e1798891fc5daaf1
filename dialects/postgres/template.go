package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/opaque"
	"github.com/pooldriver/pooldriver/dialects/internal/wire"
)

// template is a parsed DSN. It prints as its target: config holds the password.
type template struct {
	opaque.Label
	config *pgx.ConnConfig // never handed out, only copies of it
	params []dialects.Param
}

var _ dialects.Template = (*template)(nil)

// traits of pgx, with its reasons in dialects.Traits. Byte slices come from
// bytea, json, jsonb and xml, in both formats scanned into memory made for each
// value (pgx 5.12.0: stdlib's initValueFuncs; pgtype's scanPlanBinaryBytesToBytes,
// scanPlanTextByteaToBytes and scanPlanAnyTextToBytes). A codec that a program
// registers for one of these types must not retain what it scans, either, says
// pgtype.ScanPlan.
var traits = dialects.Traits{TxKeepsContext: true, BadConnUnsure: true, StatusKnown: true, StatementsEndWithSession: true, PreparedAges: true,
	BytesKept: true}

// labelOf says where config leads: the user if there is one to name, the first
// host, and how many there are besides.
func labelOf(config *pgx.ConnConfig, user string) opaque.Label {
	list := addresses(config)
	s := "postgres "
	if user != "" {
		s += user + "@"
	}
	s += list[0] + "/" + config.Database
	if n := len(list) - 1; n > 0 {
		s += fmt.Sprintf(" (+%d more)", n)
	}
	return opaque.Label(s)
}

func (t *template) PoolParams() []dialects.Param { return t.params }

func (t *template) Target() string { return t.String() }

func (t *template) Driver() driver.Driver { return stdlib.GetDefaultDriver() }

func (t *template) Traits() dialects.Traits { return traits }

func (t *template) TakesCredential() bool { return true }

// Close has nothing to free.
func (t *template) Close() error { return nil }

func (t *template) Dial(ctx context.Context, cred *dialects.Credential) (dialects.Session, error) {
	// Copy goes all the way down, TLS included: pgx and its hooks write to
	// what they are given.
	config := t.config.Copy()
	if cred != nil {
		config.User, config.Password = cred.User, cred.Password
	}
	config.DialFunc = throughWire(config.DialFunc)
	var last *carrier
	config.BuildFrontend = throughCarrier(config.BuildFrontend, &last)
	conn, err := stdlib.GetConnector(*config).Connect(ctx)
	if err != nil {
		return nil, dialError(t.Target(), err)
	}
	s := newSession(conn.(*stdlib.Conn), t.Target())
	if g := gateOf(s.pg.Conn()); g != nil && last != nil && last.frontend == s.pg.Frontend() {
		s.carrier, last.gate = last, g
	}
	return s, nil
}

// throughWire puts our network connection, and a gate, under pgx's. pgx dials by it for a
// request to cancel, too, where it does no harm.
func throughWire(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		nc, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &gate{Conn: wire.New(nc, 0)}, nil
	}
}

// connectError stands in for pgx's, which carries the whole configuration, the
// password included, to whoever asks errors.As for it. The chain goes on below
// it: the server's error, the network's, the context's.
type connectError struct {
	text string
	err  error
}

func (e *connectError) Error() string { return e.text }
func (e *connectError) Unwrap() error { return e.err }

// dialError makes an error of pgx's connecting fit to be shown. A connector of
// somebody else's may have put words of its own around it; they stay in the
// text and leave the chain.
func dialError(target string, err error) error {
	var parseErr *pgconn.ParseConfigError
	if errors.As(err, &parseErr) {
		return explainParse(err)
	}
	text, password := err.Error(), ""
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
	// of the server's error remains the code, by which the pool decides: the
	// password "password" is refused in words that contain it.
	if len(password) >= 4 && !strings.Contains(target, password) && strings.Contains(text, password) {
		struck := &connectError{text: strings.ReplaceAll(text, password, "xxxxx")}
		var server *pgconn.PgError
		if errors.As(err, &server) {
			struck.err = &pgconn.PgError{Severity: server.Severity, Code: server.Code,
				Message: strings.ReplaceAll(server.Message, password, "xxxxx")}
		}
		return struck
	}
	return &connectError{text: text, err: err}
}
