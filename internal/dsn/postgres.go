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

// PostgresSchema returns the DSN in which schema is the first of the search path. If dsn has a
// search path, its schemas follow. The schema's name has only letters, digits and underscores.
func PostgresSchema(dsn, schema string) string {
	if scheme, rest, ok := cutPrefix(dsn, postgresSchemes...); ok {
		path, query, _ := strings.Cut(rest, "?")
		searchPath := schema
		for pair := range strings.SplitSeq(query, "&") {
			if value, given := strings.CutPrefix(pair, "search_path="); given {
				searchPath += "%2C" + value
			}
		}
		return join(scheme+path, strings.TrimPrefix(without(query, "search_path")+"&search_path="+searchPath, "&"))
	}
	prefix, rest, _ := cutPrefix(dsn, "postgres:")
	searchPath := schema
	for _, m := range keyword.FindAllStringSubmatch(rest, -1) {
		if m[1] == "search_path" {
			searchPath += "," + strings.Trim(m[2], "'")
		}
	}
	return prefix + strings.TrimSpace(withoutKeywords(rest, "search_path")+" search_path='"+searchPath+"'")
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
