package dialects

import (
	"database/sql/driver"
	"testing"

	"github.com/stretchr/testify/require"
)

// claimer is a dialect that claims what its table says.
type claimer struct {
	Dialect
	name   string
	claims map[string]Claim
}

func (c claimer) Name() string                            { return c.name }
func (c claimer) Claim(dsn string) Claim                  { return c.claims[dsn] }
func (c claimer) Wrap(driver.Connector) (Template, error) { return nil, ErrNotMine }

// with runs f with these dialects registered and no others.
func with(t *testing.T, f func(), ds ...Dialect) {
	t.Helper()
	before := registry.dialects
	defer func() { registry.dialects = before }()
	registry.dialects = nil
	for _, d := range ds {
		Register(d)
	}
	f()
}

func TestFindSaysWhichImportToAdd(t *testing.T) {
	with(t, func() {
		for dsn, want := range map[string]string{
			"postgres://h/d":     `for postgres, which is not linked into this program; add import _ "github.com/pooldriver/pooldriver/dialects/postgres"`,
			"PostgreSQL://h/d":   `dialects/postgres"`,
			"mysql://h/d":        `dialects/mysql"`,
			"sqlite:x":           `dialects/sqlite"`,
			":memory:":           `dialects/sqlite"`,
			"host=h secret=pass": "no dialect is linked",
			"":                   "the DSN is empty",
		} {
			_, err := Find(dsn)
			require.ErrorContains(t, err, want)
			require.NotContains(t, err.Error(), "secret")
		}
	})
}

func TestFindTakesTheOneThatClaimsTheDSN(t *testing.T) {
	a := claimer{name: "a", claims: map[string]Claim{"both": Perhaps, "mine": Perhaps, "sure": Surely, "a thing": Perhaps}}
	b := claimer{name: "b", claims: map[string]Claim{"both": Perhaps, "sure": Perhaps}}
	with(t, func() {
		for dsn, want := range map[string]string{"mine": "a", "sure": "a", "b:both": "b", "A:both": "a"} {
			d, err := Find(dsn)
			require.NoError(t, err)
			require.Equal(t, want, d.Name())
		}
		_, err := Find("both")
		require.ErrorContains(t, err, `could belong to a, b; begin it with "a:" to decide`)
		_, err = Find("nobody's")
		require.ErrorContains(t, err, "no linked dialect (a, b) recognises the DSN")
	}, a, b)
}

func TestFindTellsWhatASlipIs(t *testing.T) {
	with(t, func() {
		for dsn, want := range map[string]string{
			"registeredConnConfig0":       "give the pgx.ConnConfig itself to pooldriver: pooldriver.Wrap(stdlib.GetConnector(*config))",
			"registeredConnConfig17":      "stdlib.RegisterConnConfig",
			"postgers://u:secret@h/d":     "begins with a scheme that no dialect has; the schemes are postgres, ",
			"sqlite3://secret.db":         "begins with a scheme that no dialect has",
			"Postgresql+x2://u:secret@":   "begins with a scheme that no dialect has",
			" postgres://u:secret@h/d":    "begins or ends with white space",
			"postgres://u:secret@h/d\n":   "begins or ends with white space",
			"u:secret@tcp(h)/d\n":         "begins or ends with white space",
			"postgres//u:secret@h/d":      "where a URL begins with postgres://",
			"\"postgres://u:secret@h/d\"": "is in quotes",
			"'u:secret@tcp(h)/d'":         "is in quotes",
			" host=h password=secret":     "recognises",
			"mariadb://u:secret@h/d":      `dialects/mysql"`,
		} {
			_, err := Find(dsn)
			require.ErrorContains(t, err, want, dsn)
			require.NotContains(t, err.Error(), "secret")
		}
	}, claimer{name: "a"})
}

func TestAParameterIsGivenOnce(t *testing.T) {
	require.NoError(t, GivenOnce(nil))
	require.NoError(t, GivenOnce([]string{"a", "b"}))
	require.EqualError(t, GivenOnce([]string{"a", "SSLmode", "SSLmode"}, "sslmode"), "the DSN has the parameter SSLmode twice; leave one of them out")
	require.EqualError(t, GivenOnce([]string{"pool_sise", "pool_sise"}), "the DSN has the parameter pool_sise twice; leave one of them out")
	for _, name := range []string{"secret", "pool_S3cret", "pool_secret@h/d"} {
		require.EqualError(t, GivenOnce([]string{"a", name, "b", name}, "sslmode"), "the DSN has a parameter twice: the names of number 2 and number 4 are the same; leave one of them out")
	}
}

func TestRegisterPanicsForASecondDialectOfTheSameName(t *testing.T) {
	with(t, func() {
		require.Panics(t, func() { Register(claimer{name: "a"}) })
	}, claimer{name: "a"})
}

func TestWrapAsksTheFallbackLast(t *testing.T) {
	with(t, func() {
		_, _, err := Wrap(nil, claimer{name: "fallback"})
		require.ErrorIs(t, err, ErrNotMine)
	}, claimer{name: "a"})
}

func TestEffectNamesItsBits(t *testing.T) {
	require.Equal(t, "clean", Clean.String())
	require.Equal(t, "suspect", Suspect.String())
	require.Equal(t, "stateful|tx-control", (Stateful | TxControl).String())
	require.True(t, Suspect.Dirty())
	require.True(t, (Stateful | ForgetPrepared).Dirty())
	require.False(t, TxControl.Dirty())
}
