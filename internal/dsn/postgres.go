package dsn

import (
	"regexp"
	"strings"
)

var postgresSchemes = []string{"postgres://", "postgresql://"}

// keyword finds a keyword of libpq with its value.
var keyword = regexp.MustCompile(`(?s)([^\s=]+)\s*=\s*('(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)*)`)

// PostgresDatabase returns the DSN of another database on the same server. The database's name has
// only letters, digits and underscores.
func PostgresDatabase(dsn, database string) string {
	if scheme, rest, ok := cutPrefix(dsn, postgresSchemes...); ok {
		path, query, _ := strings.Cut(rest, "?")
		authority, _, _ := strings.Cut(path, "/")
		return join(scheme+authority+"/"+database, without(query, "dbname", "database"))
	}
	prefix, rest, _ := cutPrefix(dsn, "postgres:")
	return prefix + strings.TrimSpace(withoutKeywords(rest, "dbname", "database")+" dbname="+database)
}

func withoutKeywords(text string, names ...string) string {
	text = keyword.ReplaceAllStringFunc(text, func(pair string) string {
		name, _, _ := strings.Cut(pair, "=")
		if has(names, strings.TrimSpace(name)) {
			return ""
		}
		return pair
	})
	return strings.TrimSpace(text)
}
