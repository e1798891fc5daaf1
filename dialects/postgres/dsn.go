package postgres

import (
	"errors"
	"maps"
	"net"
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
	if err := checkShown(config); err != nil {
		return nil, err
	}
	return &template{Label: labelOf(config), config: config, params: takePoolParams(config)}, nil
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

// checkShown refuses what would show a password in the target: one with an @
// that is not escaped, behind which a URL has its host, and semicolons between
// keywords and values, which make all that follows part of the first value.
func checkShown(config *pgx.ConnConfig) error {
	list := addresses(config)
	for _, shown := range append(list, config.User, config.Database) {
		if strings.Contains(shown, ";") && strings.Contains(shown, "=") {
			return errors.New("the DSN has semicolons between its keywords and values, where spaces belong")
		}
	}
	for _, a := range list {
		host, _, err := net.SplitHostPort(a)
		if err != nil || !isSocket(host) && strings.ContainsAny(host, "@/\\#?&=<>\"'`{}|^; \t\r\n") {
			return errors.New("the host of the DSN holds a character that none can have; in a password write @ as %40, : as %3A, / as %2F, # as %23, ? as %3F and % as %25")
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
