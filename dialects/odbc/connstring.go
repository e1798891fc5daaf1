package odbc

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
)

// connString is a parsed ODBC connection string: keywords with values, in their
// order.
type connString []attribute

type attribute struct {
	key   string // as written
	value string // without braces
	raw   string // as written
}

const prefix = "odbc:"

// claim: by custom a data source or a driver comes first. The other keywords are many, and other
// DSNs have them too.
func claim(dsn string) dialects.Claim {
	for _, start := range []string{prefix, "dsn=", "driver=", "filedsn="} {
		if dialects.HasPrefix(strings.TrimLeft(dsn, " "), start) {
			return dialects.Surely
		}
	}
	return dialects.NotMine
}

var (
	errForm = errors.New("it is not an ODBC connection string: KEYWORD=VALUE pairs, separated by semicolons; " +
		"a value with a semicolon, an equals sign or a brace in it is written {in braces}, with }} for }")
	errNoDriver = errors.New("it names neither a data source nor a driver: write odbc:DSN=NAME;… (of odbc.ini) or odbc:Driver={NAME};… (of odbcinst.ini)")
)

// parseString parses a connection string. Its grammar is that of
// SQLDriverConnect: a value in braces ends at a single closing brace.
func parseString(s string) (connString, error) {
	var all connString
	for {
		s = strings.TrimLeft(s, "; \t\r\n")
		if s == "" {
			return all, nil
		}
		key, rest, ok := strings.Cut(s, "=")
		key = strings.TrimSpace(key)
		if !ok || key == "" || strings.ContainsAny(key, ";{}") {
			return nil, errForm
		}
		rest = strings.TrimLeft(rest, " \t")
		a := attribute{key: key}
		if strings.HasPrefix(rest, "{") {
			end := closingBrace(rest)
			if end < 0 {
				return nil, errForm
			}
			a.raw = rest[:end+1]
			a.value = strings.ReplaceAll(rest[1:end], "}}", "}")
			rest = strings.TrimLeft(rest[end+1:], " \t\r\n")
			if rest != "" && rest[0] != ';' {
				return nil, errForm
			}
		} else {
			a.raw, rest, _ = strings.Cut(rest, ";")
			a.raw = strings.TrimRight(a.raw, " \t\r\n")
			a.value = a.raw
		}
		all = append(all, a)
		s = rest
	}
}

// closingBrace finds the end of a value in braces, or -1.
func closingBrace(s string) int {
	for i := 1; i < len(s); i++ {
		switch {
		case s[i] != '}':
		case i+1 < len(s) && s[i+1] == '}':
			i++
		default:
			return i
		}
	}
	return -1
}

// get returns the first value of one of the keywords: the first counts, by
// SQLDriverConnect.
func (c connString) get(keys ...string) (string, bool) {
	for _, a := range c {
		if isOne(a.key, keys) {
			return a.value, true
		}
	}
	return "", false
}

func isOne(key string, keys []string) bool {
	return slices.ContainsFunc(keys, func(k string) bool { return strings.EqualFold(key, k) })
}

// text writes the connection string. Attributes of the DSN keep their spelling.
func (c connString) text() string {
	var s strings.Builder
	for _, a := range c {
		s.WriteString(a.key + "=" + a.raw + ";")
	}
	return s.String()
}

// special are the characters for which a value needs braces (SQLDriverConnect).
const special = "[]{}(),;?*=!@"

// braced makes an attribute of a value of ours. A password is always put into braces. A user is put
// into braces only if it must be: not every driver removes the braces (psqlODBC removes them only
// from the password).
func braced(key, value string, always bool) attribute {
	raw := value
	if always || strings.ContainsAny(value, special) || strings.TrimSpace(value) != value {
		raw = "{" + strings.ReplaceAll(value, "}", "}}") + "}"
	}
	return attribute{key: key, value: value, raw: raw}
}

// The drivers' keywords for the values that are shown.
var (
	userKeys     = []string{"uid", "user", "username"}
	serverKeys   = []string{"server", "servername", "host", "address", "addr", "data source"}
	databaseKeys = []string{"database", "db", "dbq", "initial catalog"}
	sourceKeys   = []string{"dsn", "driver", "filedsn"}
)

// source is what a DSN says.
type source struct {
	attributes connString // that the driver manager is given
	params     []dialects.Param
	target     string
}

func parse(dsn string) (source, error) {
	rest := strings.TrimLeft(dsn, " ")
	if dialects.HasPrefix(rest, prefix) {
		rest = rest[len(prefix):]
	}
	all, err := parseString(rest)
	if err != nil {
		return source{}, err
	}
	var src source
	var names []string
	for _, a := range all {
		names = append(names, strings.ToLower(a.key))
		if dialects.HasPrefix(a.key, "pool_") {
			src.params = append(src.params, dialects.Param{Name: strings.ToLower(a.key), Value: a.value})
			continue
		}
		src.attributes = append(src.attributes, a)
	}
	if name, ok := src.attributes.get(sourceKeys...); !ok || name == "" {
		return source{}, errNoDriver
	}
	if err := src.attributes.refuseDoubtful(); err != nil {
		return source{}, err
	}
	if err := dialects.GivenOnce(names, slices.Concat(userKeys, serverKeys, databaseKeys, sourceKeys, []string{"pwd", "password", "port"})...); err != nil {
		return source{}, err
	}
	src.target = src.attributes.target()
	return src, nil
}

// refuseDoubtful refuses a value that is shown, if another value seems to be a part of it: in
// UID=app,PWD=secret the password is part of the user.
func (c connString) refuseDoubtful() error {
	for _, shown := range []struct {
		keys     []string
		doubtful string
	}{{userKeys, "=&;,:"}, {serverKeys, "=&;"}, {databaseKeys, "=&;"}, {sourceKeys, "=&;"}, {[]string{"port"}, "=&;,"}} {
		for _, a := range c {
			if isOne(a.key, shown.keys) && strings.ContainsAny(a.value, shown.doubtful) {
				return fmt.Errorf("the value of %s has one of %s in it, as if another keyword were part of it: keywords are separated by semicolons",
					strings.ToUpper(a.key), strings.Join(strings.Split(shown.doubtful, ""), " "))
			}
		}
	}
	return nil
}

// target says where the connection string leads, without what may be secret.
func (c connString) target() string {
	name, _ := c.get(sourceKeys...)
	s := "odbc " + name
	server, hasServer := c.get(serverKeys...)
	database, hasDatabase := c.get(databaseKeys...)
	user, hasUser := c.get(userKeys...)
	if !hasServer && !hasDatabase && !hasUser {
		return s
	}
	s += " "
	if hasUser && user != "" {
		s += user + "@"
	}
	if hasServer {
		s += server
		if port, ok := c.get("port"); ok {
			s += ":" + port
		}
	}
	if hasDatabase {
		if hasServer || hasUser {
			s += "/"
		}
		s += database
	}
	return s
}
