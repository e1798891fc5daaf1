package postgres

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/hosts"
)

var (
	_ dialects.ListenTemplate = (*template)(nil)
	_ dialects.ListenTemplate = wrapped{}
	_ dialects.Listener       = listener{}
)

// DialListener connects to a primary: a standby refuses LISTEN, and no notification reaches it. If the DSN
// has several servers, it is one that accepts writes: an old primary may be read-only after a failover.
func (t *template) DialListener(ctx context.Context, cred *dialects.Credential) (dialects.Listener, error) {
	writing := *t
	writing.role = hosts.Primary
	if len(t.addresses) > 1 {
		writing.role = hosts.ReadWrite
	}
	s, err := writing.Dial(ctx, cred)
	if errors.Is(err, dialects.ErrWrongRole) && writing.role == hosts.ReadWrite {
		writing.role = hosts.Primary
		s, err = writing.dialReadOnly(ctx, cred, err)
	}
	if err != nil {
		return nil, err
	}
	return listener{s.(*session)}, nil
}

// dialReadOnly dials a primary that accepts writes, and not ours. refused is the error where there is none.
func (t *template) dialReadOnly(ctx context.Context, cred *dialects.Credential, refused error) (dialects.Session, error) {
	s, err := t.Dial(ctx, cred)
	if err != nil {
		return nil, refused
	}
	row, err := s.(*session).row(ctx, asksWhoseReadOnly, 1, errNoAnswer)
	if err != nil || row[0] == "f" {
		hosts.Drop(s)
		return nil, refused
	}
	return s, nil
}

// asksWhoseReadOnly tells whether default_transaction_read_only is of our role or database, and not of the server.
const asksWhoseReadOnly = "SELECT source IN ('user', 'database', 'database user', 'client') FROM pg_catalog.pg_settings WHERE name = 'default_transaction_read_only'"

func (t *template) CheckChannel(name string) error { return checkChannel(name) }

// DialListener refuses a connection whose notifications pgx would give to the program.
func (w wrapped) DialListener(ctx context.Context, cred *dialects.Credential) (dialects.Listener, error) {
	found, err := w.Dial(ctx, cred)
	if err != nil {
		return nil, err
	}
	s, ok := found.(*session)
	switch {
	case !ok:
		err = errors.New("the connector given to Wrap does not show pgx's connection, which Listen needs; set Config.ListenDSN")
	case !keepsNotifications(s.pgx):
		err = errors.New("pgx gives the notifications of this connector to its OnNotification; leave OnNotification out, or set Config.ListenDSN")
	default:
		s.role, s.known = hosts.Primary, true
		err = s.CheckRole(ctx)
	}
	if err != nil {
		hosts.Drop(found)
		return nil, err
	}
	return listener{s}, nil
}

// keepsNotifications reports whether conn keeps its notifications for WaitForNotification. pgx puts its
// own method into the configuration, if the program has left OnNotification empty. If a pgx has renamed
// the method, no connection counts as one that keeps them, and TestListenThroughWrap fails.
func keepsNotifications(conn *pgx.Conn) bool {
	of := runtime.FuncForPC(reflect.ValueOf(conn.Config().OnNotification).Pointer())
	return of != nil && strings.HasPrefix(of.Name(), reflect.TypeFor[pgx.Conn]().PkgPath()+".(*Conn).bufferNotifications")
}

func (w wrapped) CheckChannel(name string) error { return checkChannel(name) }

// checkChannel: the server cuts a longer name of LISTEN, and refuses one of pg_notify.
func checkChannel(name string) error {
	const longest = 63
	switch {
	case name == "":
		return errors.New("a channel needs a name")
	case len(name) > longest:
		return fmt.Errorf("the channel's name has %d bytes, and PostgreSQL allows %d", len(name), longest)
	case !utf8.ValidString(name) || strings.Contains(name, "\x00"):
		return errors.New("the channel's name is not valid UTF-8, or has a zero byte")
	}
	return nil
}

// listener is a session that listens.
type listener struct{ *session }

func (l listener) Listen(ctx context.Context, channels []string) error {
	return l.each(ctx, "LISTEN ", channels)
}

func (l listener) Unlisten(ctx context.Context, channels []string) error {
	return l.each(ctx, "UNLISTEN ", channels)
}

// each sends all statements as one, which the server executes as one transaction.
func (l listener) each(ctx context.Context, statement string, channels []string) error {
	var text strings.Builder
	for _, name := range channels {
		text.WriteString(statement + pgx.Identifier{name}.Sanitize() + ";")
	}
	return l.simple(ctx, text.String())
}

func (l listener) Notify(ctx context.Context, channel, payload string) error {
	return l.pg.ExecParams(ctx, "SELECT pg_notify($1, $2)", [][]byte{[]byte(channel), []byte(payload)}, nil, nil, nil).Read().Err
}

func (l listener) Wait(ctx context.Context) (channel, payload string, err error) {
	n, err := l.pgx.WaitForNotification(ctx)
	if err != nil {
		return "", "", err
	}
	return n.Channel, n.Payload, nil
}

// Ping asks for the server's role: no failover ends the sessions of a primary that is only made read-only.
func (l listener) Ping(ctx context.Context) error { return l.CheckRole(ctx) }

// Relayed compares the process to which we have logged in with the one that executes statements:
// poolers make numbers of their own up for their clients.
func (l listener) Relayed(ctx context.Context) (bool, error) {
	result := l.pg.ExecParams(ctx, "SELECT pg_backend_pid()", nil, nil, nil, nil).Read()
	if result.Err != nil {
		return false, result.Err
	}
	return len(result.Rows) != 1 || string(result.Rows[0][0]) != strconv.FormatUint(uint64(l.pg.PID()), 10), nil
}
