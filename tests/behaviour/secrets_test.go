package behaviour

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	_ "github.com/pooldriver/pooldriver/dialects/mysql"
	_ "github.com/pooldriver/pooldriver/dialects/postgres"
	_ "github.com/pooldriver/pooldriver/dialects/sqlite"
)

const secret = "Zx9qTrombone"

// printed is v in every way that Go programs print things.
func printed(t testing.TB, v any) string {
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		fmt.Fprintf(&out, verb+"\n", v)
	}
	j, err := json.Marshal(map[string]any{"v": v})
	if err == nil {
		out.Write(j)
	}
	slog.New(slog.NewJSONHandler(&out, nil)).Info("m", "v", v)
	slog.New(slog.NewTextHandler(&out, nil)).Info("m", "v", v)
	return out.String()
}

func requireNoSecret(t testing.TB, what string, v any) {
	text := printed(t, v)
	hex := fmt.Sprintf("%x", secret)
	if strings.Contains(text, secret) || strings.Contains(text, hex) {
		t.Fatalf("%s shows the password: %s", what, text)
	}
}

// chain is an error with everything that errors.As could reach from it.
func chain(err error) []error {
	if err == nil {
		return nil
	}
	all := []error{err}
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		all = append(all, chain(e.Unwrap())...)
	case interface{ Unwrap() []error }:
		for _, inner := range e.Unwrap() {
			all = append(all, chain(inner)...)
		}
	}
	return all
}

// use does with a DSN what programs do, without a server, and looks at
// everything that comes back.
func use(t testing.TB, dsn string) {
	c := pooldriver.New(dsn, quiet)
	requireNoSecret(t, "Connector", c)
	requireNoSecret(t, "*Connector in a struct", struct{ C *pooldriver.Connector }{c})
	requireNoSecret(t, "Driver", c.Driver())
	requireNoSecret(t, "Stats", c.Stats())
	_, err := pooldriver.Driver{}.OpenConnector(dsn)
	for _, e := range chain(err) {
		requireNoSecret(t, "error", e)
	}
}

func TestNoWayOfPrintingShowsAPassword(t *testing.T) {
	// Nobody listens on port 1.
	for _, dsn := range []string{
		"postgres://app:" + secret + "@127.0.0.1:1/shop?sslmode=disable",
		"host=127.0.0.1 port=1 user=app password=" + secret + " dbname=shop sslmode=disable",
		"host=127.0.0.1 port=1 user=app password = '" + secret + "' dbname=shop sslmode=disable",
		"mysql://app:" + secret + "@127.0.0.1:1/shop",
		"app:" + secret + "@tcp(127.0.0.1:1)/shop",
	} {
		use(t, dsn)
		began := time.Now()
		db, err := pooldriver.Open(dsn, quiet)
		require.Error(t, err)
		require.Nil(t, db)
		require.Less(t, time.Since(began), 10*time.Second, "no timeout has passed")
		require.ErrorContains(t, err, "127.0.0.1:1")
		require.ErrorContains(t, err, "refused")
		for _, e := range chain(err) {
			requireNoSecret(t, "refused connection", e)
		}
	}
}

func TestAMistypedDSNIsOneClearErrorWithoutThePassword(t *testing.T) {
	for dsn, want := range map[string]string{
		"": "the DSN is empty",
		"postgres://app:" + secret + "@host:notaport/shop":           "port",
		"postgres://app:" + secret + "@host/shop?sslmode=perhaps":    "sslmode",
		"postgres://app:" + secret + "@host/shop?pool_max_conns=ten": "pool_max_conns",
		"postgres://app:" + secret + "@host/shop?pool_max_cons=10":   "did you mean pool_max_conns?",
		"app:" + secret + "@tcp(host:3306":                           "",
		"app:" + secret + "@tcp(host:3306)":                          "slash",
		"mysql://app:" + secret + "@host/shop?parseTime=perhaps":     "parseTime",
		"mysql://app:" + secret + "@host/shop?pool_reset=maybe":      "pool_reset",
		"oracle://app:" + secret + "@host/shop":                      "dialect",
		"odbc:DSN=shop;UID=app;PWD=" + secret:                        "dialect",
	} {
		use(t, dsn)
		db := sql.OpenDB(pooldriver.New(dsn, quiet)) // the first use tells
		err := db.Ping()
		require.Error(t, err, dsn)
		require.ErrorContains(t, err, want)
		require.True(t, strings.HasPrefix(err.Error(), "pooldriver: "), err)
		_, openErr := pooldriver.Open(dsn, quiet) // Open tells at once
		require.EqualError(t, openErr, err.Error())
		_, openErr = sql.Open("pooldriver", dsn)
		require.EqualError(t, openErr, err.Error())
		require.IsType(t, pooldriver.Driver{}, pooldriver.New(dsn, quiet).Driver())
		require.NoError(t, db.Close())
	}
}

func TestACredentialSourcesPasswordIsInNoError(t *testing.T) {
	db := sql.OpenDB(pooldriver.New("postgres://nobody@127.0.0.1:1/shop?sslmode=disable", quiet, func(c *pooldriver.Config) {
		c.Credentials = func(context.Context) (pooldriver.Credential, error) {
			return pooldriver.Credential{User: "app", Password: secret}, nil
		}
	}))
	defer db.Close()
	for _, e := range chain(db.Ping()) {
		requireNoSecret(t, "refused connection", e)
	}
}

// FuzzNewShowsNoPassword mistypes what follows the password.
func FuzzNewShowsNoPassword(f *testing.F) {
	for form := range byte(6) {
		for _, tail := range []string{"", "@127.0.0.1:1/shop", "@host/shop?a=b", "@", "/", "?x=%zz", "@tcp(h)/d", "@tcp(h", "' x=y", " host=h", "%", "@[::1/db", "@h:99999/d", "@h/d?sslmode=x&pool_max_conns=q"} {
			f.Add(form, tail)
		}
	}
	f.Fuzz(func(t *testing.T, form byte, tail string) {
		heads := []string{"postgres://app:", "mysql://app:", "app:", "host=127.0.0.1 password=", "postgres:password=", "mysql:app:"}
		use(t, heads[int(form)%len(heads)]+secret+tail)
	})
}
