package postgres

import (
	"errors"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pooldriver/pooldriver/dialects"
)

var schemes = []string{"postgres://", "postgresql://"}

// keywords of libpq with which a DSN of keywords and values may well begin.
var keywords = []string{
	"application_name", "connect_timeout", "dbname", "host", "hostaddr", "options", "passfile", "password", "port",
	"service", "sslcert", "sslkey", "sslmode", "sslrootcert", "target_session_attrs", "user",
}

func claim(dsn string) dialects.Claim {
	for _, prefix := range append(schemes, "postgres:") {
		if dialects.HasPrefix(dsn, prefix) {
			return dialects.Surely
		}
	}
	key, rest, ok := strings.Cut(strings.TrimSpace(dsn), "=")
	if !ok || !slices.Contains(keywords, strings.TrimSpace(key)) {
		return dialects.NotMine
	}
	// Keywords and values separated by semicolons are ODBC's or ADO's; one
	// semicolon may also be part of a password.
	if before, _, ok := strings.Cut(rest, ";"); ok {
		if strings.ContainsAny(before, " \t\n") {
			return dialects.Perhaps
		}
		return dialects.NotMine
	}
	return dialects.Surely
}

// pgxForm writes dsn as pgx knows it: schemes in lower case, keywords and
// values without our prefix.
func pgxForm(dsn string) (pgxDSN string, isURL bool) {
	if dialects.HasPrefix(dsn, "postgres:") && !dialects.HasPrefix(dsn, "postgres://") {
		dsn = dsn[len("postgres:"):]
	}
	for _, scheme := range schemes {
		if dialects.HasPrefix(dsn, scheme) {
			return scheme + dsn[len(scheme):], true
		}
	}
	return dsn, false
}

func parse(dsn string) (*template, error) {
	dsn, isURL := pgxForm(dsn)
	if isURL {
		if err := checkURL(dsn); err != nil {
			return nil, err
		}
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, explainParse(err)
	}
	user := ""
	if namesUser(dsn, isURL) {
		user = config.User
	}
	if err := checkShown(config, user); err != nil {
		return nil, err
	}
	return &template{Label: labelOf(config, user), config: config, params: takePoolParams(config)}, nil
}

// takePoolParams removes the parameters of the pool, which pgx has taken for
// settings of the server, and returns them in alphabetical order: pgx has
// forgotten theirs, and has kept the last of each name.
func takePoolParams(config *pgx.ConnConfig) []dialects.Param {
	var params []dialects.Param
	for _, name := range slices.Sorted(maps.Keys(config.RuntimeParams)) {
		if strings.HasPrefix(name, "pool_") {
			params = append(params, dialects.Param{Name: name, Value: config.RuntimeParams[name]})
			delete(config.RuntimeParams, name)
		}
	}
	return params
}

// checkURL finds a password with a slash in it that is not escaped: what comes
// behind the slash would be taken for the name of the database, which is shown.
func checkURL(dsn string) error {
	_, rest, _ := strings.Cut(dsn, "://")
	if i := strings.IndexAny(rest, "@/"); i < 0 || rest[i] == '@' {
		return nil
	}
	path, _, _ := strings.Cut(rest, "?")
	if strings.Contains(path, "@") {
		return errors.New("the DSN has an @ behind its first /; write a / in a password as %2F, and an @ in the name of a database as %40")
	}
	return nil
}

// userKeyword finds the keyword user. That it also finds one in the value of
// another keyword shows, at worst, a user that pgx has filled in.
var userKeyword = regexp.MustCompile(`\buser\s*=`)

// namesUser reports whether it is the DSN that says who the user is, and not
// the environment or the operating system, whose user is none of the database
// where the program gives a credential.
func namesUser(dsn string, isURL bool) bool {
	if !isURL {
		return userKeyword.MatchString(dsn)
	}
	_, rest, _ := strings.Cut(dsn, "://")
	path, query, _ := strings.Cut(rest, "?")
	authority, _, _ := strings.Cut(path, "/")
	user, _, given := strings.Cut(authority, "@")
	return given && user != "" && user[0] != ':' || userKeyword.MatchString(query)
}

// joined are the characters by which a mistyped DSN makes its password part of
// something else: postgres://h/shop&password=…, user=app:….
const joined = ":=&;,"

// checkShown refuses what may show a password in the target. user is empty
// where it is not shown.
func checkShown(config *pgx.ConnConfig, user string) error {
	const apart = "; spaces, not semicolons or commas, part keywords and values, in a URL behind ? it is &, and a colon that is not escaped parts user and password"
	if strings.ContainsAny(user, joined+"/?#") {
		return errors.New("the user of the DSN has one of : = & ; , / ? # in it, which is refused for it may be a password" + apart)
	}
	if strings.ContainsAny(config.Database, joined) {
		return errors.New("the database of the DSN has one of : = & ; , in its name, which is refused for it may be a password" + apart)
	}
	for _, a := range addresses(config) {
		host, _, err := net.SplitHostPort(a)
		switch {
		case err != nil || !isSocket(host) && strings.ContainsAny(host, "@/\\#?&=<>\"'`{}|^; \t\r\n"):
			return errors.New("the host of the DSN holds a character that none can have; in a password write @ as %40, : as %3A, / as %2F, # as %23, ? as %3F and % as %25" + apart)
		case isSocket(host) && strings.ContainsAny(host, "=&;"):
			return errors.New("the socket's directory of the DSN has one of = & ; in it, which is refused for it may be a password" + apart)
		}
	}
	return nil
}

// isSocket tells a directory of Unix sockets from a host: by its slash, or by
// the @ of the abstract namespace.
func isSocket(host string) bool {
	return strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@/") || len(host) > 2 && host[1] == ':' && host[2] == '\\'
}

// addresses are the different hosts and ports that config may connect to, the
// first one first. pgx lists one twice when it may go without TLS.
func addresses(config *pgx.ConnConfig) []string {
	list := []string{net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))}
	for _, f := range config.Fallbacks {
		if a := net.JoinHostPort(f.Host, strconv.Itoa(int(f.Port))); !slices.Contains(list, a) {
			list = append(list, a)
		}
	}
	return list
}
