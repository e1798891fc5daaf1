package dialects

import (
	"slices"
	"strings"
	"unicode"
)

// OnlyData reports whether query is one statement whose first word says that it reads or changes
// data, and changes no table.
func OnlyData(query string) bool {
	query = strings.TrimLeft(query, " \t\r\n(")
	end := strings.IndexFunc(query, func(r rune) bool { return !unicode.IsLetter(r) })
	if end < 0 || MayBeScript(query) {
		return false
	}
	return slices.ContainsFunc(dataWords, func(word string) bool { return strings.EqualFold(word, query[:end]) })
}

var dataWords = []string{"select", "insert", "update", "delete", "with", "values", "merge"}

// OutlastsRollback reports whether query may call a function whose effect a rollback leaves, and twice is not once.
func OutlastsRollback(query string) bool {
	query = strings.ToLower(query)
	return slices.ContainsFunc(outlasting, func(word string) bool { return strings.Contains(query, word) })
}

// outlasting are PostgreSQL's. One way to write such a name without its letters is an identifier with escapes.
var outlasting = []string{"setval", "pg_logical_emit_message", "pg_create_restore_point", "pg_switch_wal", "pg_rotate_logfile", `u&"`}

// MayBeScript reports whether query may consist of several statements.
func MayBeScript(query string) bool {
	return strings.Contains(strings.TrimRight(query, "; \t\r\n"), ";")
}
