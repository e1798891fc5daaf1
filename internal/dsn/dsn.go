// Package dsn changes a DSN of pooldriver so that it leads to another database, schema or file.
// The DSNs are those that the dialects accept. What the package does not have to change stays as
// it is: a DSN may have parameters that only the driver knows.
//
// No error repeats a part of a DSN, which may be a password.
package dsn

import (
	"slices"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
)

// cutPrefix cuts the first of the prefixes that text has, in upper or lower case.
func cutPrefix(text string, prefixes ...string) (prefix, rest string, found bool) {
	for _, p := range prefixes {
		if dialects.HasPrefix(text, p) {
			return text[:len(p)], text[len(p):], true
		}
	}
	return "", text, false
}

// without returns the query of a URL without the parameters of these names.
func without(query string, names ...string) string {
	var kept []string
	for pair := range strings.SplitSeq(query, "&") {
		name, _, _ := strings.Cut(pair, "=")
		if pair != "" && !has(names, name) {
			kept = append(kept, pair)
		}
	}
	return strings.Join(kept, "&")
}

func has(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

// join puts a query behind a DSN, if there is one.
func join(dsn, query string) string {
	if query == "" {
		return dsn
	}
	return dsn + "?" + query
}
