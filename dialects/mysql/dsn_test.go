package mysql

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"reflect"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

func TestParseReadsEveryFormOfDSN(t *testing.T) {
	for dsn, want := range map[string]parts{
		"mysql://u:p@h:1/d": {user: "u", password: "p", network: "tcp", address: "h:1", database: "d"},
		"mariadb://u:p@h/d": {user: "u", password: "p", network: "tcp", address: "h:3306", database: "d"},
		"MySQL://u:p@h/d":   {user: "u", password: "p", network: "tcp", address: "h:3306", database: "d"},
		"mysql://h":         {network: "tcp", address: "h:3306"},
		"mysql://h?a=b":     {network: "tcp", address: "h:3306", query: "a=b"},
		"mysql://u@h/":      {user: "u", network: "tcp", address: "h:3306"},
		"mysql:///d":        {network: "tcp", address: "127.0.0.1:3306", database: "d"},
		"mysql://u%40x:p%2F%3F%23%40%3A%25@h/d%2Fe": {user: "u@x", password: "p/?#@:%", network: "tcp", address: "h:3306", database: "d/e"},
		"mysql://u:p%40q:r+s#t@h/d":                 {user: "u", password: "p@q:r+s#t", network: "tcp", address: "h:3306", database: "d"},
		"mysql://u:p@q@tcp(h:1)/d":                  {user: "u", password: "p@q", network: "tcp", address: "h:1", database: "d"},
		"mysql://u:p@[::1]:1/d":                     {user: "u", password: "p", network: "tcp", address: "[::1]:1", database: "d"},
		"mysql://[fe80::1%25eth0]/d":                {network: "tcp", address: "[fe80::1%eth0]:3306", database: "d"},
		"mysql://u@/d?socket=/run/my%20sql.sock":    {user: "u", network: "unix", address: "/run/my sql.sock", database: "d"},
		"mysql://u@h/d?a=b&socket=/s&c=d":           {user: "u", network: "unix", address: "/s", database: "d", query: "a=b&c=d"},
		"mysql://u:p%40@tcp(h:1)/d?a=b":             {user: "u", password: "p@", network: "tcp", address: "h:1", database: "d", query: "a=b"},
		"mysql://u:p@unix(/run/s)/d":                {user: "u", password: "p", network: "unix", address: "/run/s", database: "d"},
		"mysql:u:p%40@tcp(h:1)/d":                   {user: "u", password: "p%40", network: "tcp", address: "h:1", database: "d"},
		"u:p@tcp(h:1)/d?a=b&c=%2F":                  {user: "u", password: "p", network: "tcp", address: "h:1", database: "d", query: "a=b&c=%2F"},
		"u:p@tcp(h)/d":                              {user: "u", password: "p", network: "tcp", address: "h:3306", database: "d"},
		"u:p@tcp/d":                                 {user: "u", password: "p", network: "tcp", address: "127.0.0.1:3306", database: "d"},
		"u:p:@/(?x@tcp([::1]:1)/d":                  {user: "u", password: "p:@/(?x", network: "tcp", address: "[::1]:1", database: "d"},
		"u@unix(/run/s)/d":                          {user: "u", network: "unix", address: "/run/s", database: "d"},
		"u@unix/":                                   {user: "u", network: "unix", address: "/tmp/mysql.sock"},
		"u@cloudsql(project:region:db)/d":           {user: "u", network: "cloudsql", address: "project:region:db", database: "d"},
		"/d%2Fe":                                    {network: "tcp", address: "127.0.0.1:3306", database: "d/e"},
		"/":                                         {network: "tcp", address: "127.0.0.1:3306"},
	} {
		got, err := take(dsn)
		require.NoError(t, err, dsn)
		require.Equal(t, want, got, dsn)
	}
}

// The driver's own parser is the reference for the driver's own form.
func TestNativeDSNsMeanWhatTheyMeanToTheDriver(t *testing.T) {
	for _, dsn := range []string{
		"u:p@tcp(h:1)/d?parseTime=true&loc=Europe%2FBerlin&charset=utf8mb4,utf8&collation=utf8mb4_bin&sql_mode=%27ANSI%27",
		"u:p@tcp(db.example)/d?tls=true&timeout=3s&readTimeout=1s&writeTimeout=2s&compress=true&maxAllowedPacket=1234",
		"u:p@tcp(h)/d?tls=preferred&interpolateParams=true&multiStatements=true&clientFoundRows=true&rejectReadOnly=true",
		"u:p@unix(/run/s)/d?allowNativePasswords=false&connectionAttributes=a:b,c:d&timeTruncate=1ms&columnsWithAlias=true",
		"u:p@tcp([::1]:33)/", "u@tcp/x", "/d", "u:p:q@cloudsql(a:b:c)/d?timeout=1s",
	} {
		want, err := mysql.ParseDSN(dsn)
		require.NoError(t, err)
		want.CheckConnLiveness = !wired(want.Net)
		got, err := parse(dsn)
		require.NoError(t, err, dsn)
		require.True(t, reflect.DeepEqual(want, got.servers[0].config), dsn)
	}
}

func TestAParameterThatIsGivenTwiceIsRefused(t *testing.T) {
	for dsn, want := range map[string]string{
		"mysql://u@h/d?parseTime=true&x=1&parseTime=false":                                   "the parameter parseTime twice",
		"u@tcp(h)/d?pool_max_conns=1&pool_max_conns=2":                                       "the parameter pool_max_conns twice",
		"u@tcp(h)/d?time_zone=%27UTC%27&time_zone=%27UTC%27":                                 "the parameter time_zone twice",
		"u@tcp(h)/d?connectionAttributes=a:b&connectionAttributes=a:b":                       "the parameter connectionAttributes twice",
		"u@tcp(h)/d?some_variable_of_the_server=1&parseTime=1&some_variable_of_the_server=1": "the names of number 1 and number 3 are the same",
	} {
		_, err := parse(dsn)
		require.ErrorContains(t, err, want, dsn)
	}
}

// TestAPasswordThatIsNotEscapedIsReadOrExplained: as the driver reads it, or the error says how to
// write each character.
func TestAPasswordThatIsNotEscapedIsReadOrExplained(t *testing.T) {
	for _, c := range "@:/?#%" {
		for _, password := range []string{"a" + string(c) + "b", string(c), "1" + string(c) + "2", "a" + string(c) + "b@c", "a" + string(c) + "b=c"} {
			for _, tail := range []string{"@h:1/d?parseTime=true", "@h/d", "@h,g/d"} {
				tmpl, err := parse("mysql://u:" + password + tail)
				if err == nil {
					require.Equal(t, password, tmpl.servers[0].config.Passwd)
					require.Contains(t, tmpl.Target(), "mysql u@h:")
					continue
				}
				require.ErrorContains(t, err, "in a password write @ as %40, : as %3A, / as %2F, # as %23, ? as %3F and % as %25", password+tail)
			}
		}
	}
}

func TestURLParametersMayHaveSlashes(t *testing.T) {
	_, err := parse("mysql://u@h/d?loc=Europe/Berlin&socket=/run/(a)@b/s")
	require.Error(t, err, "an @ after the host is written %40")
	tmpl, err := parse("mysql://u@h/d?loc=Europe/Berlin&socket=/run/(a)/s")
	require.NoError(t, err)
	require.Equal(t, "Europe/Berlin", tmpl.servers[0].config.Loc.String())
	require.Equal(t, "/run/(a)/s", tmpl.servers[0].config.Addr)
	require.Equal(t, "mysql u@unix(/run/(a)/s)/d", tmpl.Target())
}

func TestPoolParametersAreTakenOut(t *testing.T) {
	for _, dsn := range []string{"mysql://u:p@h/d?", "u:p@tcp(h)/d?"} {
		tmpl, err := parse(dsn + "pool_max_conns=4&parseTime=true&pool_acquire_timeout=1%6Ds&pool_reset&sql_mode=ANSI")
		require.NoError(t, err)
		require.Equal(t, []dialects.Param{{Name: "pool_max_conns", Value: "4"}, {Name: "pool_acquire_timeout", Value: "1ms"}, {Name: "pool_reset"}}, tmpl.PoolParams())
		require.True(t, tmpl.servers[0].config.ParseTime)
		require.Equal(t, map[string]string{"sql_mode": "ANSI"}, tmpl.servers[0].config.Params)
		require.Equal(t, "mysql u@h:3306/d", tmpl.Target())
	}
}

func TestKillerIsConfiguredForTheTransportAlone(t *testing.T) {
	tmpl, err := parse("mysql://u:p@h/d?tls=skip-verify&timeout=3s&charset=latin1&sql_mode=ANSI&compress=true&connectionAttributes=a:b&autocommit=0")
	require.NoError(t, err)
	c := tmpl.servers[0].killConfig
	require.Equal(t, "u p tcp h:3306  3s", strings.Join([]string{c.User, c.Passwd, c.Net, c.Addr, c.DBName, c.Timeout.String()}, " "))
	require.True(t, c.TLS.InsecureSkipVerify)
	require.Empty(t, c.Params)
	require.Equal(t, "program_name:pooldriver-kill", c.ConnectionAttributes)
}

func TestParseErrorsDiagnoseWithoutQuoting(t *testing.T) {
	require.NotEmpty(t, secret)
	for dsn, want := range map[string]string{
		"u:hunter2@tcp(h:1)":                                            errSlash.Error(),
		"mysql:":                                                        errSlash.Error(),
		"u:hunter2@tcp(h:1/d":                                           errHost.Error(),
		"u:hunter2@tcp(h:1)/d?loc=Europe/Berlin":                        errValue.Error(),
		"u:hunter2@/d?loc=Europe/Berlin":                                errValue.Error(),
		"u:hunter2@h:1/d":                                               errHost.Error(),
		"u:hunter2@h/d":                                                 errHost.Error(),
		"u:hunter2/d":                                                   errHost.Error(),
		"u:x@unix/hunter2@tcp(h)":                                       errDatabase.Error(),
		"u:x@tcp(hunter2!)/d":                                           errHost.Error(),
		"mysql://u:hunter2@h:port/d":                                    errPort.Error(),
		"mysql://u:hunter2@h:0/d":                                       errPort.Error(),
		"mysql://u:hunter2@h:99999/d":                                   errPort.Error(),
		"mysql://u:hunter2@::1/d":                                       errPort.Error(),
		"mysql://u:hunter2@[::1/d":                                      errPort.Error(),
		"mysql://u:hunter2@[::1]x/d":                                    errPort.Error(),
		"mysql://u:hunter2@h h/d":                                       errHost.Error(),
		"mysql://u:hun/ter2@h/d":                                        errEscape.Error(),
		"mysql://u:1?hunter2@h/d":                                       errEscape.Error(),
		"mysql://u:hunter2@h1,u:hunter2@h2/d":                           errEscape.Error(),
		"mysql://u:hun@ter2@h/d":                                        errEscape.Error(),
		"mysql://u:x@hunter2?y@h/d":                                     errEscape.Error(),
		"mysql://u:x@hunter2?y=z@h/d":                                   errEscape.Error(),
		"mysql://u:hunter2%@h/d":                                        errEscape.Error(),
		"mysql://u%3Ahunter2@h/d":                                       errUser.Error(),
		"mysql://h/shop&password=hunter2":                               errDatabase.Error(),
		"mysql://app@h/shop;password=hunter2":                           errDatabase.Error(),
		"mysql://app@h/shop%26password%3Dhunter2":                       errDatabase.Error(),
		"app@tcp(h)/shop,password=hunter2":                              errDatabase.Error(),
		"app@tcp(h)/shop:hunter2":                                       errDatabase.Error(),
		"app/hunter2@tcp(h)/shop":                                       errUser.Error(),
		"mysql://app%2Fhunter2@h/shop":                                  errUser.Error(),
		"mysql://app/hunter2@tcp(h)/shop":                               errUser.Error(),
		"app&password=hunter2@tcp(h)/shop":                              errUser.Error(),
		"mysql://app;password=hunter2@h/shop":                           errUser.Error(),
		"app@unix(/run/s&password=hunter2)/shop":                        errHost.Error(),
		"app@own(a;password=hunter2)/shop":                              errHost.Error(),
		"mysql://app@/shop?socket=/run/s;password=hunter2":              errHost.Error(),
		"mysql://u@h/hunter2/d":                                         errDatabase.Error(),
		"mysql://u@h/hunter2%zz":                                        errDatabase.Error(),
		"mysql://u@/?socket=%hunter2":                                   errEscape.Error(),
		"mysql://u@h/d?strict=hunter2":                                  errStrict.Error(),
		"mysql://u@h/d?parseTime=hunter2":                               `the value of the parameter "parseTime" is not true or false`,
		"mysql://u@h/d?timeout=hunter2":                                 `the value of the parameter "timeout" is not a duration such as 30s`,
		"mysql://u@h/d?timeTruncate=hunter2":                            `the value of the parameter "timeTruncate" is not a duration such as 30s`,
		"mysql://u@h/d?maxAllowedPacket=hunter2":                        `the value of the parameter "maxAllowedPacket" is not a number of bytes`,
		"mysql://u@h/d?loc=hunter2":                                     `the value of the parameter "loc" is not ` + kinds["loc"],
		"mysql://u@h/d?tls=hunter2":                                     `the value of the parameter "tls" is not ` + kinds["tls"],
		"mysql://u@h/d?serverPubKey=hunter2":                            `the value of the parameter "serverPubKey" is not ` + kinds["serverPubKey"],
		"mysql://u@h/d?connectionAttributes=%hunter2":                   `the value of the parameter "connectionAttributes" is not ` + kinds["connectionAttributes"],
		"mysql://u@h/d?hunter2=%zz":                                     errVariable.Error(),
		"mysql://u@h/d?hunter2%20=1":                                    errNameOfServer.Error(),
		"mysql://u@h/d?pool_hunter2=%zz":                                errPoolEscape.Error(),
		"mysql://u@h/d?interpolateParams=true&collation=gbk_chinese_ci": errInterpolate.Error(),
	} {
		_, err := dialect{}.Parse(dsn)
		require.EqualError(t, err, want, dsn)
		require.NotContains(t, err.Error(), secret)
	}
}

// A parameter that the driver learns and this table does not know would be
// checked, and passed on, as a variable of the server.
func TestEveryParameterOfTheDriverIsKnown(t *testing.T) {
	c := mysql.NewConfig()
	for name := range kinds {
		value := map[string]string{aBool: "true", aDuration: "1s"}[kinds[name]]
		if value == "" {
			continue
		}
		c, err := mysql.ParseDSN("/?" + name + "=" + value)
		require.NoError(t, err)
		require.Empty(t, c.Params, "%s is no parameter of the driver", name)
	}
	fields := reflect.TypeOf(*c)
	for i := range fields.NumField() {
		f := fields.Field(i)
		if !f.IsExported() || (f.Type.Kind() != reflect.Bool && f.Type.String() != "time.Duration") {
			continue
		}
		name := strings.ToLower(f.Name[:1]) + f.Name[1:]
		require.Contains(t, kinds, name)
	}
}

func TestClaim(t *testing.T) {
	for dsn, want := range map[string]dialects.Claim{
		"mysql://u:p@h/d":                dialects.Surely,
		"MYSQL:u@/d":                     dialects.Surely,
		"u:p@tcp(h:1)/d":                 dialects.Surely,
		"u:p@tcp(h:1)":                   dialects.Surely, // for the error
		"u:p@unix(/s)/d?x=y":             dialects.Surely,
		"tcp(h)/d":                       dialects.Surely,
		"u:p@tcp(h)/d?loc=Europe/Berlin": dialects.Surely, // for the error
		"u@/d":                           dialects.Perhaps,
		"u:p@h:1/d":                      dialects.Perhaps, // for the error
		"u@cloudsql(a:b)/d":              dialects.Perhaps,
		"/d":                             dialects.Perhaps,
		"":                               dialects.NotMine,
		"postgres://u:p@h/d":             dialects.NotMine,
		"postgresql://u:p@tcp(h)/d":      dialects.NotMine,
		"host=/tmp user=u password=x@tcp(h)/ db=d": dialects.NotMine,
		"user=u host=h dbname=d":                   dialects.NotMine,
		"file:u@/x.db":                             dialects.NotMine,
		"file:/tmp/x.db?cache=shared":              dialects.NotMine,
		":memory:":                                 dialects.NotMine,
		"x.db":                                     dialects.NotMine,
		"./data/x.db":                              dialects.NotMine,
		"Driver={MariaDB};Server=h;UID=u;PWD=a@b/c": dialects.NotMine,
		"DSN=x":               dialects.NotMine,
		"sqlserver://u:p@h/d": dialects.NotMine,
	} {
		require.Equal(t, want, dialect{}.Claim(dsn), dsn)
	}
}

const secret = "hunter2"

// shown is everything that printing v, an error or a template, can show.
func shown(v any) string {
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		fmt.Fprintf(&out, verb+"\n", v)
		fmt.Fprintf(&out, verb+"\n", struct{ V any }{v})
	}
	js, err := json.Marshal(v)
	fmt.Fprintln(&out, string(js), err)
	for _, h := range []slog.Handler{slog.NewJSONHandler(&out, nil), slog.NewTextHandler(&out, nil)} {
		slog.New(h).Error("m", "v", v)
	}
	for err, ok := v.(error); ok && err != nil; {
		out.WriteString(err.Error())
		err = errors.Unwrap(err)
		ok = err != nil
	}
	if t, ok := v.(dialects.Template); ok {
		out.WriteString(t.Target())
	}
	return out.String()
}

// passwordPlaces are DSNs, well formed and mistyped, with a place for a password.
var passwordPlaces = []string{
	"mysql://u:%s@h:1/d?parseTime=true", "mysql://u:%s@h", "mysql://u:%s@/d?socket=/s", "mysql://u:%s@[::1]/d",
	"u:%s@tcp(h:1)/d?loc=UTC", "u:%s@/d", "u:%s@unix(/s)/d", "mysql:u:%s@tcp(h)/d", "mysql://u:%s@tcp(h)/d",
	"u:%s@tcp(h:1)", "u:%s@h:1/d", "u:%s@tcp(h:1/d", "u:%stcp(h)/d", "u:%s@tcp(h)/d?loc=A/B", "u:%s@/d?loc=A/B",
	"mysql://u:%s/d", "mysql://u:%s", "mysql://u:%s@h/d?timeout=x", "mysql://u:%s@h/d/e", "mysql://u:%s@h:x/d", "mysql://u:%s@u:@h/d",
	"mysql://h/shop&password=%s", "mysql://app@h/shop;password=%s", "app@tcp(h)/shop,password=%s", "mysql://app&password=%s@h/d",
	"app;password=%s@tcp(h)/shop", "app/%s@tcp(h)/shop", "mysql://app@/shop?socket=/s&password=%s", "app@unix(/s;password=%s)/d",
	"u:%s@tcp(h1:1,h2:2)/d", "mysql://u:%s@h1:1,h2/d", "mysql://u@h1,h2;password=%s/d", "mysql://u@h/d?target_session_attrs=%s",
}

func FuzzParseDSN(f *testing.F) {
	for place := range passwordPlaces {
		for _, around := range []string{"", "@", "/", "?", "#", ":", "%", "%2", "=", "&", ",", "(", ")", "tcp(", ")/", "@x(", "@h/", "pool_x=", "\x00", " ", "é"} {
			f.Add(uint8(place), around, "", uint8(0))
			f.Add(uint8(place), "", around, uint8(1))
			f.Add(uint8(place), around, around, uint8(2))
		}
	}
	f.Fuzz(func(t *testing.T, place uint8, before, after string, encoding uint8) {
		start, rest, _ := strings.Cut(passwordPlaces[int(place)%len(passwordPlaces)], "%s")
		password := before + secret + after
		switch encoding % 3 {
		case 1:
			password = url.PathEscape(password)
		case 2:
			password = url.QueryEscape(password)
		}
		if strings.Contains(password, "@") && !strings.Contains(rest, "@") {
			return // "u:@x/d" is a well-formed DSN of host x; nobody can know better
		}
		tmpl, err := dialect{}.Parse(start + password + rest)
		if err != nil {
			require.NotContains(t, shown(err), secret)
			return
		}
		require.NotContains(t, shown(tmpl), secret)
		own := tmpl.(*template)
		require.NotContains(t, shown(newSession(link{}, own.servers[0].killer, own)), secret)
	})
}
