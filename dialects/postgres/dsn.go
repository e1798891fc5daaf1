package postgres

import (
	"errors"
	"maps"
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/base"
	"github.com/pooldriver/pooldriver/dialects/internal/hosts"
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
	// Keywords and values with semicolons between them are a DSN of ODBC or ADO. A single semicolon
	// may also be part of a password.
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
	if list := hostList(dsn, isURL); len(list) > 1 && slices.Contains(list, "") {
		return nil, errEmptyHost
	}
	config, err := pgx.ParseConfig(dsn)
	if err != nil {
		return nil, explainParse(err)
	}
	params := parameters(dsn, isURL)
	if err := dialects.GivenOnce(namesOf(params), append(strings.Fields(shownParams), shownElsewhere...)...); err != nil {
		return nil, err
	}
	user := ""
	if namesUser(dsn, isURL) {
		user = config.User
	}
	t, err := templateOf(config, user)
	if err != nil {
		return nil, err
	}
	t.dsn = dsn
	t.Tell(slices.DeleteFunc(params, func(p dialects.Param) bool {
		return strings.HasPrefix(p.Name, "pool_") || slices.Contains(shownElsewhere, p.Name)
	}), shownParams)
	return t, nil
}

// templateOf makes a template of a config, which is the template's from then on. user is empty if nobody has named one.
func templateOf(config *pgx.ConnConfig, user string) (*template, error) {
	if err := checkShown(config, user); err != nil {
		return nil, err
	}
	if config.DescriptionCacheCapacity == 0 && config.DefaultQueryExecMode != pgx.QueryExecModeCacheDescribe {
		config.DescriptionCacheCapacity = 32 // for session.Anew; no other text uses it
	}
	t := &template{Destination: base.NewDestination(targetOf(config, user), takePoolParams(config)), config: config}
	t.role, t.addresses = roleOf(config), addresses(config)
	t.list = hosts.New(t.addresses...)
	return t, nil
}

// shownElsewhere are the keywords that the target and Hosts show, and the password.
var shownElsewhere = []string{"host", "hostaddr", "port", "user", "password", "dbname", "database"}

// shownParams are the parameters whose values are no secrets.
const shownParams = `sslmode sslrootcert sslcert sslkey sslsni sslnegotiation channel_binding target_session_attrs
	connect_timeout application_name search_path timezone datestyle client_encoding statement_timeout lock_timeout
	idle_in_transaction_session_timeout transaction_timeout work_mem default_query_exec_mode statement_cache_capacity
	description_cache_capacity min_protocol_version max_protocol_version krbspn krbsrvname passfile service servicefile`

// libpq reads a missing host as the default socket or localhost. In a list a missing host is a
// slip.
var errEmptyHost = errors.New("a host is missing before, after or between the commas of the DSN's list of hosts; for the local server write localhost, or the directory of its socket (/run/postgresql, in a URL %2Frun%2Fpostgresql); " + dialects.InPassword)

// hostKeyword finds the keyword host and its value.
var hostKeyword = regexp.MustCompile(`(?:^|\s)host\s*=\s*('(?:[^'\\]|\\.)*'|\S*)`)

// hostList returns the hosts as the DSN has them, without ports, "" where one is missing. It is
// empty if the DSN names none. In a URL the parameter host has precedence over the hosts in front
// of the path.
func hostList(dsn string, isURL bool) []string {
	var list []string
	if !isURL {
		if m := hostKeyword.FindStringSubmatch(dsn); m != nil {
			list = strings.Split(strings.Trim(m[1], "'"), ",")
		}
	} else {
		_, authority, _, query := cutURL(dsn)
		for _, host := range strings.Split(authority, ",") {
			if strings.HasPrefix(host, ":") {
				host = "" // only its port is given
			}
			list = append(list, host)
		}
		for pair := range strings.SplitSeq(query, "&") {
			if value, given := strings.CutPrefix(pair, "host="); given {
				value = strings.NewReplacer("%2C", ",", "%2c", ",").Replace(value)
				list = strings.Split(value, ",")
			}
		}
	}
	for i, host := range list {
		list[i] = strings.TrimSpace(host)
	}
	return list
}

// keywordValue finds a keyword with its value, by libpq's rules.
var keywordValue = regexp.MustCompile(`(?s)([^\s=]+)\s*=\s*(?:'(?:[^'\\]|\\.)*'|(?:[^\s\\]|\\.)*)`)

// parameters are a DSN's parameters in their order. pgx has read the DSN before, so the DSN is
// well-formed.
func parameters(dsn string, isURL bool) (params []dialects.Param) {
	if !isURL {
		for _, m := range keywordValue.FindAllStringSubmatch(dsn, -1) {
			_, value, _ := strings.Cut(m[0], "=")
			params = append(params, dialects.Param{Name: m[1], Value: strings.Trim(strings.TrimSpace(value), "'")})
		}
		return params
	}
	_, _, _, query := cutURL(dsn)
	for pair := range strings.SplitSeq(query, "&") {
		name, value, given := strings.Cut(pair, "=")
		if name, err := url.QueryUnescape(name); given && err == nil {
			value, _ = url.QueryUnescape(value)
			params = append(params, dialects.Param{Name: name, Value: value})
		}
	}
	return params
}

func namesOf(params []dialects.Param) (names []string) {
	for _, p := range params {
		names = append(names, p.Name)
	}
	return names
}

// takePoolParams removes the parameters of the pool, which pgx has taken for settings of the
// server, and returns them in alphabetical order: pgx has lost their order, and has kept only the
// last parameter of each name.
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

// cutURL takes a URL apart as libpq does: the first @ before the first / ends user and password,
// which may have a ? in them.
func cutURL(dsn string) (login, hosts, database, query string) {
	_, rest, _ := strings.Cut(dsn, "://")
	if i := strings.IndexAny(rest, "@/"); i >= 0 && rest[i] == '@' {
		login, rest = rest[:i], rest[i+1:]
	}
	rest, query, _ = strings.Cut(rest, "?")
	hosts, database, _ = strings.Cut(rest, "/")
	return login, hosts, database, query
}

var errStrayAt = errors.New("the DSN has an @ behind its first / or ?; " + dialects.InPassword + ", and an @ in the name of a database as %40")

// checkURL finds a password with a / or @? that is not escaped: the text behind it would be taken
// for the name of the database, which is shown, or for parameters.
func checkURL(dsn string) error {
	login, hosts, database, query := cutURL(dsn)
	if strings.Contains(database, "@") || login != "" && hosts == "" && strings.Contains(query, "@") {
		return errStrayAt
	}
	return nil
}

// userKeyword finds the keyword user. It may also find "user=" in the value of another keyword. At
// worst this shows a user that pgx has filled in.
var userKeyword = regexp.MustCompile(`\buser\s*=`)

// namesUser reports whether the DSN names the user, and not the environment or the operating
// system. If the program gives a credential, the user of the environment or of the operating system
// is no user of the database.
func namesUser(dsn string, isURL bool) bool {
	if !isURL {
		return userKeyword.MatchString(dsn)
	}
	login, _, _, query := cutURL(dsn)
	return login != "" && login[0] != ':' || userKeyword.MatchString(query)
}

// joined are the characters by which a mistyped DSN makes its password a part of another value:
// postgres://h/shop&password=…, user=app:….
const joined = ":=&;,"

// checkShown refuses what may show a password in the target. user is empty if it is not shown.
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
			return errors.New("the host of the DSN holds a character that none can have; " + dialects.InPassword + apart)
		case isSocket(host) && strings.ContainsAny(host, "=&;"):
			return errors.New("the socket's directory of the DSN has one of = & ; in it, which is refused for it may be a password" + apart)
		}
	}
	return nil
}

// isSocket reports whether host is a directory of Unix sockets: it knows the directory by its
// slash, or by the @ of the abstract namespace.
func isSocket(host string) bool {
	return strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@/") || len(host) > 2 && host[1] == ':' && host[2] == '\\'
}
