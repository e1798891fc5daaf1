package mysql

import (
	"errors"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/hosts"
)

// kinds are the driver's own parameters with the kinds of their values. Every other parameter is a
// variable of the server. An error repeats no text of a DSN but these names: in a mistyped DSN,
// what looks like a name may be a piece of the password.
var kinds = map[string]string{
	"allowAllFiles":            aBool,
	"allowCleartextPasswords":  aBool,
	"allowFallbackToPlaintext": aBool,
	"allowNativePasswords":     aBool,
	"allowOldPasswords":        aBool,
	"charset":                  "a list of character sets",
	"checkConnLiveness":        aBool,
	"clientFoundRows":          aBool,
	"collation":                "a collation",
	"columnsWithAlias":         aBool,
	"compress":                 aBool,
	"connectionAttributes":     "a list of name:value",
	"interpolateParams":        aBool,
	"loc":                      "a time zone such as UTC, Local or Europe%2FBerlin",
	"maxAllowedPacket":         "a number of bytes",
	"multiStatements":          aBool,
	"parseTime":                aBool,
	"readTimeout":              aDuration,
	"rejectReadOnly":           aBool,
	"serverPubKey":             "the name of a key registered by mysql.RegisterServerPubKey",
	"timeTruncate":             aDuration,
	"timeout":                  aDuration,
	"tls":                      "true, false, skip-verify, preferred, or the name of a configuration registered by mysql.RegisterTLSConfig",
	"writeTimeout":             aDuration,
}

const (
	aBool     = "true or false"
	aDuration = "a duration such as 30s"
)

// transport are the parameters that a connection needs to reach the server and
// to log in. The connection that kills a statement has only these.
var transport = map[string]bool{
	"allowCleartextPasswords":  true,
	"allowFallbackToPlaintext": true,
	"allowNativePasswords":     true,
	"allowOldPasswords":        true,
	"serverPubKey":             true,
	"timeout":                  true,
	"tls":                      true,
}

const poolPrefix = "pool_"

// roleParam is libpq's parameter; no driver of MySQL's knows it.
const roleParam = "target_session_attrs"

var (
	errRole         = errors.New(`the value of the parameter "` + roleParam + `" is none of ` + hosts.RoleNames())
	errStrict       = errors.New(`the parameter "strict" no longer exists; set the server's variable sql_mode instead`)
	errVariable     = errors.New("the value of a server variable among the parameters has a % without two hexadecimal digits; a % is written %25")
	errPoolEscape   = errors.New(`the value of a parameter "pool_..." has a % without two hexadecimal digits`)
	errInterpolate  = errors.New(`the parameters "interpolateParams" and "collation" do not go together: in that collation a quote can hide in a character`)
	errCombination  = errors.New("the parameters do not go together")
	errNameOfServer = errors.New("the name of a server variable among the parameters has characters that no variable has")
)

// params are the parameters of a DSN, checked.
type params struct {
	pool      []dialects.Param
	told      []dialects.Param // the driver's parameters without secrets, for errors and logs
	all       string           // the parameters for the driver, as the DSN has them
	transport string           // the part of all that decides how connections are made (the table transport)
	compress  bool
	role      hosts.Role
	readsOnly bool // the template is a replica's: sessions are set to read only, because a privileged account may write there
}

func readParams(query string) (params, error) {
	var p params
	var names, all, few []string
	for pair := range strings.SplitSeq(query, "&") {
		name, value, given := strings.Cut(pair, "=")
		if given {
			names = append(names, name)
		}
		if strings.HasPrefix(name, poolPrefix) {
			plain, err := url.QueryUnescape(value)
			if err != nil {
				return p, errPoolEscape
			}
			p.pool = append(p.pool, dialects.Param{Name: name, Value: plain})
			continue
		}
		if !given {
			continue // the driver ignores them, too
		}
		plain, _ := url.QueryUnescape(value)
		p.told = append(p.told, dialects.Param{Name: name, Value: plain})
		if name == roleParam {
			if p.role, given = hosts.ParseRole(value); !given {
				return p, errRole
			}
			continue
		}
		pair = name + "=" + strings.ReplaceAll(value, "/", "%2F") // its last slash would end the address
		if err := check(name, pair); err != nil {
			return p, err
		}
		all = append(all, pair)
		if transport[name] {
			few = append(few, pair)
		}
		if name == "compress" {
			p.compress = value != "0" && !strings.EqualFold(value, "false")
		}
	}
	p.all, p.transport = strings.Join(all, "&"), strings.Join(few, "&")
	return p, dialects.GivenOnce(names, append(slices.Collect(maps.Keys(kinds)), strings.Fields(shownParams)...)...)
}

// check lets the driver read one parameter alone, so that the error can name
// it. The driver's own error repeats the value and is dropped.
func check(name, pair string) error {
	if name == "strict" {
		return errStrict // the driver panics
	}
	kind, known := kinds[name]
	if !known && !containsOnly(name, "_.@`") {
		return errNameOfServer
	}
	if _, err := mysql.ParseDSN("/?" + pair); err == nil {
		return nil
	}
	if !known {
		return errVariable
	}
	return fmt.Errorf("the value of the parameter %q is not %s", name, kind)
}

// config lets the driver read the parameters as a whole, for one address.
func config(who *parts, at endpoint, query string) (*mysql.Config, error) {
	address := at.address
	if at.network == "unix" {
		address = "/" // a path may have characters that the driver's form cannot write
	}
	c, err := mysql.ParseDSN(at.network + "(" + address + ")/?" + query)
	switch {
	case err != nil && strings.Contains(query, "interpolateParams") && strings.Contains(query, "collation"):
		return nil, errInterpolate
	case err != nil:
		return nil, errCombination
	}
	c.User, c.Passwd = who.user, who.password
	c.Addr, c.DBName = at.address, who.database
	return c, nil
}
