package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pooldriver/pooldriver/dialects"
	classifier "github.com/pooldriver/pooldriver/dialects/internal/classify/postgres"
	"github.com/pooldriver/pooldriver/dialects/postgres/internal/ahead"
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
	return checkSettings(settings)
}

func checkSettings(settings []dialects.ContextSetting) error {
	for _, set := range settings {
		if !strings.Contains(set.Name, ".") && !slices.Contains(dotless, set.Name) {
			return fmt.Errorf("%q is not allowed: a setting has a dot in its name, such as app.tenant, or is one of %s", set.Name, strings.Join(dotless, ", "))
		}
	}
	return nil
}

var _ dialects.Rereader = (*session)(nil)

// Rereads: of the parameters of dotless, the time zone decides how literals are read.
func (s *session) Rereads(settings []dialects.ContextSetting) bool { return rereads(settings) }

func rereads(settings []dialects.ContextSetting) bool {
	return slices.ContainsFunc(settings, func(set dialects.ContextSetting) bool { return classifier.ReadsBy(set.Name) })
}

// KeepSettings implements dialects.ArgumentKeeper. A statement of a pipeline is prepared for all settings, so none may change
// how its text is read.
func (dialect) KeepSettings(settings []dialects.ContextSetting) bool {
	return checkSettings(settings) == nil && !rereads(settings)
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

// CarriesSettings: a wrapped connection sends nothing ahead.
func (s *session) CarriesSettings() bool { return s.ahead != nil }

// Kept is not known in a wrapped connection.
func (s *session) Kept() (prepared, executed uint64) {
	if s.ahead == nil {
		return 0, 0
	}
	return s.ahead.Kept()
}

var errNotLoaded = errors.New("postgres: the settings of a context (WithSettings) cannot be sent with the statement: the connection is not between two of the server's messages")

// mostTurns bounds the round trips of CarrySettings, if notifications never leave a gap.
const mostTurns = 1000

// CarrySettings sends settings ahead. If the beginning of another message, such as a notification, has
// come with the last answer, a round trip brings the rest of that message, and maybe the beginning
// of one more.
func (s *session) CarrySettings(ctx context.Context, settings []dialects.ContextSetting) error {
	for range mostTurns {
		if s.ahead.Carry(nil, settings) {
			return nil
		}
		if err := s.pg.Ping(ctx); err != nil {
			return err
		}
	}
	return errNotLoaded
}

// DropSettings ends CarrySettings.
func (s *session) DropSettings() (sent bool) { return s.ahead.Drop() }

// SetSettings sets the settings on the session or, in a transaction, until its end. It remembers
// the value of a setting before the first call that sets it.
func (s *session) SetSettings(ctx context.Context, settings []dialects.ContextSetting) error {
	local := s.TxStatus() != dialects.TxNone
	var names []string
	var args [][]byte
	for _, set := range settings {
		names = append(names, set.Name)
		args = append(args, []byte(set.Name), []byte(set.Value))
	}
	if !local {
		for name, value := range s.before {
			if !slices.Contains(names, name) {
				args = append(args, []byte(name), value) // NULL, for a setting that did not exist, is RESET
			}
		}
	}
	var exchanges []string
	for i := 1; i < len(args); i += 2 {
		exchanges = append(exchanges, fmt.Sprintf("pg_catalog.current_setting($%[1]d, true), pg_catalog.set_config($%[1]d, $%[2]d, %[3]t)", i, i+1, local))
	}
	result := s.pg.ExecParams(ctx, "SELECT "+strings.Join(exchanges, ", "), args, nil, nil, nil).Read()
	if result.Err != nil {
		return refusal(result.Err, names)
	}
	if local {
		return nil
	}
	s.settingsChange(names)
	before := map[string][]byte{}
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

// settingsChange drops the statements of pipelines if the server may read their texts by one of the
// settings that were or are in force.
func (s *session) settingsChange(names []string) {
	if slices.ContainsFunc(names, classifier.ReadsBy) || slices.ContainsFunc(slices.Collect(maps.Keys(s.before)), classifier.ReadsBy) {
		s.pipelined.dropAll()
	}
}

// refusal is ahead.RefusedSettings for an error of pgx's.
func refusal(err error, names []string) error {
	if server, ok := errors.AsType[*pgconn.PgError](err); ok {
		return ahead.RefusedSettings(server, names)
	}
	return err
}
