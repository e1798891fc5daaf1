package odbc

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

func TestAKeywordThatIsGivenTwiceIsRefused(t *testing.T) {
	for dsn, name := range map[string]string{"odbc:Driver={X};UID=a;uid=b": "uid", "odbc:Driver={X};pool_max_conns=1;pool_max_conns=2": "pool_max_conns", "odbc:Driver={X};PWD=a;Pwd=b": "pwd"} {
		_, err := parse(dsn)
		require.ErrorContains(t, err, "the parameter "+name+" twice", dsn)
	}
}

func TestClaimKnowsItsFormsAndLeavesOthersAlone(t *testing.T) {
	for dsn, want := range map[string]dialects.Claim{
		"odbc:DSN=shop":                    dialects.Surely,
		"ODBC:Driver={x}":                  dialects.Surely,
		"Driver=SQLite3;Database=/x.db":    dialects.Surely,
		"dsn=shop;uid=app":                 dialects.Surely,
		"postgres://h/x":                   dialects.NotMine,
		"host=h dbname=x":                  dialects.NotMine,
		"user:pw@tcp(h)/x":                 dialects.NotMine,
		"server=h;driver=x;not at the 1st": dialects.NotMine,
		"":                                 dialects.NotMine,
	} {
		require.Equal(t, want, claim(dsn), dsn)
	}
}

func TestParseSaysWhatTheDriverManagerIsGiven(t *testing.T) {
	for _, c := range []struct{ dsn, text, target string }{
		{"odbc:DSN=shop", "DSN=shop;", "odbc shop"},
		{"Driver=SQLite3;Database=/a,b.db;pool_max_conns=4", "Driver=SQLite3;Database=/a,b.db;", "odbc SQLite3 /a,b.db"},
		{"odbc:Driver={PostgreSQL Unicode}; Server=db; Port=5432 ;Database=shop;UID=app;PWD={a;}}b}",
			"Driver={PostgreSQL Unicode};Server=db;Port=5432;Database=shop;UID=app;PWD={a;}}b};", "odbc PostgreSQL Unicode app@db:5432/shop"},
		{"odbc:DSN=shop;UID=app;PWD=", "DSN=shop;UID=app;PWD=;", "odbc shop app@"},
		{"odbc:DSN=shop;;POOL_MAX_CONNS={4};x=1;", "DSN=shop;x=1;", "odbc shop"},
	} {
		src, err := parse(c.dsn)
		require.NoError(t, err, c.dsn)
		require.Equal(t, c.text, src.attributes.text(), c.dsn)
		require.Equal(t, c.target, src.target, c.dsn)
	}
}

func TestParseTakesThePoolParametersOutInTheirOrder(t *testing.T) {
	src, err := parse("odbc:DSN=x;pool_b=1;a=2;Pool_A={3 m}")
	require.NoError(t, err)
	require.Equal(t, []dialects.Param{{Name: "pool_b", Value: "1"}, {Name: "pool_a", Value: "3 m"}}, src.params)
}

func TestParseErrorsSayWhatIsWrongAndRepeatNothing(t *testing.T) {
	for dsn, want := range map[string]string{
		"odbc:":                               "neither a data source nor a driver",
		"odbc:UID=app;PWD=hunter2":            "neither a data source nor a driver",
		"odbc:hunter2":                        "KEYWORD=VALUE",
		"odbc:DSN=x;hunter2":                  "KEYWORD=VALUE",
		"odbc:DSN=x;PWD={hunter2":             "KEYWORD=VALUE",
		"odbc:DSN=x;PWD={hunter2}more":        "KEYWORD=VALUE",
		"odbc:DSN=x;UID=app,PWD=hunter2":      "the value of UID",
		"odbc:DSN=x;UID=app:hunter2":          "the value of UID",
		"odbc:DSN=x PWD=hunter2":              "the value of DSN",
		"odbc:DSN=x;Server=h&PWD=hunter2":     "the value of SERVER",
		"odbc:DSN=x;Database={d;PWD=hunter2}": "the value of DATABASE",
	} {
		_, err := parse(dsn)
		require.ErrorContains(t, err, want, dsn)
		require.NotContains(t, err.Error(), "hunter2", dsn)
	}
}

func TestAPasswordOfOursIsReadBackAsItWas(t *testing.T) {
	for _, password := range []string{"", "a", "a;b", "{", "}", "}}", "a}b;PWD=c", " a ", "a=b", `"`} {
		s := connString{braced("UID", "app", false), braced("PWD", password, true)}
		back, err := parseString(s.text())
		require.NoError(t, err, password)
		got, _ := back.get("pwd")
		require.Equal(t, password, got)
		require.Len(t, back, 2)
	}
}

func FuzzParse(f *testing.F) {
	for _, dsn := range []string{"odbc:DSN=x;PWD=s3cr3t", "Driver={a}}b};Server=h;UID=u;PWD={s3cr3t;};pool_x=1", "odbc:DSN=x;UID=a,PWD=s3cr3t"} {
		f.Add(dsn)
	}
	f.Fuzz(func(t *testing.T, dsn string) {
		src, err := parse(dsn)
		if err != nil {
			return
		}
		again, err := parseString(src.attributes.text())
		require.NoError(t, err, "what the driver manager is given cannot be read: %q", dsn)
		require.Equal(t, src.attributes, again, "%q", dsn)
		for _, a := range again {
			require.False(t, strings.HasPrefix(strings.ToLower(a.key), "pool_"), "a pool parameter reaches the driver: %q", dsn)
		}
	})
}
