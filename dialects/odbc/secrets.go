//go:build odbc && cgo

package odbc

import (
	"slices"
	"strings"
)

// passwordKeys are the keywords by which drivers know a password.
var passwordKeys = []string{"pwd", "password"}

// secretParts are the parts of a keyword by which its value is taken for a secret.
var secretParts = []string{"pwd", "pass", "secret", "token"}

// without returns a copy without the keywords.
func (c connString) without(keys ...string) connString {
	return slices.DeleteFunc(slices.Clone(c), func(a attribute) bool { return isOne(a.key, keys) })
}

// secrets are the passwords in the connection string, also as they look in braces.
func (c connString) secrets() []string {
	var found []string
	for _, a := range c {
		key := strings.ToLower(a.key)
		if slices.ContainsFunc(secretParts, func(part string) bool { return strings.Contains(key, part) }) {
			found = append(found, a.raw, a.value)
		}
	}
	return found
}
