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
	kept    uint8 = iota + 1
	journal       // journal_mode: WAL belongs to the file, the other modes to the connection
	nextTx        // defer_foreign_keys: SQLite switches it off at each COMMIT and ROLLBACK
	vacuum        // auto_vacuum: in a file that has tables it takes effect with the VACUUM of its connection
	key           // SQLCipher's
)

var keptPragmas = sqltext.NewNames(
	sqltext.Group{Code: kept, Names: `analysis_limit automatic_index busy_timeout cache_size cache_spill
		case_sensitive_like cell_size_check checkpoint_fullfsync count_changes empty_result_callbacks foreign_keys
		encoding full_column_names fullfsync ignore_check_constraints journal_size_limit
		legacy_alter_table locking_mode max_page_count mmap_size page_size query_only read_uncommitted recursive_triggers reverse_unordered_selects
		secure_delete short_column_names synchronous temp_store threads trusted_schema wal_autocheckpoint
		writable_schema`},
	sqltext.Group{Code: journal, Names: "journal_mode"},
	sqltext.Group{Code: nextTx, Names: "defer_foreign_keys"},
	sqltext.Group{Code: vacuum, Names: "auto_vacuum"},
	sqltext.Group{Code: key, Names: "key hexkey textkey"},
)

// Settings returns what the statements of a text set for their connection. It is nil if the text
// sets something between its own BEGIN and COMMIT, where SQLite ignores foreign_keys. alone: the text has
// one statement. complete: the text leaves nothing else in its session.
func Settings(query string) (all []dialects.Setting, alone, complete bool) {
	var c classifier
	c.Begin(language, query)
	statements, inTx := 0, false
	complete = true
	for c.Next() {
		if c.Lx.Ended() {
			continue
		}
		statements++
		inTx = begins(&c.Lx) || inTx && !commits(&c.Lx)
		s, ok := setting(query, c.Lx)
		switch {
		case ok && inTx:
			return nil, false, false
		case ok:
			all = append(all, s)
			c.Lx.SkipStatement()
		case c.statement().Dirty():
			complete = false
		}
	}
	if c.Effect().Dirty() { // quotes or a comment without an end
		return nil, false, false
	}
	if statements > 1 && slices.ContainsFunc(all, func(s dialects.Setting) bool { return s.NextTx }) {
		return nil, false, false // the script's next statement has used up the setting
	}
	return all, statements == 1, complete
}

func begins(lx *sqltext.Lexer) bool { return lx.IsWord("begin") || lx.IsWord("savepoint") }

func commits(lx *sqltext.Lexer) bool { return lx.IsWord("commit") || lx.IsWord("end") }

// setting reads the statement of query that begins at the last token of lx.
func setting(query string, lx sqltext.Lexer) (dialects.Setting, bool) {
	from, _ := lx.Span()
	s, ok := named(&lx)
	if !ok {
		return s, false
	}
	to := from // as long as the value is missing
	for ; !lx.Ended(); lx.Next() {
		_, to = lx.Span()
	}
	s.Text = query[from:to]
	return s, true
}

// named reads a statement as far as needed to name what it sets.
func named(lx *sqltext.Lexer) (dialects.Setting, bool) {
	switch {
	case lx.IsWord("pragma"):
		return pragmaSetting(lx)
	case lx.IsWord("attach"):
		return attachSetting(lx)
	case lx.IsWord("detach"):
		if lx.Next(); lx.IsWord("database") {
			lx.Next()
		}
		name, ok := schemaName(lx)
		return dialects.Setting{Name: attached(name), Ends: true, Undo: "ATTACH ':memory:' AS " + quoted(name)}, ok
	}
	return dialects.Setting{}, false
}

func attached(name string) string { return "ATTACH " + name }

func quoted(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

// pragmaSetting reads PRAGMA [schema.]name = value, or name(value).
func pragmaSetting(lx *sqltext.Lexer) (dialects.Setting, bool) {
	if lx.Next(); !lx.IsName() {
		return dialects.Setting{}, false
	}
	name, of := strings.ToLower(lx.Name()), ""
	lx.Next()
	if lx.Token() == sqltext.Dot {
		if lx.Next(); !lx.IsName() {
			return dialects.Setting{}, false
		}
		of, name = name, strings.ToLower(lx.Name())
		lx.Next()
	}
	kind := keptPragmas.Lookup(name)
	if kind == 0 || lx.Text() != "=" && lx.Token() != sqltext.Open {
		return dialects.Setting{}, false // the PRAGMA only reads
	}
	s := dialects.Setting{Name: "PRAGMA " + name}
	if kind == journal && of == "main" {
		of = "" // a mode for all files is also the mode of the main database's file
	}
	if of != "" {
		s.Name = "PRAGMA " + of + "." + name
		if of != "main" && of != "temp" {
			s.Of = attached(of)
		}
	}
	lx.Next()
	return withValue(s, kind, lx)
}

// withValue reads the value of the setting of a PRAGMA.
func withValue(s dialects.Setting, kind uint8, lx *sqltext.Lexer) (dialects.Setting, bool) {
	switch kind {
	case nextTx:
		s.Of = "" // the setting is for all files
		s.NextTx, s.Ends = true, isOff(strings.ToLower(strings.Trim(lx.Text(), `'"`)))
	case vacuum:
		s.ForVacuum = true // not for an attached file, which may be detached before a VACUUM
		return s, s.Of == ""
	case key:
		s.Refusal = classify.ErrKey
	case journal:
		mode := strings.ToLower(strings.Trim(lx.Text(), `'"`))
		// DELETE takes a file out of WAL. A repeated DELETE would undo a later WAL, which a task or
		// another process may set unseen.
		s.Ends, s.Default = mode == "wal", mode == "delete"
	}
	return s, true
}

// isOff reports whether a value of a PRAGMA, in lower case, is false
// (https://sqlite.org/pragma.html).
func isOff(value string) bool {
	return value == "0" || value == "off" || value == "no" || value == "false"
}

// attachSetting reads ATTACH [DATABASE] file AS name, if name is no computed expression, and other
// connections can attach the same database.
func attachSetting(lx *sqltext.Lexer) (dialects.Setting, bool) {
	if lx.Next(); lx.IsWord("database") {
		lx.Next()
	}
	if inMemory(*lx) {
		return dialects.Setting{}, false
	}
	for ; !lx.IsWord("as") || lx.Depth() > 0; lx.Next() { // CAST(… AS TEXT)
		if lx.Ended() {
			return dialects.Setting{}, false
		}
	}
	lx.Next()
	name, ok := schemaName(lx)
	return dialects.Setting{Name: attached(name), Undo: "DETACH " + quoted(name)}, ok
}

// AttachedFile returns the place of the file's expression in an ATTACH, and the same expression as
// a query writes it: ATTACH reads a single name as a string.
func AttachedFile(attach string) (from, to int, expr string) {
	var c classifier
	c.Begin(language, attach)
	c.Next()
	lx := &c.Lx
	if lx.Next(); lx.IsWord("database") {
		lx.Next()
	}
	first := *lx
	from, _ = lx.Span()
	for to = from; !lx.Ended() && (!lx.IsWord("as") || lx.Depth() > 0); lx.Next() {
		_, to = lx.Span()
	}
	expr = attach[from:to]
	if _, end := first.Span(); end == to && first.IsName() {
		expr = "'" + strings.ReplaceAll(first.Name(), "'", "''") + "'"
	}
	return from, to, expr
}

// inMemory reports whether the name of a file, at the last token, names a database of this
// connection only: in memory, or a temporary file (https://sqlite.org/inmemorydb.html).
func inMemory(lx sqltext.Lexer) bool {
	name := strings.ToLower(strings.Trim(lx.Text(), `'"`))
	if uri, ok := strings.CutPrefix(name, "file:"); ok {
		return (strings.HasPrefix(uri, ":memory:") || strings.Contains(uri, "mode=memory")) && !strings.Contains(uri, "cache=shared")
	}
	return name == ":memory:" || name == "" || lx.IsWord("null")
}

// schemaName is the name, or the string that stands for a name, at the last token, unless an
// expression begins there.
func schemaName(lx *sqltext.Lexer) (string, bool) {
	name := ""
	switch {
	case lx.IsName():
		name = lx.Name()
	case lx.Token() == sqltext.String:
		name = strings.Trim(lx.Text(), "'")
	}
	ahead := *lx
	ahead.Next()
	alone := ahead.Ended() || ahead.IsWord("key")
	return strings.ToLower(name), alone && name != "" && !strings.ContainsAny(name, `"'`)
}

// SaysUnknown reports whether an error says that a statement names something that is in no database
// of its connection.
func SaysUnknown(err error) bool {
	if err == nil {
		return false
	}
	text := err.Error()
	for _, what := range []string{"no such table", "no such index", "no such view", "no such trigger", "no such database", "unknown database "} {
		if strings.Contains(text, what) {
			return true
		}
	}
	return false
}
