package testbed

import (
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
)

// MariaDB and OracleMySQL are the two servers of MySQL's family.
var (
	MariaDB     Engine = mySQL{"mariadb"}
	OracleMySQL Engine = mySQL{"mysql"}
)

// MySQL is the server of the family on which this process tests: [MariaDB], or
// [OracleMySQL] where the environment has POOLDRIVER_MYSQL_SERVER=mysql. Both have the
// same dialect and the same tests.
var MySQL = family(os.Getenv(serverVariable))

const serverVariable = "POOLDRIVER_MYSQL_SERVER"

func family(name string) Engine {
	switch name {
	case "", "mariadb":
		return MariaDB
	case "mysql":
		return OracleMySQL
	}
	panic("testbed: " + serverVariable + " is " + name + ", it can be mariadb or mysql")
}

type mySQL struct{ product string }

const mysqlPassword = "mysql-administrator"

func (mySQL) String() string { return "mysql" }

func (m mySQL) image() (variable, official string) {
	// "go test" keeps results, and does not see what was read before the tests began.
	_ = os.Getenv(serverVariable)
	if m == MariaDB {
		return "POOLDRIVER_MARIADB_IMAGE", "mariadb:11.8"
	}
	return "POOLDRIVER_MYSQL_IMAGE", "mysql:8.4"
}

func (mySQL) port() string { return "3306" }

func (mySQL) environment() (env map[string]string, dataDir string) {
	// Either product's image understands the MYSQL_ names; MariaDB's official one
	// has announced their end.
	return map[string]string{
		"MYSQL_ROOT_PASSWORD":   mysqlPassword,
		"MARIADB_ROOT_PASSWORD": mysqlPassword,
	}, "/var/lib/mysql"
}

func (mySQL) command(o options) []string {
	limit := 400 // of many tests at once
	if o.maxConnections > 0 {
		limit = o.maxConnections
	}
	// A command that begins with a dash is for the image's own server. A commit
	// reaches the operating system, which survives Kill, but no disk. On a busy machine a client may not run for ten
	// seconds in the middle of its login, for which the server waits no longer by default.
	command := []string{
		"--skip-log-bin", "--innodb-flush-log-at-trx-commit=2", "--performance-schema=ON",
		"--max-connections=" + strconv.Itoa(limit), "--connect-timeout=120",
	}
	if o.tlsOnly {
		command = append(command,
			"--require-secure-transport=ON",
			"--ssl-ca="+certificateDir+"/ca.crt",
			"--ssl-cert="+certificateDir+"/server.crt",
			"--ssl-key="+certificateDir+"/server.key")
	}
	return append(command, o.arguments...)
}

func (mySQL) listen(port string) []string {
	return []string{"--bind-address=127.0.0.1", "--port=" + port, "--loose-mysqlx=OFF"} // that has a port of its own
}

func (mySQL) openAdmin(s *Server, database string) (*sql.DB, error) {
	c := mysql.NewConfig()
	c.User, c.Passwd = "root", mysqlPassword
	c.Net, c.Addr, c.DBName = "tcp", s.Addr, database
	c.Timeout = time.Minute
	c.Logger = silentLogger{} // A server that is still starting is no news.
	if s.options.tlsOnly {
		c.TLSConfig = "skip-verify" // Questions are asked under bad certificates too.
	}
	return openMySQL(c)
}

func (mySQL) openAccount(a Account, parameters []string) (*sql.DB, error) {
	c, err := mysql.ParseDSN("/?" + strings.Join(a.over(parameters), "&"))
	if err != nil {
		return nil, err
	}
	c.User, c.Passwd = a.User, a.Password
	c.Net, c.Addr, c.DBName = "tcp", a.Addr, a.Database
	c.Logger = silentLogger{}
	return openMySQL(c)
}

func openMySQL(c *mysql.Config) (*sql.DB, error) {
	connector, err := mysql.NewConnector(c)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

type silentLogger struct{}

func (silentLogger) Print(...any) {}

// tlsName is the name of the server's client configuration in the driver's
// registry, which is how a MySQL DSN names an authority of one's own.
func tlsName(s *Server) string {
	_, port, _ := net.SplitHostPort(s.Addr)
	return "testbed-" + port
}

func (mySQL) requireCertificate(ctx context.Context, a Account) error {
	admin, err := a.Server.Admin()
	if err != nil {
		return err
	}
	return each(ctx, admin, fmt.Sprintf("ALTER USER %s@'%%' REQUIRE SUBJECT '/CN=%s'", a.User, a.User))
}

func registerMySQLTLS(s *Server) error {
	return mysql.RegisterTLSConfig(tlsName(s), s.clientTLS)
}

// POOLDRIVER_MYSQL_TRANSPORT, such as tls=skip-verify, is how tests reach servers that need nothing of the kind.
func (mySQL) transport(s *Server) string {
	if s.clientTLS == nil {
		return os.Getenv("POOLDRIVER_MYSQL_TRANSPORT")
	}
	return "tls=" + tlsName(s)
}

func (mySQL) create(ctx context.Context, admin *sql.DB, a Account) error {
	return each(ctx, admin,
		fmt.Sprintf("CREATE DATABASE %s", a.Database),
		fmt.Sprintf("CREATE USER %s@'%%' IDENTIFIED BY '%s'", a.User, a.Password),
		fmt.Sprintf("GRANT ALL ON %s.* TO %s@'%%'", a.Database, a.User),
		fmt.Sprintf("CREATE ROLE %s", a.Role),
		fmt.Sprintf("GRANT %s TO %s@'%%'", a.Role, a.User),
	)
}

// drop kills the account's connections first: a transaction left open would
// block DROP DATABASE by its metadata locks.
func (m mySQL) drop(ctx context.Context, admin *sql.DB, a Account) error {
	rows, err := admin.QueryContext(ctx, "SELECT id FROM "+m.list()+" WHERE user = ?", a.User)
	if err != nil {
		return err
	}
	ids, err := column[int64](rows)
	if err != nil {
		return err
	}
	for _, id := range ids {
		// An error means that the connection has gone by itself.
		_, _ = admin.ExecContext(ctx, fmt.Sprintf("KILL %d", id))
	}
	return each(ctx, admin,
		fmt.Sprintf("DROP USER %s@'%%'", a.User),
		fmt.Sprintf("DROP ROLE %s", a.Role),
		fmt.Sprintf("DROP DATABASE %s", a.Database),
	)
}

func (mySQL) limit(ctx context.Context, admin *sql.DB, a Account, connections int) error {
	return each(ctx, admin, fmt.Sprintf("ALTER USER %s@'%%' WITH MAX_USER_CONNECTIONS %d", a.User, connections))
}

func (mySQL) enableTLS(context.Context, *Server) error { return nil } // It started with it.

func (mySQL) reloadTLS(ctx context.Context, s *Server, _ []byte) error {
	admin, err := s.Admin()
	if err != nil {
		return err
	}
	var version string
	if err := admin.QueryRowContext(ctx, "SELECT version()").Scan(&version); err != nil {
		return err
	}
	if strings.Contains(version, "MariaDB") {
		return each(ctx, admin, "FLUSH SSL")
	}
	return each(ctx, admin, "ALTER INSTANCE RELOAD TLS")
}

var threadID = regexp.MustCompile(`thread id (\d+)`)

// transactions reads InnoDB's monitor: information_schema.innodb_trx shows a picture
// that is renewed only when nobody, of any test, has looked at it for 0.1 s.
func (m mySQL) transactions(ctx context.Context, admin *sql.DB, a Account) (list []Transaction, err error) {
	rows, err := admin.QueryContext(ctx, "SELECT id FROM "+m.list()+" WHERE user = ?", a.User)
	if err != nil {
		return nil, err
	}
	ids, err := column[int64](rows)
	if err != nil {
		return nil, err
	}
	var monitor string
	if err := admin.QueryRowContext(ctx, "SHOW ENGINE INNODB STATUS").Scan(new(string), new(string), &monitor); err != nil {
		return nil, err
	}
	for _, block := range strings.Split(monitor, "---TRANSACTION ")[1:] {
		match := threadID.FindStringSubmatch(block)
		head, _, _ := strings.Cut(block, "\n")
		if match == nil || !strings.Contains(head, "ACTIVE") {
			continue
		}
		if id, _ := strconv.ParseInt(match[1], 10, 64); slices.Contains(ids, id) {
			list = append(list, Transaction{Connection: id, Waits: strings.Contains(block, "\nLOCK WAIT ")})
		}
	}
	return list, nil
}

// list is the view of the server's connections. MySQL's old one cannot be read while any
// connection sends bytes that are not UTF-8.
func (m mySQL) list() string {
	if m == MariaDB {
		return "information_schema.processlist"
	}
	return "performance_schema.processlist"
}

func (m mySQL) queries() queries {
	return queries{
		// The connection that kills a cancelled statement has no database, and tells its name. Others
		// are listed without a database while they log in or end.
		backends: `SELECT COALESCE(SUM(db IS NOT NULL), 0), COALESCE(SUM(db IS NULL), 0), COALESCE(SUM(db IS NULL AND EXISTS (
				SELECT * FROM performance_schema.session_connect_attrs AS a
				WHERE a.processlist_id = l.id AND attr_name = 'program_name' AND attr_value = 'pooldriver-kill')), 0)
			FROM ` + m.list() + ` AS l WHERE user = ?`,
		idle:       "SELECT id FROM " + m.list() + " WHERE user = ? AND command = 'Sleep'",
		kill:       "KILL %d",
		sleeping:   "SELECT count(*) FROM information_schema.processlist WHERE user = ? AND info LIKE '%sleep(%' AND id <> connection_id()",
		lockHolder: `SELECT IS_USED_LOCK(CONCAT(?, '.', ?))`,
	}
}
