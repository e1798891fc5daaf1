package postgres

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

const secret = "hunter2-hunter2"

func TestClaimKnowsItsFormsAndLeavesOthersAlone(t *testing.T) {
	for dsn, want := range map[string]dialects.Claim{
		"postgres://u:p@h/d":                   dialects.Surely,
		"PostgreSQL://h":                       dialects.Surely,
		"postgres:host=h user=u":               dialects.Surely,
		"host=h user=u dbname=d":               dialects.Surely,
		" user = 'u' password='a b'":           dialects.Surely,
		"host=h password='a;b'":                dialects.Perhaps,
		"Host=h;Username=u;Password=p":         dialects.NotMine,
		"host=h;user=u":                        dialects.NotMine,
		"Driver={PostgreSQL Unicode};Server=h": dialects.NotMine,
		"server=h user id=sa":                  dialects.NotMine,
		"u:p@tcp(h:3306)/d?user=x":             dialects.NotMine,
		"mysql://u:p@h/d":                      dialects.NotMine,
		"sqlite:x.db":                          dialects.NotMine,
		"":                                     dialects.NotMine,
	} {
		require.Equal(t, want, claim(dsn), dsn)
	}
}

func TestParseReadsEveryForm(t *testing.T) {
	for _, dsn := range []string{
		"postgres://u:" + secret + "@h:5433/d?application_name=a&pool_max_conns=4&pool_x=a%20b",
		"POSTGRESQL://u:" + secret + "@h:5433/d?application_name=a&pool_x=a%20b&pool_max_conns=4",
		"host=h port=5433 user=u password=" + secret + " dbname=d application_name=a pool_max_conns=4 pool_x='a b'",
		`postgres:user = u pool_x=a\ b pool_max_conns='4' password='` + secret + `' dbname=d host=h port=5433 application_name=a`,
		"postgres:postgres://u:" + secret + "@h:5433/d?application_name=a&pool_max_conns=4&pool_x=a%20b",
	} {
		tmpl, err := parse(dsn)
		require.NoError(t, err, dsn)
		require.Equal(t, "postgres u@h:5433/d", tmpl.Target(), dsn)
		require.Equal(t, secret, tmpl.config.Password, dsn)
		require.Equal(t, []dialects.Param{{Name: "pool_max_conns", Value: "4"}, {Name: "pool_x", Value: "a b"}}, tmpl.PoolParams(), dsn)
		require.Equal(t, map[string]string{"application_name": "a"}, tmpl.config.RuntimeParams, dsn)
	}
}

func TestAParameterThatIsGivenTwiceIsRefused(t *testing.T) {
	for dsn, want := range map[string]string{
		"postgres://u@h/d?pool_max_conns=1&sslmode=disable&pool_max_conns=2": "the parameter pool_max_conns twice",
		"postgres://u@h/d?search_path=a&search_path=b":                       "the parameter search_path twice",
		"postgres://u@h/d?pool_max_conns=1&pool%5Fmax_conns=2":               "the parameter pool_max_conns twice",
		"postgres://u@h/d?work_mem=1&sslmode=disable&work_mem=2":             "the parameter work_mem twice",
		"postgres://u@h/d?vendor.setting=1&sslmode=disable&vendor.setting=2": "the names of number 1 and number 3 are the same",
		"host=h user = u sslmode=disable user='v w'":                         "the parameter user twice",
		`host=h password=a\ b application_name='it\'s user=x' password = c`:  "the parameter password twice",
	} {
		_, err := parse(dsn)
		require.ErrorContains(t, err, want, dsn)
	}
	_, err := parse(`host=h user=u password='user=x \' user=y' application_name=user\ =z`)
	require.NoError(t, err)
}

// TestAPasswordThatIsNotEscapedIsReadOrExplained: as libpq reads it, or the error says how to write
// each character.
func TestAPasswordThatIsNotEscapedIsReadOrExplained(t *testing.T) {
	for _, c := range "@:/?#%" {
		for _, password := range []string{"a" + string(c) + "b", string(c), "1" + string(c) + "2", "a" + string(c) + "b@c", "a" + string(c) + "b=c", "a@" + string(c) + "b", "a" + string(c) + "?b=c"} {
			for _, tail := range []string{"@h:1/d?sslmode=require&pool_max_conns=3", "@h/d", "@h:1,g:2/d"} {
				dsn := "postgres://u:" + password + tail
				tmpl, err := parse(dsn)
				if err != nil {
					require.ErrorContains(t, err, "in a password write @ as %40, : as %3A, / as %2F, # as %23, ? as %3F and % as %25", dsn)
					continue
				}
				require.Equal(t, password, tmpl.config.Password, dsn)
				require.Regexp(t, `^postgres u@h:\d+/d( \(\+1 more\))?$`, tmpl.Target(), dsn)
				for _, p := range tmpl.DriverParams() {
					require.Equal(t, "sslmode", p.Name, dsn)
				}
			}
		}
	}
}

func TestTargetCountsTheHostsAndNotTheirAttempts(t *testing.T) {
	for dsn, want := range map[string]string{
		"postgres://u@h/d":                            "postgres u@h:5432/d",
		"postgres://u@h/d?sslmode=prefer":             "postgres u@h:5432/d",
		"postgres://u@h1:1,h2:2,h3:3/d":               "postgres u@h1:1/d (+2 more)",
		"postgres://u@[::1]:5/d":                      "postgres u@[::1]:5/d",
		"host=/run/postgresql port=1 user=u dbname=d": "postgres u@/run/postgresql:1/d",
	} {
		tmpl, err := parse(dsn)
		require.NoError(t, err, dsn)
		require.Equal(t, want, tmpl.Target(), dsn)
	}
}

func TestParseErrorsSayWhatIsWrongAndRepeatNothing(t *testing.T) {
	dir := t.TempDir()
	empty := filepath.Join(dir, secret)
	require.NoError(t, os.WriteFile(empty, []byte("x"), 0o600))
	url := func(params string) string { return "postgres://u:" + secret + "@h/d?" + params }
	for dsn, want := range map[string]string{
		"postgres://u:%zz" + secret + "@h/d":                     "in a password write @ as %40",
		"postgres://u:%00" + secret + "@h/d":                     "NUL",
		"postgres://u:a " + secret + "@h/d":                      "write it as %20",
		"postgres://u:a@" + secret + "@h/d":                      "write @ as %40",
		"postgres://u:1/" + secret + "@h/d":                      "an @ behind its first / or ?; in a password write @ as %40",
		"postgres://u:a/" + secret + "@h/d":                      "an @ behind its first / or ?; in a password write @ as %40",
		"postgres://u:a#" + secret + ":x@y@h/d":                  "write @ as %40",
		"postgres://[" + secret:                                  "no ]",
		"postgres://[]/" + secret:                                "between [ and ]",
		"postgres://[::1]" + secret:                              "behind the ]",
		"postgres://u@h:" + secret + "/d":                        "a port is not a number",
		"postgres://u@h:1,h2:2:" + secret + "/d":                 "a port is not a number",
		url("port=1,2,3"):                                        "number of ports",
		url(secret):                                              "cannot be read as a URL",
		url("sslmode=" + secret):                                 "sslmode is none of",
		url("sslcertmode=" + secret):                             "sslcertmode is none of",
		url("sslrootcert=" + dir + "/no" + secret):               "sslrootcert cannot be read: no such file",
		url("sslrootcert=" + empty):                              "sslrootcert holds no certificate",
		url("sslcert=" + secret):                                 "sslcert and sslkey go together",
		url("sslkey=/" + secret + "&sslcert=/x"):                 "sslkey cannot be read",
		url("sslkey=" + empty + "&sslcert=/x"):                   "sslkey holds no key",
		url("connect_timeout=" + secret):                         "connect_timeout is not a number",
		url("target_session_attrs=" + secret):                    "target_session_attrs is none of",
		url("channel_binding=" + secret):                         "channel_binding is none of",
		url("require_auth=" + secret):                            "require_auth is not a list",
		url("min_protocol_version=" + secret):                    "min_protocol_version is none of",
		url("max_protocol_version=" + secret):                    "max_protocol_version is none of",
		url("min_protocol_version=3.2&max_protocol_version=3.0"): "greater than",
		url("statement_cache_capacity=" + secret):                "statement_cache_capacity is not a number",
		url("description_cache_capacity=" + secret):              "description_cache_capacity is not a number",
		url("default_query_exec_mode=" + secret):                 "default_query_exec_mode is none of",
		url("servicefile=/" + secret + "&service=x"):             "service file cannot be read",
		url("servicefile=" + empty + "&service=" + secret):       "service file",
		"host=h password = a " + secret + " y = x":               "keyword without a =",
		"host=h password='a" + secret:                            "does not end with one",
		"postgres:" + secret:                                     "neither a URL",
		"postgres:host=h;user=u;password=" + secret:              "semicolons",
		"host=h dbname=d;password=" + secret:                     "semicolons",
		"host=h \x00" + secret:                                   "NUL",
		"postgres://h/shop&user=app&password=" + secret:          "the database of the DSN",
		"user=app,password=" + secret + " host=h":                "the user of the DSN",
		"host=h dbname=shop,password=" + secret:                  "the database of the DSN",
		"host=h user=u dbname=shop&password=" + secret:           "the database of the DSN",
		"dbname=shop&password=" + secret:                         "the database of the DSN",
		"host=h dbname=postgres://u:" + secret + "@h/d":          "the database of the DSN",
		"postgres://app%3A" + secret + "@h/db":                   "the user of the DSN",
		"postgres://app%2F" + secret + "@h/db":                   "the user of the DSN",
		"postgres://h/db?user=app:" + secret:                     "the user of the DSN",
		"postgres://h/db?user=app%3A" + secret:                   "the user of the DSN",
		"postgres:host=h user=app:" + secret:                     "the user of the DSN",
		"postgres://h:1,x=" + secret + ":2/db":                   "the host of the DSN",
		"host=/run,password=" + secret + " user=u":               "the host of the DSN",
		"host=/run&password=" + secret + " user=u":               "the socket's directory of the DSN",
		"host=h&password=" + secret:                              "the host of the DSN",
	} {
		tmpl, err := dialect{}.Parse(dsn)
		require.ErrorContains(t, err, want, dsn)
		require.True(t, tmpl == nil, dsn)
		requireSafe(t, err)
		var parseErr *pgconn.ParseConfigError
		require.False(t, errors.As(err, &parseErr), dsn)
	}
	_, err := parse(url("sslrootcert=" + dir + "/none"))
	require.ErrorIs(t, err, fs.ErrNotExist)
}

func TestTheEnvironmentIsHeard(t *testing.T) {
	t.Setenv("PGHOST", "envhost")
	t.Setenv("PGPASSWORD", secret)
	tmpl, err := parse("postgres:user=u dbname=d")
	require.NoError(t, err)
	require.Equal(t, "postgres u@envhost:5432/d", tmpl.Target())
	requireSafe(t, tmpl)
}

func TestTargetNamesTheUserOnlyIfTheDSNDoes(t *testing.T) {
	t.Setenv("PGUSER", "somebody")
	for dsn, want := range map[string]string{
		"postgres://h/d":                     "postgres h:5432/d",
		"postgres://:" + secret + "@h/d":     "postgres h:5432/d",
		"postgres://h/d?application_name=u@": "postgres h:5432/d",
		"postgres:host=h dbname=d":           "postgres h:5432/d",
		"postgres://u@h/d":                   "postgres u@h:5432/d",
		"postgres://h/d?port=5432&user=u":    "postgres u@h:5432/d",
		"dbname=d host='h'user = u":          "postgres u@h:5432/d",
	} {
		tmpl, err := parse(dsn)
		require.NoError(t, err, dsn)
		require.Equal(t, want, tmpl.Target(), dsn)
	}
}

// requireSafe fails if any way of printing v shows the secret.
func requireSafe(t testing.TB, v any) {
	t.Helper()
	require.NotContains(t, allPrinted(t, v), secret)
}

func allPrinted(t testing.TB, v any) string {
	t.Helper()
	var all bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x"} {
		fmt.Fprintf(&all, verb+"\n", v)
	}
	js, err := json.Marshal(v)
	require.NoError(t, err)
	all.Write(js)
	slog.New(slog.NewTextHandler(&all, nil)).Info("m", "v", v)
	slog.New(slog.NewJSONHandler(&all, nil)).Info("m", "v", v)
	return all.String()
}

func FuzzParse(f *testing.F) {
	for _, dsn := range []string{
		"postgres://u:SECRET@h:5432/d?sslmode=disable&pool_max_conns=3",
		"postgres://u:SECRET/x@h/d", "postgres://u:a@SECRET@h/d", "postgres://u:1/SECRET@h", "postgres://u:a?SECRET@h/d",
		"host=h password=SECRET port=x", "password = SECRET host=h", "password='SEC\\'RET' user=SECRET",
		"postgres://h:SECRET", "postgres://[SECRET", "postgres://u:%SECRET@h", "postgres:SECRET", "user=u password=a SECRET=x",
		"postgres://h/shop&user=app&password=SECRET", "user=app,password=SECRET host=h", "host=h dbname=shop,password=SECRET",
		"dbname=shop&password=SECRET", "postgres://app%3ASECRET@h/db", "postgres://h/d?user=app:SECRET", "host=/run&password=SECRET",
	} {
		f.Add(strings.Split(dsn, "SECRET")[0], strings.Join(strings.Split(dsn, "SECRET")[1:], ""))
	}
	const planted = "s3kr1tpassw0rd"
	f.Fuzz(func(t *testing.T, before, after string) {
		if strings.Contains(before, "host=/") || strings.Contains(after, "file") {
			return // reads files of the fuzzer's choice
		}
		tmpl, err := parse(before + planted + after)
		if err != nil {
			if strings.Contains(allPrinted(t, err), planted) {
				t.Errorf("the error shows the secret: %v", err)
			}
			return
		}
		// A secret that is the whole of the user, the host or the database is
		// none to the DSN's reader; it is shown there and nowhere else. One
		// that something joins to them is refused.
		for _, joint := range []string{"=", "&", ";"} {
			if strings.Contains(tmpl.Target(), joint+planted) {
				t.Errorf("the target shows the secret: %v", tmpl)
			}
		}
		shown := tmpl.config.User + strings.Join(addresses(tmpl.config), " ") + tmpl.config.Database
		if !strings.Contains(shown, planted) && strings.Contains(allPrinted(t, tmpl), planted) {
			t.Errorf("the template shows the secret: %v", tmpl)
		}
		for name := range tmpl.config.RuntimeParams {
			if strings.HasPrefix(name, "pool_") {
				t.Errorf("a pool parameter goes to the server: %s", name)
			}
		}
	})
}
