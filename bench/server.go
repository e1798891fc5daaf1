package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

// server is a database server in a container, which runs from the first contest
// that needs it to the end.
type server struct {
	name    string
	engine  testbed.Engine
	create  []string // what makes the bench's user and database
	analyze string
	awake   bool // when it stands apart, see keepAwake

	start func() (testbed.Account, error)

	mu      sync.Mutex // protects the following
	running *testbed.Server
	version string
	proxies []*proxy
}

const benchName = "bench" // of user and database

func newServer(s *server) *server {
	s.start = sync.OnceValues(s.begin)
	return s
}

func postgresServer(awake bool) *server {
	return newServer(&server{
		name: "PostgreSQL", engine: testbed.Postgres, awake: awake,
		create:  []string{"create role bench login password 'PASSWORD'", "create database bench owner bench"},
		analyze: "analyze accounts",
	})
}

func mariaServer(awake bool) *server { return familyServer("MariaDB", testbed.MariaDB, awake) }

// mysqlServer is nil where MySQL cannot be had: "make bench" names its image. An older
// testbed, beside which this bench may be built, does not know it.
func mysqlServer(awake bool) *server {
	if os.Getenv("POOLDRIVER_MYSQL_IMAGE") == "" {
		return nil
	}
	return familyServer("MySQL", testbed.OracleMySQL, awake)
}

func familyServer(name string, engine testbed.Engine, awake bool) *server {
	return newServer(&server{
		name: name, engine: engine, awake: awake,
		create:  []string{"create database bench", "create user bench@'%' identified by 'PASSWORD'", "grant all on bench.* to bench@'%'"},
		analyze: "analyze table accounts",
	})
}

// fill makes the table of accounts, in any SQL.
var fill = []string{
	"create table accounts (id bigint primary key, balance bigint not null)",
	"insert into accounts select " + number + ", 0 from " +
		digits("a") + ", " + digits("b") + ", " + digits("c") + ", " + digits("d") + " where d.n = 0",
}

// begin starts the server and fills the database.
func (s *server) begin() (testbed.Account, error) {
	running, err := testbed.New(context.Background(), s.engine, testbed.WithHostNetwork())
	if err != nil {
		return testbed.Account{}, err
	}
	s.mu.Lock()
	s.running = running
	s.mu.Unlock()
	a := testbed.Account{Server: running, Addr: running.Addr, User: benchName, Password: rand.Text(), Database: benchName}
	admin, err := running.Admin()
	if err != nil {
		return a, err
	}
	for _, text := range s.create {
		if _, err := admin.Exec(strings.ReplaceAll(text, "PASSWORD", a.Password)); err != nil {
			return a, fmt.Errorf("%s: %w", text, err)
		}
	}
	db, err := s.plain(a)
	if err != nil {
		return a, err
	}
	defer db.Close()
	for _, text := range append(slices.Clone(fill), s.analyze) {
		if _, err := db.Exec(text); err != nil {
			return a, fmt.Errorf("%s: %w", text, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return a, db.QueryRow("select version()").Scan(&s.version)
}

// account is the bench's, at a distance; nil is without a proxy.
func (s *server) account(d *distance) (testbed.Account, *proxy, error) {
	a, err := s.start()
	if err != nil || d == nil {
		return a, nil, err
	}
	p, err := listen(a.Addr, *d)
	if err != nil {
		return a, nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.proxies = append(s.proxies, p)
	return a.Via(p.Listen), p, nil
}

// plain opens the account with database/sql and the bare driver.
func (s *server) plain(a testbed.Account, parameters ...string) (*sql.DB, error) {
	if s.engine == testbed.Postgres {
		return sql.Open("pgx", a.URL(parameters...))
	}
	return sql.Open("mysql", mysqlDSN(a, parameters...))
}

// describe says which version has run; it is empty if none has.
func (s *server) describe() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	version, _, _ := strings.Cut(s.version, " on ") // PostgreSQL adds what it was built for
	return version
}

// stop ends the proxies and the server, if it was started.
func (s *server) stop() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.proxies {
		p.Stop()
	}
	if s.running == nil {
		return nil
	}
	return s.running.Terminate()
}

func stopAll(servers ...*server) error {
	var errs []error
	for _, s := range servers {
		errs = append(errs, s.stop())
	}
	return errors.Join(errs...)
}

func mysqlDSN(a testbed.Account, parameters ...string) string {
	return fmt.Sprintf("%s:%s@tcp(%s)/%s?%s", a.User, a.Password, a.Addr, a.Database, strings.Join(parameters, "&"))
}
