package testbed

import (
	"context"
	"crypto/rand"
	"database/sql"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// Account is a database with a user who owns it. [Server.NewAccount]
// makes one; the zero value is not usable. It is a value: copies may differ in Addr or
// Password to stand for a proxy or a wrong password.
type Account struct {
	Server   *Server
	Addr     string // Where clients connect: the server, or a proxy before it.
	User     string
	Password string
	Database string
	Role     string // A role without rights that User may SET ROLE to.
}

// NewAccount makes an account that is dropped, and its connections killed, at
// the end of the test.
func (s *Server) NewAccount(t testing.TB) Account {
	t.Helper()
	a := s.makeAccount(t)
	admin, err := s.Admin()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		if err := s.Engine.drop(ctx, admin, a); err != nil {
			t.Errorf("testbed: drop account: %v", err)
		}
	})
	return a
}

// makeAccount makes one that lasts as long as its server.
func (s *Server) makeAccount(t testing.TB) Account {
	t.Helper()
	name := "t" + strings.ToLower(rand.Text()[:12])
	a := Account{
		Server: s, Addr: s.Addr,
		User: name, Password: "Secret-" + rand.Text(), Database: name, Role: name + "_role",
	}
	admin, err := s.Admin()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Engine.create(t.Context(), admin, a); err != nil {
		t.Fatalf("testbed: create account: %v", err)
	}
	return a
}

// On returns the account as another server has it, which has copied it.
func (a Account) On(s *Server) Account {
	a.Server, a.Addr = s, s.Addr
	return a
}

// Via returns the account as it is reached through addr.
func (a Account) Via(addr string) Account {
	a.Addr = addr
	return a
}

// URL returns the account's pooldriver DSN. Each parameter is "name=value".
func (a Account) URL(parameters ...string) string {
	u := url.URL{
		Scheme: a.Server.Engine.String(),
		User:   url.UserPassword(a.User, a.Password),
		Host:   a.Addr,
		Path:   "/" + a.Database,
	}
	u.RawQuery = strings.Join(a.over(parameters), "&")
	return u.String()
}

// over are parameters with the way to the server, unless they say it.
func (a Account) over(parameters []string) []string {
	transport := a.Server.Engine.transport(a.Server)
	if transport == "" || slices.ContainsFunc(parameters, func(p string) bool { return strings.HasPrefix(p, "tls=") }) {
		return parameters
	}
	return append([]string{transport}, parameters...)
}

// OpenBare returns a plain sql.DB of the account with the bare driver, closed
// at the end of the test. Each parameter is "name=value", as in URL.
func (a Account) OpenBare(t testing.TB, parameters ...string) *sql.DB {
	t.Helper()
	db, err := a.Server.Engine.openAccount(a, parameters)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// Witness returns the administrator's pool on the account's database, closed at
// the end of the test. It goes straight to the server, whatever Addr says.
func (a Account) Witness(t testing.TB) *sql.DB {
	t.Helper()
	db, err := a.Server.Engine.openAdmin(a.Server, a.Database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// LimitConnections makes the server itself refuse the account's connection
// number n+1. No sampling can miss what the server refuses.
func (a Account) LimitConnections(t testing.TB, n int) {
	t.Helper()
	admin, err := a.Server.Admin()
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Server.Engine.limit(t.Context(), admin, a, n); err != nil {
		t.Fatalf("testbed: limit connections: %v", err)
	}
}
