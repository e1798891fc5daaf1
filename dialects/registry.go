package dialects

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

var registry struct {
	mu       sync.RWMutex
	dialects []Dialect // guarded by mu
}

// Register makes a dialect known. Dialect packages call it from init; a second
// dialect of the same name is a mistake in the program and panics, as
// sql.Register does.
func Register(d Dialect) {
	registry.mu.Lock()
	defer registry.mu.Unlock()
	if slices.ContainsFunc(registry.dialects, func(known Dialect) bool { return known.Name() == d.Name() }) {
		panic("dialects: Register called twice for " + d.Name())
	}
	registry.dialects = append(registry.dialects, d)
}

func registered() []Dialect {
	registry.mu.RLock()
	defer registry.mu.RUnlock()
	return slices.Clone(registry.dialects)
}

// own lists the dialects of this project by the prefixes that belong to them for sure, so that the
// error for a dialect that is not linked can name the missing import. Only this list knows them
// all.
var own = []struct{ name, prefix string }{
	{"postgres", "postgres://"}, {"postgres", "postgresql://"}, {"postgres", "postgres:"},
	{"mysql", "mysql://"}, {"mysql", "mariadb://"}, {"mysql", "mysql:"},
	{"sqlite", "sqlite:"}, {"sqlite", "file:"}, {"sqlite", ":memory:"},
	{"odbc", "odbc:"}, {"odbc", "driver="}, {"odbc", "dsn="}, {"odbc", "filedsn="},
}

// besides says what a program needs in addition to the import.
var besides = map[string]string{"odbc": ", install unixODBC and build with -tags odbc"}

const importPath = "github.com/pooldriver/pooldriver/dialects/"

// Find returns the dialect that dsn belongs to. If no dialect claims dsn, or several do, the error
// says which import to add or which prefix decides. It repeats no part of dsn.
func Find(dsn string) (Dialect, error) {
	if err := slip(dsn); err != nil {
		return nil, err
	}
	known := registered()
	named, surely, perhaps := claimants(known, dsn)
	if named != nil {
		return named, nil
	}
	claims := surely
	if len(claims) == 0 {
		for _, o := range own {
			if HasPrefix(dsn, o.prefix) {
				return nil, fmt.Errorf("the DSN is one for %s, which is not linked into this program; add import _ %q%s", o.name, importPath+o.name, besides[o.name])
			}
		}
		claims = perhaps
	}
	switch len(claims) {
	case 1:
		return claims[0], nil
	case 0:
		if len(known) == 0 {
			return nil, fmt.Errorf("no dialect is linked into this program; add import _ %q (or mysql, sqlite)", importPath+"postgres")
		}
		if hasScheme(dsn) {
			return nil, errors.New("the DSN begins with a scheme that no dialect has; the schemes are postgres, postgresql, mysql, mariadb, sqlite, file and odbc")
		}
		return nil, fmt.Errorf("no linked dialect (%s) recognises the DSN; begin it with the dialect's name and a colon, or add the import of its dialect, such as import _ %q",
			names(known), importPath+"postgres")
	}
	return nil, fmt.Errorf("the DSN could belong to %s; begin it with %q to decide", names(claims), claims[0].Name()+":")
}

// slip finds a mistake that no form of DSN allows.
func slip(dsn string) error {
	if dsn == "" {
		return errors.New("the DSN is empty; it takes the form postgres://user:password@host/database, mysql://user:password@host/database or sqlite:FILE")
	}
	if strings.TrimSpace(dsn) != dsn && !hasKeywords(dsn) {
		return errors.New("the DSN begins or ends with white space, such as the line feed at the end of a file; cut it off with strings.TrimSpace")
	}
	if quote := dsn[0]; strings.IndexByte("\"'`", quote) >= 0 && dsn[len(dsn)-1] == quote {
		return errors.New("the DSN is in quotes, which a file of environment variables may have and a shell takes off; cut them off with strings.Trim")
	}
	if HasPrefix(dsn, "registeredConnConfig") {
		return errors.New("the DSN is a name that stdlib.RegisterConnConfig has returned, which only pgx's own driver can read; give the pgx.ConnConfig itself to pooldriver: pooldriver.Wrap(stdlib.GetConnector(*config))")
	}
	for _, o := range own {
		if scheme, isURL := strings.CutSuffix(o.prefix, "://"); isURL && HasPrefix(dsn, scheme+"//") {
			return fmt.Errorf("the DSN begins with %s//, where a URL begins with %[1]s://", scheme)
		}
	}
	return nil
}

// claimants returns the dialect that dsn names, or else the dialects that claim dsn.
func claimants(known []Dialect, dsn string) (named Dialect, surely, perhaps []Dialect) {
	for _, d := range known {
		if HasPrefix(dsn, d.Name()+":") {
			return d, nil, nil
		}
		switch d.Claim(dsn) {
		case Surely:
			surely = append(surely, d)
		case Perhaps:
			perhaps = append(perhaps, d)
		}
	}
	return nil, surely, perhaps
}

// hasKeywords reports whether dsn begins with KEYWORD=, as DSNs of PostgreSQL and ODBC do. Their
// drivers ignore white space around keywords.
func hasKeywords(dsn string) bool {
	keyword, _, found := strings.Cut(dsn, "=")
	return found && !strings.ContainsAny(keyword, ":/@(?")
}

func hasScheme(dsn string) bool {
	scheme, _, found := strings.Cut(strings.ToLower(dsn), "://")
	return found && strings.Trim(scheme, "abcdefghijklmnopqrstuvwxyz0123456789+.-") == ""
}

// GivenOnce returns an error if a DSN names a parameter twice: drivers differ in which of the two
// counts. The error shows the name if the name is in known, or IsPoolParam. For every other name
// the error shows the places: in a mistyped DSN the name may be a piece of a password.
func GivenOnce(names []string, known ...string) error {
	places := make(map[string]int, len(names))
	for i, name := range names {
		first := places[name]
		if first == 0 {
			places[name] = i + 1
			continue
		}
		if IsPoolParam(name) || slices.ContainsFunc(known, func(k string) bool { return strings.EqualFold(k, name) }) {
			return fmt.Errorf("the DSN has the parameter %s twice; leave one of them out", name)
		}
		return fmt.Errorf("the DSN has a parameter twice: the names of number %d and number %d are the same; leave one of them out", first, i+1)
	}
	return nil
}

// IsPoolParam reports whether name can be the name of a parameter of the pool: pool_ and lower-case
// letters. Such a name is no piece of a password, so errors may show it.
func IsPoolParam(name string) bool {
	rest, ok := strings.CutPrefix(name, "pool_")
	return ok && strings.Trim(rest, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// InPassword is the hint for a URL that cannot be read as it was meant.
const InPassword = "in a password write @ as %40, : as %3A, / as %2F, # as %23, ? as %3F and % as %25"

// HasPrefix reports whether dsn begins with prefix, letter case aside, as
// schemes do.
func HasPrefix(dsn, prefix string) bool {
	return len(dsn) >= len(prefix) && strings.EqualFold(dsn[:len(prefix)], prefix)
}

// Wrap finds the dialect of a connector by its driver. fallback is asked last.
func Wrap(c driver.Connector, fallback Dialect) (Dialect, Template, error) {
	for _, d := range append(registered(), fallback) {
		t, err := d.Wrap(c)
		if errors.Is(err, ErrNotMine) {
			continue
		}
		return d, t, err
	}
	return nil, nil, ErrNotMine
}

func names(ds []Dialect) string {
	var s []string
	for _, d := range ds {
		s = append(s, d.Name())
	}
	return strings.Join(s, ", ")
}
