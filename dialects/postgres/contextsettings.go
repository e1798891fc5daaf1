package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pooldriver/pooldriver/dialects"
	classifier "github.com/pooldriver/pooldriver/dialects/internal/classify/postgres"
)

var _ dialects.SettingsCarrier = (*session)(nil)

// dotless are the settings without a dot that a context may have. They change how long a statement
// may take, what it may use, and how it looks in views and logs. Not in the list are settings that
// change the meaning of a text (search_path), its rights (role, session_authorization), how the
// driver reads the answer (DateStyle, client_encoding), or what belongs to BeginTx
// (transaction_isolation).
var dotless = []string{"application_name", "idle_in_transaction_session_timeout", "lock_timeout", "statement_timeout", "timezone", "transaction_timeout", "work_mem"}

// CheckSettings accepts names with a dot, which a program invents, and the parameters of dotless.
func (s *session) CheckSettings(settings []dialects.ContextSetting) error {
	for _, set := range settings {
		if !strings.Contains(set.Name, ".") && !slices.Contains(dotless, set.Name) {
			return fmt.Errorf("%q is not allowed: a setting has a dot in its name, such as app.tenant, or is one of %s", set.Name, strings.Join(dotless, ", "))
		}
	}
	return nil
}

var _ dialects.Rereader = (*session)(nil)

// Rereads: of the parameters of dotless, the time zone decides how literals are read.
func (s *session) Rereads(settings []dialects.ContextSetting) bool {
	return slices.ContainsFunc(settings, func(set dialects.ContextSetting) bool { return classifier.ReadsBy(set.Name) })
}

// Anew has pgx send the text with each execution (pgx.QueryExecModeCacheDescribe). pgx keeps the
// types of the text's parameters and columns, which depend on no setting of Rereads. The modes that
// prepare nothing stay.
func (s *session) Anew(args []driver.NamedValue) []driver.NamedValue {
	if s.mode == 0 {
		config := s.pgx.Config()
		s.mode, s.described = config.DefaultQueryExecMode, config.DescriptionCacheCapacity > 0
	}
	anew := make([]driver.NamedValue, 1, 1+len(args))
	anew[0] = driver.NamedValue{Ordinal: 1, Value: s.unkept(s.mode)}
	for _, arg := range args {
		if mode, ok := arg.Value.(pgx.QueryExecMode); ok {
			arg.Value = s.unkept(mode)
		}
		arg.Ordinal++
		anew = append(anew, arg)
	}
	return anew
}

// unkept is the mode nearest to mode in which pgx keeps no statement.
func (s *session) unkept(mode pgx.QueryExecMode) pgx.QueryExecMode {
	switch {
	case mode != pgx.QueryExecModeCacheStatement && mode != pgx.QueryExecModeDescribeExec:
		return mode
	case s.described:
		return pgx.QueryExecModeCacheDescribe
	}
	return pgx.QueryExecModeDescribeExec
}

// CarriesSettings: a wrapped connection has no carrier.
func (s *session) CarriesSettings() bool { return s.carrier != nil }

var errNotLoaded = errors.New("postgres: the settings of a context (WithSettings) cannot be sent with the statement: the connection is not between two of the server's messages")

// mostTurns bounds the round trips of CarrySettings, if notifications never leave a gap.
const mostTurns = 1000

// CarrySettings loads the carrier. If the beginning of another message, such as a notification, has
// come with the last answer, a round trip brings the rest of that message, and maybe the beginning
// of one more.
func (s *session) CarrySettings(ctx context.Context, settings []dialects.ContextSetting) error {
	c := newCargo(settings)
	for range mostTurns {
		if s.carrier.load(c) {
			return nil
		}
		if err := s.pg.Ping(ctx); err != nil {
			return err
		}
	}
	return errNotLoaded
}

// DropSettings unloads the carrier.
func (s *session) DropSettings() (sent bool) { return s.carrier.unload() }

// SetSettings sets the settings on the session or, in a transaction, until its end. It remembers
// the value of a setting before the first call that sets it.
func (s *session) SetSettings(ctx context.Context, settings []dialects.ContextSetting) error {
	local := s.TxStatus() != dialects.TxNone
	before := map[string][]byte{}
	var names []string
	var args [][]byte
	for _, set := range settings {
		names = append(names, set.Name)
		args = append(args, []byte(set.Name), []byte(set.Value))
	}
	if !local {
		for name, value := range s.before {
			if !slices.Contains(names, name) {
				args = append(args, []byte(name), value) // NULL, for what did not exist, is RESET
			}
		}
	}
	const exchange = "pg_catalog.current_setting($%[1]d, true), pg_catalog.set_config($%[1]d, $%[2]d, "
	result := s.pg.ExecParams(ctx, forEach(len(args)/2, exchange+strconv.FormatBool(local)+")"), args, nil, nil, nil).Read()
	if result.Err != nil {
		return refusal(result.Err, names)
	}
	if local {
		return nil
	}
	for i, name := range names {
		known, again := s.before[name]
		if !again {
			known = slices.Clone(result.Rows[0][2*i])
		}
		before[name] = known
	}
	s.before = before
	return nil
}

// forEach is a query with an expression for each of n settings. Its parameters are their
// names and values.
func forEach(n int, expression string) string {
	var q strings.Builder
	q.WriteString("SELECT ")
	for i := range n {
		if i > 0 {
			q.WriteString(", ")
		}
		fmt.Fprintf(&q, expression, 2*i+1, 2*i+2)
	}
	return q.String()
}

// cargo is what a carrier sends in front of a statement: settings, or statements of a sandbox.
type cargo struct {
	messages []byte
	answers  string   // the types of the server's answers
	names    []string // of the settings
	early    bool     // it goes in front of everything that may fail, and not only of an execution
}

// goesBefore reports whether c is sent in front of f.
func (c *cargo) goesBefore(f flight) bool {
	return f.executes || c.early && f.kind != farewell && f.kind != copying && !f.harmless()
}

// cargoStatement is the name of a short-lived prepared statement. Without a name it would replace
// the unnamed statement that pgx may be about to execute.
const cargoStatement = "pooldriver_settings"

// newCargo makes the messages. The first Close is for a statement that has failed before
// its own Close.
func newCargo(settings []dialects.ContextSetting) cargo {
	c := cargo{answers: settingsAnswers}
	bind := &pgproto3.Bind{PreparedStatement: cargoStatement}
	for _, set := range settings {
		c.names = append(c.names, set.Name)
		bind.Parameters = append(bind.Parameters, []byte(set.Name), []byte(set.Value))
	}
	unprepare := &pgproto3.Close{ObjectType: 'S', Name: cargoStatement}
	for _, m := range []pgproto3.FrontendMessage{
		unprepare, &pgproto3.Parse{Name: cargoStatement, Query: forEach(len(settings), "pg_catalog.set_config($%d, $%d, true)")}, bind, &pgproto3.Execute{}, unprepare,
	} {
		c.messages = encode(c.messages, m)
	}
	return c
}

// load makes the carrier send settings with the statement that pgx writes next. If the next byte
// that comes is not the first of a message, load does nothing and returns false.
func (c *carrier) load(settings cargo) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state == held:
	case c.state == passing && c.betweenMessages():
		c.enter(loaded)
		c.busy.Store(true)
	default:
		return false
	}
	c.cargo = settings
	return true
}

// unload undoes load if no statement has come, or none that carries anything. sent reports whether
// a statement has carried the settings.
func (c *carrier) unload() (sent bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cargo.messages = nil
	sent = c.state != loaded && c.state != held
	if c.state == loaded {
		c.enter(passing)
	}
	return sent
}

var errLoaded = errors.New("postgres: the settings of a context (WithSettings) cannot be sent with several statements at once")

// refused is the server's error without the values that it may contain.
func (c *cargo) refused(msg []byte) []byte {
	var e pgproto3.ErrorResponse
	if e.Decode(msg[headerSize:]) != nil {
		return msg
	}
	err := strike(pgconn.ErrorResponseToPgError(&e), c.names)
	return encode(nil, &pgproto3.ErrorResponse{Severity: err.Severity, SeverityUnlocalized: err.SeverityUnlocalized, Code: err.Code, Message: err.Message})
}

// refusal is refused for an error of pgx's.
func refusal(err error, names []string) error {
	var server *pgconn.PgError
	if errors.As(err, &server) {
		return strike(server, names)
	}
	return err
}

// strike keeps the fields by which the pool decides. An operator's intervention, such as a kill or
// a cancellation, has words of its own.
func strike(e *pgconn.PgError, names []string) *pgconn.PgError {
	const intervention = "57"
	struck := &pgconn.PgError{Severity: e.Severity, SeverityUnlocalized: e.SeverityUnlocalized, Code: e.Code, Message: e.Message}
	if !strings.HasPrefix(e.Code, intervention) {
		struck.Message = "the server refuses one of the settings " + strings.Join(names, ", ") + " of the context"
	}
	return struck
}
