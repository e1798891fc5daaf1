// Package mysql is the dialect of MySQL and MariaDB, on github.com/go-sql-driver/mysql.
//
// A DSN is a URL, or the driver's own form; every parameter is the driver's:
//
//	mysql://user:password@host:3306/database?parseTime=true
//	mysql://user:password@/database?socket=/run/mysqld/mysqld.sock
//	user:password@tcp(host:3306)/database?parseTime=true
//
// Both forms may name several servers, separated by commas, which the driver does not know. A path
// among them belongs to a socket; in the URL its slashes are written %2F. target_session_attrs,
// which the driver does not know either, says which servers fit, by libpq's words: any, read-write
// or primary (read_only is off), read-only or standby (read_only is on), prefer-standby. Each dial
// tries the servers in the list's order, but last the servers that could not be reached lately. It
// asks each server for its role. A node of Galera that is not ready is passed over.
//
//	mysql://user:password@host1:3306,host2/database?target_session_attrs=read-write
//	user:password@tcp(host1:3306,host2:3306)/database
//
// In the URL, encode with percent signs all characters of user and password but letters, digits and
// -._~; for @ / and ? this is necessary. This package dials the networks "tcp" and "unix", also if
// mysql.RegisterDialContext knows these names. The driver dials any other network.
//
// A database with one of : = & ; , in its name is refused, and a user with one of : = & ; , / ? #,
// and an address with one of = & ;: a mistyped DSN has its password there, and errors show all
// three.
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
	_ dialects.Dialect     = dialect{}
	_ dialects.StateTeller = dialect{}
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
	if own, ok := c.(*configured); ok {
		return own.template()
	}
	switch c.Driver().(type) {
	case *mysql.MySQLDriver, mysql.MySQLDriver:
		return wrap(c)
	}
	return nil, dialects.ErrNotMine
}

func (dialect) Diagnose(err error) dialects.Diagnosis { return diagnose(err) }
