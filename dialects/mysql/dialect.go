// Package mysql is the dialect of MySQL and MariaDB, on github.com/go-sql-driver/mysql.
//
// A DSN is a URL, or the driver's own form; every parameter is the driver's:
//
//	mysql://user:password@host:3306/database?parseTime=true
//	mysql://user:password@/database?socket=/run/mysqld/mysqld.sock
//	user:password@tcp(host:3306)/database?parseTime=true
//
// Several servers are separated by commas, which the driver does not know, in
// either form; a path among them is a socket's, with its slashes written %2F in the
// URL. target_session_attrs, which is not the driver's either, says which of them
// will do, by libpq's words: any, read-write or primary (read_only is off), read-only
// or standby (it is on), prefer-standby. Each dial goes along the list, servers that
// could not be reached lately last, and asks who answers; a node of Galera that is
// not ready is passed over.
//
//	mysql://user:password@host1:3306,host2/database?target_session_attrs=read-write
//	user:password@tcp(host1:3306,host2:3306)/database
//
// In the URL, whatever is not a letter, a digit or one of -._~ is best percent
// encoded in user and password; @ / and ? have to be. Networks "tcp" and "unix"
// are dialled here and not by what mysql.RegisterDialContext knows under these
// names; any other network is left to the driver.
//
// A database with one of : = & ; , in its name is refused, and a user with one
// of : = & ; , / ? #, and an address with one of = & ;: in a mistyped DSN that
// is where the password is, and all three are shown in errors.
package mysql

import (
	"database/sql/driver"

	"github.com/go-sql-driver/mysql"

	"github.com/pooldriver/pooldriver/dialects"
	classifier "github.com/pooldriver/pooldriver/dialects/internal/classify/mysql"
)

func init() { dialects.Register(dialect{}) }

type dialect struct{ classifier.Texts }

var (
	_ dialects.Dialect   = dialect{}
	_ dialects.Outliner  = dialect{}
	_ dialects.ReadJudge = dialect{}
)

func (dialect) Name() string { return "mysql" }

func (dialect) Claim(dsn string) dialects.Claim { return claim(dsn) }

func (dialect) Parse(dsn string) (dialects.Template, error) {
	t, err := parse(dsn)
	if err != nil {
		return nil, err
	}
	return t, nil
}

func (dialect) Wrap(c driver.Connector) (dialects.Template, error) {
	switch c.Driver().(type) {
	case *mysql.MySQLDriver, mysql.MySQLDriver:
		return wrap(c)
	}
	return nil, dialects.ErrNotMine
}

func (dialect) Diagnose(err error) dialects.Diagnosis { return diagnose(err) }
