package sqlite

import (
	"slices"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/classify"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// The PRAGMAs that set something for their connection, as long as the connection lasts. PRAGMAs
// that set something in the file (user_version) are not among them. page_size and
// encoding belong to the connection until it writes them into a new file.
const (
	kept    = 1 << iota
	journal // journal_mode: WAL belongs to the file, the other modes to the connection
	nextTx  // defer_foreign_keys: SQLite switches it off at each COMMIT and ROLLBACK
	autovac // auto_vacuum: in a file that has tables it takes effect with the VACUUM of its connection
	key     // SQLCipher's
)

var keptPragmas = sqltext.NewNames(
	sqltext.Group[uint32]{Code: kept, Names: `analysis_limit automatic_index busy_timeout cache_size cache_spill
		case_sensitive_like cell_size_check checkpoint_fullfsync count_changes empty_result_callbacks foreign_keys
		encoding full_column_names fullfsync ignore_check_constraints journal_size_limit
		legacy_alter_table locking_mode max_page_count mmap_size page_size query_only read_uncommitted recursive_triggers reverse_unordered_selects
		secure_delete short_column_names synchronous temp_store threads trusted_schema wal_autocheckpoint
		writable_schema`},
	sqltext.Group[uint32]{Code: journal, Names: "journal_mode"},
	sqltext.Group[uint32]{Code: nextTx, Names: "defer_foreign_keys"},
	sqltext.Group[uint32]{Code: autovac, Names: "auto_vacuum"},
	sqltext.Group[uint32]{Code: key, Names: "key hexkey textkey"},
)

// Settings returns what the statements of a text set for their connection. It is nil if the text
// sets something between its own BEGIN and COMMIT, where SQLite ignores foreign_keys. alone: the text has
// one statement. complete: the text leaves nothing else in its session.
func Settings(query string) (all []dialects.Setting, alone, complete bool) {
	statements, inTx := 0, false
	complete = true
	understood := language.All(query, func(s *sqltext.Statement) bool {
		if s.Mark(0, sqltext.End) {
			return true
		}
		statements++
		inTx = s.Is(0, "begin") || s.Is(0, "savepoint") || inTx && !s.Is(0, "commit") && !s.Is(0, "end")
		from := s.At(0).From
		set, value, ok := setting(s)
		switch {
		case ok && inTx:
			return false
		case ok:
			set.Text = query[from:past(s, value, from)]
			all = append(all, set)
		case s.Effect(0).Dirty():
			complete = false
		}
		return true
	})
	if !understood || statements > 1 && slices.ContainsFunc(all, func(s dialects.Setting) bool { return s.NextTx }) {
		return nil, false, false // the script's next statement has used up the setting
	}
	return all, statements == 1, complete
}

// past is where the statement ends whose value begins at i. from: the value is missing.
func past(s *sqltext.Statement, i, from int) (to int) {
	for to = from; !s.Mark(i, sqltext.End); i++ {
		to = s.At(i).To
	}
	return to
}

// setting reads a statement as far as needed to name what it sets. Its value begins at i.
func setting(s *sqltext.Statement) (set dialects.Setting, i int, ok bool) {
	switch {
	case s.Is(0, "pragma"):
		return pragmaSetting(s)
	case s.Is(0, "attach"):
		return attachSetting(s)
	case s.Is(0, "detach"):
		i = database(s)
		name, ok := schemaName(s, i)
		return dialects.Setting{Name: attached(name), Ends: true, Undo: "ATTACH ':memory:' AS " + quoted(name)}, i, ok
	}
	return set, 0, false
}

// database is the index of the first token after ATTACH or DETACH [DATABASE].
func database(s *sqltext.Statement) int {
	if s.Is(1, "database") {
		return 2
	}
	return 1
}

func attached(name string) string { return "ATTACH " + name }

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// pragmaSetting reads PRAGMA [schema.]name = value, or name(value).
func pragmaSetting(s *sqltext.Statement) (set dialects.Setting, value int, ok bool) {
	i, of := 1, ""
	if s.Mark(2, '.') {
		i, of = 3, strings.ToLower(s.Name(1))
	}
	kind := keptPragmas.Lookup(s.Name(i))
	if !s.At(i).IsName() || kind == 0 || !s.Mark(i+1, '=') && !s.Mark(i+1, '(') {
		return set, 0, false // the PRAGMA only reads
	}
	name := strings.ToLower(s.Name(i))
	if kind == journal && of == "main" {
		of = "" // a mode for all files is also the mode of the main database's file
	}
	set.Name = "PRAGMA " + name
	if of != "" {
		set.Name = "PRAGMA " + of + "." + name
		if of != "main" && of != "temp" {
			set.Of = attached(of)
		}
	}
	return set, i + 2, withValue(&set, kind, strings.ToLower(s.Name(i+2)))
}

// withValue completes the setting of a PRAGMA.
func withValue(set *dialects.Setting, kind uint32, value string) bool {
	switch kind {
	case nextTx:
		set.Of = "" // the setting is for all files
		set.NextTx, set.Ends = true, slices.Contains([]string{"0", "off", "no", "false"}, value)
	case autovac:
		set.ForVacuum = true // not for an attached file, which may be detached before a VACUUM
		return set.Of == ""
	case key:
		set.Refusal = classify.ErrKey
	case journal:
		// DELETE takes a file out of WAL. A repeated DELETE would undo a later WAL, which a task or
		// another process may set unseen.
		set.Ends, set.Default = value == "wal", value == "delete"
	}
	return true
}

// attachSetting reads ATTACH [DATABASE] file AS name, if name is no computed expression, and other
// connections can attach the same database.
func attachSetting(s *sqltext.Statement) (set dialects.Setting, i int, ok bool) {
	file := database(s)
	shared := !inMemory(s, file)
	i = asOf(s, file) + 1
	name, ok := schemaName(s, i)
	return dialects.Setting{Name: attached(name), Undo: "DETACH " + quoted(name)}, i, ok && shared
}

// asOf is the index of the AS behind a file's expression: CAST(… AS TEXT) has one, too.
func asOf(s *sqltext.Statement, i int) int {
	for depth := 0; !s.Mark(i, sqltext.End) && (depth > 0 || !s.Is(i, "as")); i++ {
		switch s.At(i).Kind {
		case '(':
			depth++
		case ')':
			depth--
		}
	}
	return i
}

// AttachedFile returns the place of the file's expression in an ATTACH, and the same expression as
// a query writes it: ATTACH reads a single name as a string.
func AttachedFile(attach string) (from, to int, expr string) {
	language.All(attach, func(s *sqltext.Statement) bool {
		file := database(s)
		first, name := s.At(file), s.Name(file)
		from, to = first.From, first.From
		as := asOf(s, file)
		if as > file {
			to = s.At(as - 1).To
		}
		if expr = attach[from:to]; as == file+1 && first.IsName() {
			expr = "'" + strings.ReplaceAll(name, "'", "''") + "'"
		}
		return false
	})
	return from, to, expr
}

// inMemory reports whether the name of a file names a database of this connection only: in memory, or a
// temporary file (https://sqlite.org/inmemorydb.html).
func inMemory(s *sqltext.Statement, i int) bool {
	name := strings.ToLower(s.Name(i))
	if uri, ok := strings.CutPrefix(name, "file:"); ok {
		return (strings.HasPrefix(uri, ":memory:") || strings.Contains(uri, "mode=memory")) && !strings.Contains(uri, "cache=shared")
	}
	return name == ":memory:" || name == "" || s.Is(i, "null")
}

// schemaName is the name, or the string that stands for a name, at i, unless an expression begins there.
func schemaName(s *sqltext.Statement, i int) (string, bool) {
	name := strings.ToLower(s.Name(i))
	alone := (s.At(i).IsName() || s.Mark(i, sqltext.String)) && (s.Mark(i+1, sqltext.End) || s.Is(i+1, "key"))
	return name, alone && name != "" && !strings.ContainsAny(name, `"'`)
}

// unknowns are the beginnings of SQLite's errors for a name that is in no database.
var unknowns = []string{"no such table", "no such index", "no such view", "no such trigger", "no such database", "unknown database "}

// SaysUnknown reports whether an error says that a statement names something that is in no database
// of its connection.
func SaysUnknown(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	return slices.ContainsFunc(unknowns, func(what string) bool { return strings.Contains(text, what) })
}
