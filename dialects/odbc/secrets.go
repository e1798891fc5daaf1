//go:build odbc && cgo

package odbc

import "strings"

// passwordKeys are the keywords by which drivers know a password.
var passwordKeys = []string{"pwd", "password"}

// without returns a copy without the keywords.
func (c connString) without(keys ...string) connString {
	var rest connString
	for _, a := range c {
		if !isOne(a.key, keys) {
			rest = append(rest, a)
		}
	}
	return rest
}

// secrets are the passwords in the connection string, also as they look in braces.
func (c connString) secrets() []string {
	var found []string
	for _, a := range c {
		key := strings.ToLower(a.key)
		for _, part := range []string{"pwd", "pass", "secret", "token"} {
			if strings.Contains(key, part) {
				found = append(found, a.raw, a.value)
				break
			}
		}
	}
	return found
}
