package behaviour

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/internal/testing/fakedb"
)

type dialFunc = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialled opens dsn with a Dial of its own, and returns the error of its first use.
func dialled(t *testing.T, dsn string, dial dialFunc) error {
	t.Helper()
	db := sql.OpenDB(pooldriver.New(dsn, dialBy(dial)))
	defer db.Close()
	err := db.PingContext(t.Context())
	require.Error(t, err)
	return err
}

func dialBy(dial dialFunc) pooldriver.Option {
	return func(c *pooldriver.Config) {
		c.Dial, c.Logger = dial, slog.New(slog.DiscardHandler)
	}
}

var errNoRoute = errors.New("no route")

func TestDialIsAskedForTheServerAsTheDSNHasIt(t *testing.T) {
	for _, test := range []struct {
		dsn  string
		want []string
	}{
		{"postgres://app@db.invalid/shop?sslmode=disable", []string{"tcp db.invalid:5432"}},
		{"postgres://app@db.invalid:6000/shop?sslmode=prefer", []string{"tcp db.invalid:6000", "tcp db.invalid:6000"}},
		{"postgres://app@one.invalid,two.invalid/shop?sslmode=disable", []string{"tcp one.invalid:5432", "tcp two.invalid:5432"}},
		{"postgres://app@one.invalid,two.invalid/shop?sslmode=disable&target_session_attrs=read-write", []string{"tcp one.invalid:5432", "tcp two.invalid:5432"}},
		{"host=/run/postgresql user=app dbname=shop", []string{"unix /run/postgresql/.s.PGSQL.5432"}},
		{"mysql://app@db.invalid/shop", []string{"tcp db.invalid:3306"}},
		{"mysql://app@one.invalid,two.invalid:3307/shop?target_session_attrs=primary", []string{"tcp one.invalid:3306", "tcp two.invalid:3307"}},
		{"app@unix(/run/mysqld.sock)/shop", []string{"unix /run/mysqld.sock"}},
		{"mysql:app@cloudsql(project:region:instance)/shop", []string{"cloudsql project:region:instance"}},
	} {
		t.Run(test.dsn, func(t *testing.T) {
			var got []string
			err := dialled(t, test.dsn, func(ctx context.Context, network, addr string) (net.Conn, error) {
				deadline, ok := ctx.Deadline()
				require.True(t, ok)
				require.LessOrEqual(t, time.Until(deadline), 10*time.Second, "pool_connect_timeout")
				got = append(got, network+" "+addr)
				return nil, errNoRoute
			})
			require.ErrorIs(t, err, errNoRoute)
			require.Equal(t, test.want, got)
		})
	}
}

func TestWhatDialDoesWrongIsAnErrorThatNamesTheTarget(t *testing.T) {
	ways := map[string]struct {
		dial dialFunc
		want string
	}{
		"error":        {func(context.Context, string, string) (net.Conn, error) { return nil, errNoRoute }, "Config.Dial: no route"},
		"nothing":      {func(context.Context, string, string) (net.Conn, error) { return nil, nil }, "Config.Dial has returned neither"},
		"nil pointer":  {func(context.Context, string, string) (net.Conn, error) { return (*net.TCPConn)(nil), nil }, "Config.Dial has returned neither"},
		"panic":        {func(context.Context, string, string) (net.Conn, error) { panic("no more") }, "Config.Dial panicked: string: no more"},
		"no return":    {func(context.Context, string, string) (net.Conn, error) { runtime.Goexit(); return nil, nil }, "Config.Dial called runtime.Goexit"},
		"with secret":  {func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("proxy: " + secret) }, "proxy: xxxxx"},
		"panic secret": {func(context.Context, string, string) (net.Conn, error) { panic(errors.New("proxy: " + secret)) }, "proxy: xxxxx"},
	}
	for name, way := range ways {
		for dsn, target := range map[string]string{
			"postgres://app:" + secret + "@db.invalid/shop?sslmode=disable":                "connecting to postgres app@db.invalid:5432/shop: ",
			"postgres://app:" + secret + "@one.invalid,two.invalid/shop?sslmode=disable":   "connecting to postgres app@one.invalid:5432/shop (+1 more): ",
			"mysql://app:" + secret + "@db.invalid/shop":                                   "connecting to mysql app@db.invalid:3306/shop: ",
			"mariadb://app:" + secret + "@one.invalid,two.invalid:3307/shop?tls=preferred": "connecting to mysql app@one.invalid:3306/shop (+1 more): ",
		} {
			t.Run(name+" "+target, func(t *testing.T) {
				err := dialled(t, dsn, way.dial)
				require.ErrorContains(t, err, "pooldriver: "+target)
				require.ErrorContains(t, err, way.want)
				own, ok := errors.AsType[*pooldriver.ConnectError](err)
				require.True(t, ok)
				require.Contains(t, own.Hosts[0], ".invalid:")
				require.Contains(t, target, own.Target)
				require.ErrorContains(t, own.Err, way.want)
				for _, e := range chain(err) {
					requireNoSecret(t, name, e)
				}
			})
		}
	}
}

func TestWhoCannotDialSaysSo(t *testing.T) {
	never := func(context.Context, string, string) (net.Conn, error) { panic("not used") }
	server := fakedb.NewServer()
	inner := server.Connector(fakedb.Variant{Name: "everything", Features: fakedb.All})
	for name, connector := range map[string]*pooldriver.Connector{
		"sqlite":  pooldriver.New(":memory:", dialBy(never)),
		"generic": pooldriver.Wrap(inner, dialBy(never)),
	} {
		db := sql.OpenDB(connector)
		require.ErrorContains(t, db.PingContext(t.Context()), "pooldriver: Config.Dial cannot be used with this "+name+" connection")
		require.NoError(t, db.Close())
	}
	_, err := pooldriver.Open(":memory:", dialBy(never))
	require.ErrorContains(t, err, "Config.Dial cannot be used")
}

// closing tells when it was closed.
type closing struct {
	net.Conn
	closed chan struct{}
}

func (c closing) Close() error {
	close(c.closed)
	return c.Conn.Close()
}

func TestADialThatIgnoresItsContextIsGivenUpAndItsConnectionClosed(t *testing.T) {
	for dsn, want := range map[string]string{
		"postgres://app@db.invalid/shop?sslmode=disable&": "dial error: timeout", // pgx says so of every error
		"mysql://app@db.invalid/shop?":                    "Config.Dial does not return, although its context has ended",
	} {
		synctest.Test(t, func(t *testing.T) {
			here, there := net.Pipe()
			defer there.Close()
			late := closing{here, make(chan struct{})}
			returns := make(chan struct{})
			began := time.Now()
			err := dialled(t, dsn+"pool_connect_timeout=3s", func(context.Context, string, string) (net.Conn, error) {
				<-returns
				return late, nil
			})
			require.ErrorContains(t, err, want)
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.Less(t, time.Since(began), 4*time.Second)
			close(returns)
			<-late.closed
		})
	}
}
