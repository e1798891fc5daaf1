package sqlite

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/pooldriver/pooldriver/dialects"
)

// source is what a DSN says.
type source struct {
	told   []dialects.Param // the driver's parameters without secrets, for errors and logs
	name   string           // the name that the driver gets
	path   string           // the file, for people
	memory bool             // the database dies with its last connection
	params []dialects.Param
}

func claim(dsn string) dialects.Claim {
	name, _, _ := strings.Cut(dsn, "?")
	switch {
	case dialects.HasPrefix(dsn, "sqlite:"), dialects.HasPrefix(dsn, "file:"), name == ":memory:":
		return dialects.Surely
	case strings.ContainsAny(name, "@=;(") || strings.Contains(name, "://") || dialects.HasPrefix(dsn, "sqlite3:"): // another driver's name
		return dialects.NotMine
	}
	for _, ext := range []string{".db", ".db3", ".sqlite", ".sqlite3"} {
		if strings.HasSuffix(name, ext) {
			return dialects.Perhaps
		}
	}
	return dialects.NotMine
}

func parse(dsn string) (source, error) {
	rest, prefixed, err := cutPrefix(dsn)
	if err != nil {
		return source{}, err
	}
	name, query, _ := strings.Cut(rest, "?")
	q, err := splitQuery(query)
	if err != nil {
		return source{}, err
	}
	if dialects.HasPrefix(name, "file:") {
		name = "file:" + name[len("file:"):] // the driver knows lower case only
	}
	isURI := strings.HasPrefix(name, "file:")

	path, err := pathOf(name, isURI)
	if err != nil {
		return source{}, err
	}
	if joinsParameter(name) || joinsParameter(path) {
		return source{}, errors.New("the file's name has one of & ; , with a = behind it, which is refused for it may be a parameter such as a key; parameters follow a ? and are parted by &")
	}
	if prefixed { // the driver itself reads its own forms
		q.rest = append(q.busyTimeout(), q.rest...)
	}
	src := source{name: name, path: path, memory: q.inMemory(path, isURI || prefixed), params: q.pool, told: told(q.rest)}
	switch {
	case src.memory && !q.isShared(path, isURI || prefixed):
		src.name, q.rest = privateName(), q.privateParams()
	case prefixed && !isURI && q.has(uriParameters...):
		src.name = fileURI(name)
	}
	src.name += q.suffix()
	return src, nil
}

// shownParams are the parameters whose values are no secrets.
const shownParams = `_busy_timeout _timeout _txlock _pragma _time_format _texttotime _inttotime mode cache immutable nolock psow vfs
	modeof`

// told returns the parameters for the driver, with our busy timeout, as people may see them.
func told(params []string) (all []dialects.Param) {
	for _, part := range params {
		name, value, _ := strings.Cut(part, "=")
		name, _ = url.QueryUnescape(name)
		value, _ = url.QueryUnescape(value)
		if end := strings.IndexAny(value+"(", "(="); name == "_pragma" && strings.HasSuffix(strings.ToLower(strings.TrimSpace(value[:min(end, len(value))])), "key") {
			name = "_pragma=key" // key, hexkey, rekey: not shown
		}
		all = append(all, dialects.Param{Name: name, Value: value})
	}
	return all
}

// pathOf is the path of the file that has this name.
func pathOf(name string, isURI bool) (string, error) {
	if isURI {
		return uriPath(name)
	}
	return name, nil
}

// cutPrefix takes "sqlite:" away. sqlite:///abs/file has an empty host, as file:/// has.
// If a host stands there, somebody has written a relative path that way.
func cutPrefix(dsn string) (rest string, prefixed bool, err error) {
	if !dialects.HasPrefix(dsn, "sqlite:") {
		return dsn, false, nil
	}
	rest, slashes := strings.CutPrefix(dsn[len("sqlite:"):], "//")
	if host, _, _ := strings.Cut(rest, "/"); slashes && strings.Contains(host, "@") {
		return "", true, errors.New("the DSN has an @ where its path begins: a database of SQLite has neither user nor host; write sqlite:FILE")
	}
	return rest, true, nil
}

// joinsParameter reports whether a file's name, which is shown, looks as if a
// parameter were part of it: x.db&_pragma=key('…').
func joinsParameter(name string) bool {
	i := strings.IndexAny(name, "&;,")
	return i >= 0 && strings.Contains(name[i:], "=")
}

// uriParameters are SQLite's own. The driver gives them to SQLite in a URI. Behind a plain file
// name it drops them: mode=ro would have no effect.
var uriParameters = []string{"mode", "cache", "immutable", "nolock", "psow", "modeof"}

// query is the part of a DSN behind the question mark, parsed no further than
// needed: the parameters that go to the driver keep their spelling.
type query struct {
	rest   []string // name=value, as written
	values url.Values
	pool   []dialects.Param
}

func splitQuery(raw string) (query, error) {
	q := query{values: url.Values{}}
	var names []string
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		name, value, _ := strings.Cut(part, "=")
		name, err := url.QueryUnescape(name)
		if err != nil || strings.Contains(part, ";") {
			return query{}, errors.New("a parameter of the DSN cannot be read: after the ? come NAME=VALUE pairs separated by &, with %XX for what is special")
		}
		if value, err = url.QueryUnescape(value); err != nil {
			return query{}, fmt.Errorf("the value of the parameter %s cannot be read: a %% in it is followed by two hexadecimal digits, as in %%25", name)
		}
		if name != "_pragma" { // a DSN may have several _pragma
			names = append(names, name)
		}
		if dialects.HasPrefix(name, "pool_") { // in any case: the driver leaves out what it does not know
			q.pool = append(q.pool, dialects.Param{Name: name, Value: value})
			continue
		}
		q.rest = append(q.rest, part)
		q.values.Add(name, value)
	}
	return q, dialects.GivenOnce(names, strings.Fields(shownParams)...)
}

// defaultBusyTimeout is in milliseconds, for our own form of DSN.
const defaultBusyTimeout = 5000

// busyTimeout is the parameter for the busy timeout, if the DSN has none. The driver applies it
// before any _pragma, so a _pragma wins.
func (q query) busyTimeout() []string {
	if q.has("_busy_timeout", "_timeout") {
		return nil
	}
	return []string{"_busy_timeout=" + strconv.Itoa(defaultBusyTimeout)}
}

// suffix is the query of a name with the parameters for the driver.
func (q query) suffix() string {
	if len(q.rest) == 0 {
		return ""
	}
	return "?" + strings.Join(q.rest, "&")
}

func (q query) has(names ...string) bool {
	return slices.ContainsFunc(names, q.values.Has)
}

// uriPath is the path of a file: URI as SQLite reads it.
func uriPath(uri string) (string, error) {
	path, _, _ := strings.Cut(strings.TrimPrefix(uri, "file:"), "#")
	if authority, ok := strings.CutPrefix(path, "//"); ok {
		host, _, _ := strings.Cut(authority, "/")
		if host != "" && host != "localhost" {
			return "", errors.New("a file: URI takes no host; write file:PATH or file:///PATH")
		}
		path = authority[len(host):]
	}
	path, err := url.PathUnescape(path)
	if err != nil {
		return "", errors.New("the path of the file: URI cannot be read: a % in it is followed by two hexadecimal digits, as in %25")
	}
	return path, nil
}

// fileURI writes a file name as a URI.
func fileURI(name string) string {
	name = strings.NewReplacer("%", "%25", "?", "%3f", "#", "%23").Replace(name)
	if strings.HasPrefix(name, "//") {
		name = "//" + name // or the first part would be read as a host
	}
	return "file:" + name
}
