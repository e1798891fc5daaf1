package mysql

import (
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// variables are what the words of a SET change, wherever they stand in it. By the harmless variables the server
// reads no text: a prepared statement is the same whatever their values are. A variable that is missing costs one
// preparation. The integration test TestNoSessionVariableReachesAStatement sets each of the harmless ones.
var variables = sqltext.NewNames(
	sqltext.Group[dialects.Effect]{Code: dialects.ForgetPrepared | dialects.Rereads, Names: "role"},
	sqltext.Group[dialects.Effect]{Code: dialects.ForgetPrepared | dialects.Renames | dialects.Rereads, Names: "names character charset"},
	sqltext.Group[dialects.Effect]{Code: dialects.ForgetPrepared | dialects.Renames, Names: `
		sql_mode character_set_client character_set_connection character_set_results
		character_set_database character_set_server collation_connection collation_database collation_server`},
	sqltext.Group[dialects.Effect]{Code: dialects.TxControl, Names: "autocommit"},
	// SET SESSION AUTHORIZATION (MariaDB 12), SET RESOURCE GROUP; the texts of the last borrower, which SHOW
	// PROFILES and optimizer_trace show.
	sqltext.Group[dialects.Effect]{Code: dialects.Unresettable, Names: "authorization resource profiling optimizer_trace"},
	sqltext.Group[dialects.Effect]{Code: harmless, Names: `
		autocommit foreign_key_checks innodb_lock_wait_timeout interactive_timeout lock_wait_timeout max_execution_time
		max_statement_time net_read_timeout net_write_timeout sql_log_bin transaction_isolation
		transaction_read_only tx_isolation tx_read_only unique_checks wait_timeout`},
)

// harmless is no effect: it only tells a harmless variable from the others.
const harmless dialects.Effect = 1 << 31

// set looks at SET.
func set(s *sqltext.Statement, i int) dialects.Effect {
	i++
	system := s.Mark(i, sqltext.System) // @@global.x
	if system {
		i++
	}
	switch global := s.Is(i, "global") || s.Is(i, "persist") || s.Is(i, "persist_only"); {
	case system && global && s.Mark(i+1, '.'), !system && global && s.At(i+1).IsName():
		return shared(s, i, !system && s.Is(i+1, "transaction"))
	case system:
	case s.Is(i, "password"), s.Is(i, "default") && s.Is(i+1, "role"):
		return shared(s, i, false)
	case s.Is(i, "statement"):
		return setStatement(s, i+1)
	}
	return s.Effects(i, variables)&^harmless | rereads(s, i) | dialects.Stateful
}

// shared is the effect of a SET of a global variable, a password or a default role: it is clean if it sets
// nothing else and the value's expression is clean. SET GLOBAL TRANSACTION may have several characteristics.
func shared(s *sqltext.Statement, i int, transaction bool) dialects.Effect {
	e, comma := dialects.Clean, false
	for j := i; !s.Mark(j, sqltext.End); j++ {
		comma = comma || s.Mark(j, ',')
		if s.At(j).IsName() {
			e |= variables.Lookup(s.Name(j)) & dialects.Unresettable
		}
	}
	if comma && !transaction {
		return e | dialects.Stateful | dialects.ForgetPrepared | dialects.Rereads | dialects.TxControl
	}
	return s.Scan(i)
}

// rereads returns dialects.Rereads if one of the variables that are assigned is not known to be harmless.
func rereads(s *sqltext.Statement, i int) dialects.Effect {
	known := s.Is(i, "transaction") || isScope(s, i) && s.Is(i+1, "transaction")
	for ; !s.Mark(i, sqltext.End); i++ {
		if !s.Mark(i+1, '=') && !s.Mark(i+1, sqltext.Assign) {
			continue
		}
		user := s.Mark(i-1, '@')
		if !user && (variables.Lookup(s.Name(i))&harmless == 0 || s.Mark(i-1, '.') && !isScope(s, i-2)) {
			return dialects.Rereads
		}
		known = true
	}
	if !known { // SET NAMES, SET ROLE
		return dialects.Rereads
	}
	return dialects.Clean
}

func isScope(s *sqltext.Statement, i int) bool {
	return s.Is(i, "session") || s.Is(i, "local") || s.Is(i, "global") || s.Is(i, "persist") || s.Is(i, "persist_only")
}

// setStatement looks at MariaDB's SET STATEMENT x = 1 FOR statement: the values last as long as the statement.
func setStatement(s *sqltext.Statement, i int) dialects.Effect {
	e := dialects.Clean
	for ; !s.Mark(i, sqltext.End); i++ {
		switch {
		case s.Mark(i, '(') && s.At(i-1).IsName():
			e |= s.Callee(i - 1)
		case s.Mark(i, sqltext.Assign):
			e |= dialects.Stateful
		case s.Is(i, "for") && s.Plain(i) && s.Is(i+1, "set"):
			return e | dialects.Stateful
		case s.Is(i, "for") && s.Plain(i):
			return e | s.Effect(i+1)
		}
	}
	return e | dialects.Stateful
}
