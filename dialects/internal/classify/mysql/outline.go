package mysql

import "github.com/pooldriver/pooldriver/dialects/internal/sqltext"

// Outline returns a text without literals and comments, for people.
func Outline(query string) string {
	return sqltext.Outline(query, lexical, likely, false)
}
