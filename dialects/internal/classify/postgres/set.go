package postgres

import (
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// set looks at SET.
func set(s *sqltext.Statement, i int) dialects.Effect {
	// TRANSACTION, CONSTRAINTS and LOCAL may also be the name of a parameter.
	named := s.Mark(i+2, '.') || s.IsOperator(i+2) || s.Is(i+2, "to")
	switch {
	case !named && (s.Is(i+1, "transaction") || s.Is(i+1, "constraints")):
		return dialects.Clean
	case !named && s.Is(i+1, "local"):
		return setting(s, i+1) | namesTemp(s, i+2)
	}
	return setting(s, i) | dialects.Stateful
}

// namesTemp: a SET LOCAL may give a search path that begins with the temporary schema, and objects created
// there outlive the transaction.
func namesTemp(s *sqltext.Statement, i int) dialects.Effect {
	for ; !s.Mark(i, sqltext.End); i++ {
		text := s.Mark(i, sqltext.String)
		if s.At(i).IsName() && isTemp(s.Name(i)) || s.Mark(i, sqltext.Disguised) ||
			text && (s.Mark(i-1, sqltext.String) || mayNameTemp(s.Name(i))) { // strings side by side are one string
			return dialects.Suspect
		}
	}
	return dialects.Clean
}

// mayNameTemp reports whether a string may name the temporary schema. One with escapes or quotes in it may.
func mayNameTemp(text string) bool {
	return strings.ContainsAny(text, `'\`) || sqltext.Contains(text, "pg_temp")
}

// parameters are what other values of parameters change. By the harmless ones the server reads no text: a
// prepared statement is the same whatever their values are. A parameter that is missing costs one
// preparation. The integration test TestNoSessionVariableReachesAStatement sets each of the harmless ones.
var parameters = sqltext.NewNames(
	// They decide what a statement's names mean. The server itself reads a prepared statement again when the
	// search path has changed.
	sqltext.Group[dialects.Effect]{Code: dialects.ForgetPrepared, Names: "search_path schema role authorization session_authorization"},
	sqltext.Group[dialects.Effect]{Code: dialects.ForgetPrepared | dialects.Rereads, Names: "all"},
	sqltext.Group[dialects.Effect]{Code: dialects.Stateful | dialects.Unresettable, Names: "seed"}, // SET LOCAL does not restore it
	sqltext.Group[dialects.Effect]{Code: harmless, Names: `
		application_name client_min_messages idle_in_transaction_session_timeout idle_session_timeout lock_timeout
		maintenance_work_mem statement_timeout synchronous_commit transaction_timeout work_mem characteristics
		default_transaction_deferrable default_transaction_isolation default_transaction_read_only
		transaction_deferrable transaction_isolation transaction_read_only`},
)

// harmless is no effect: it only tells a known parameter from an unknown one.
const harmless dialects.Effect = 1 << 31

// changes is the effect of another value of a parameter. Parameters with a dot in their name belong to
// programs, which read them when a statement is executed, and to extensions.
func changes(parameter string) dialects.Effect {
	if strings.Contains(parameter, ".") {
		return dialects.Clean
	}
	if e := parameters.Lookup(parameter); e != 0 {
		return e &^ harmless
	}
	return dialects.Rereads
}

// ReadsBy reports whether the server may read texts by this parameter.
func ReadsBy(parameter string) bool {
	return !strings.Contains(parameter, ".") && parameters.Lookup(parameter) != harmless
}

// hidden is the effect of a setting whose name cannot be read: it may be the seed.
const hidden = dialects.Stateful | dialects.Unresettable | dialects.ForgetPrepared | dialects.Rereads

// setting is the effect of the SET or RESET whose parameter's name follows.
func setting(s *sqltext.Statement, i int) dialects.Effect {
	if i++; s.Is(i, "session") {
		i++
	}
	switch {
	case !s.At(i).IsName(), s.Mark(i+1, '.'):
		return dialects.Clean
	case s.Mark(i, sqltext.Disguised):
		return hidden
	}
	return changes(s.Name(i))
}

// setConfig looks at set_config(name, value, is_local), whose name stands at i. With a literal true as its
// third argument the setting ends with the transaction.
func setConfig(s *sqltext.Statement, i int) dialects.Effect {
	name := s.Text(i + 2)
	if !isLiteral(s, i+2) || strings.Contains(name, `\`) {
		return hidden
	}
	parameter := name[1 : len(name)-1]
	e, past := changes(parameter), s.BehindClosingParen(i+1)
	switch local := s.Is(past-2, "true") && s.Mark(past-3, ','); {
	case !local, s.Mark(i-1, '.') && !s.InCatalog(i):
		return e | dialects.Stateful
	case sqltext.Equal(parameter, "search_path"):
		return e | localPath(s, i+4)
	}
	return e
}

// isLiteral reports whether a whole argument is one plain literal.
func isLiteral(s *sqltext.Statement, i int) bool {
	return s.Mark(i, sqltext.String) && s.Text(i)[0] == '\'' && s.Mark(i+1, ',')
}

// localPath is the effect of a search path that ends with the transaction. A parameter ($1) counts as the
// schema of a tenant: a cleaning after each of the tenant's transactions would cost too much.
func localPath(s *sqltext.Statement, i int) dialects.Effect {
	if isLiteral(s, i) && !mayNameTemp(s.Name(i)) || s.Mark(i, '$') && s.Mark(i+1, sqltext.Number) && s.Mark(i+2, ',') {
		return dialects.Clean
	}
	return dialects.Suspect
}
