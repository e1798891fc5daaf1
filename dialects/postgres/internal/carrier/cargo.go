package carrier

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/pooldriver/pooldriver/dialects"
)

// cargo is what goes in front of a statement: settings, or statements of a sandbox.
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

// settingsStatement is the name of a short-lived prepared statement. Without a name it would replace
// the unnamed statement that pgx may be about to execute.
const settingsStatement = "pooldriver_settings"

// addSettings adds the statement that sets settings. The first Close is for a statement that has
// failed before its own Close.
func (c *cargo) addSettings(settings []dialects.ContextSetting) {
	bind := &pgproto3.Bind{PreparedStatement: settingsStatement}
	var calls []string
	for i, set := range settings {
		c.names = append(c.names, set.Name)
		bind.Parameters = append(bind.Parameters, []byte(set.Name), []byte(set.Value))
		calls = append(calls, fmt.Sprintf("pg_catalog.set_config($%d, $%d, true)", 2*i+1, 2*i+2))
	}
	parse := &pgproto3.Parse{Name: settingsStatement, Query: "SELECT " + strings.Join(calls, ", ")}
	end := &pgproto3.Close{ObjectType: 'S', Name: settingsStatement}
	c.messages = encode(c.messages, end, parse, bind, &pgproto3.Execute{}, end)
	c.answers += settingsAnswers
}

var errLoaded = errors.New("postgres: the settings of a context (WithSettings) cannot be sent with several statements at once")

// refused is the server's error without the values that it may contain.
func (c *cargo) refused(msg []byte) []byte {
	var e pgproto3.ErrorResponse
	if e.Decode(msg[headerSize:]) != nil {
		return msg
	}
	err := RefusedSettings(pgconn.ErrorResponseToPgError(&e), c.names)
	return encode(nil, &pgproto3.ErrorResponse{Severity: err.Severity, SeverityUnlocalized: err.SeverityUnlocalized, Code: err.Code, Message: err.Message})
}

// RefusedSettings is the server's error about settings, without the values that it may contain. It
// keeps the fields by which the pool decides. An operator's intervention, such as a kill or a
// cancellation, keeps its own words.
func RefusedSettings(e *pgconn.PgError, names []string) *pgconn.PgError {
	const intervention = "57"
	struck := &pgconn.PgError{Severity: e.Severity, SeverityUnlocalized: e.SeverityUnlocalized, Code: e.Code, Message: e.Message}
	if !strings.HasPrefix(e.Code, intervention) {
		struck.Message = "the server refuses one of the settings " + strings.Join(names, ", ") + " of the context"
	}
	return struck
}
