package postgres

import (
	"context"
	"encoding/pem"
	"errors"
	"io"
	"net"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/hosts"
	"github.com/pooldriver/pooldriver/internal/testing/dialtest"
)

// What servers of version 14 and later report, and older ones answer.
var (
	isPrimary = map[string]string{"in_hot_standby": "off", "default_transaction_read_only": "off"}
	isFrozen  = map[string]string{"in_hot_standby": "off", "default_transaction_read_only": "on"}
	isStandby = map[string]string{"in_hot_standby": "on", "default_transaction_read_only": "off"}
)

// becomes makes a server say something else of itself, to who connects and to who
// asks.
func (s *server) becomes(reports map[string]string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reports = reports
	s.answer = [2]string{"f", reports["default_transaction_read_only"]}
	if reports["in_hot_standby"] == "on" {
		s.answer[0] = "t"
	}
}

func (s *server) refuse(code, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refuses = &pgproto3.ErrorResponse{Severity: "FATAL", Code: code, Message: message}
}

// asked returns how many logins and questions there were since the last call.
func (s *server) asked() (logins, questions int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	logins, questions = len(s.startups), len(s.queries)
	s.startups, s.queries = nil, nil
	return logins, questions
}

func newServers(t *testing.T, reports ...map[string]string) (servers []*server, list string) {
	t.Helper()
	var addrs []string
	for _, r := range reports {
		s := newServer(t)
		s.letGo()
		s.becomes(r)
		servers = append(servers, s)
		addrs = append(addrs, s.addr)
	}
	return servers, strings.Join(addrs, ",")
}

func parseList(t *testing.T, list, params string) *template {
	t.Helper()
	tmpl, err := parse("postgres://u:" + secret + "@" + list + "/d?sslmode=disable&" + params)
	require.NoError(t, err)
	return tmpl
}

// deadAddr is one where nobody listens.
func deadAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, l.Close())
	return l.Addr().String()
}

func TestTheWordsOfTargetSessionAttrsAreUnderstood(t *testing.T) {
	for _, role := range []hosts.Role{hosts.Any, hosts.ReadWrite, hosts.ReadOnly, hosts.Primary, hosts.Standby, hosts.PreferStandby} {
		for _, dsn := range []string{"postgres://u@h1,h2/d?target_session_attrs=", "host=h1,h2 target_session_attrs="} {
			tmpl, err := parse(dsn + role.String())
			require.NoError(t, err)
			require.Equal(t, role, tmpl.role)
			require.Equal(t, role != hosts.Any, tmpl.Traits().RoleMatters)
		}
	}
	t.Setenv("PGTARGETSESSIONATTRS", "standby")
	tmpl, err := parse("postgres://u@h/d")
	require.NoError(t, err)
	require.Equal(t, hosts.Standby, tmpl.role)
}

func TestEachHostKeepsItsPortAndItsWayWithAndWithoutTLS(t *testing.T) {
	for _, dsn := range []string{
		"postgres://u@h1:1,h2,/d?sslmode=prefer&host=h1,h2,%2Frun&port=1,5432,7",
		"host=h1,h2,/run port=1,,7 user=u dbname=d sslmode=prefer",
	} {
		tmpl, err := parse(dsn)
		require.NoError(t, err, dsn)
		require.Equal(t, []string{"h1:1", "h2:5432", "/run:7"}, tmpl.addresses)
		require.Equal(t, "postgres u@h1:1/d (+2 more)", tmpl.Target())
		for i, want := range []struct {
			host string
			port uint16
			tls  []bool
		}{{"h1", 1, []bool{true, false}}, {"h2", 5432, []bool{true, false}}, {"/run", 7, []bool{false}}} {
			config, err := tmpl.configFor(tmpl.addresses[i], nil)
			require.NoError(t, err)
			require.Equal(t, want.host, config.Host)
			var tls []bool
			for _, a := range attempts(config) {
				require.Equal(t, want.host, a.Host)
				require.Equal(t, want.port, a.Port)
				tls = append(tls, a.TLSConfig != nil)
			}
			require.Equal(t, want.tls, tls)
		}
	}
	tmpl, err := parse("postgres://u@h1,h2/d?sslmode=verify-full")
	require.NoError(t, err)
	config, err := tmpl.configFor("h2:5432", nil)
	require.NoError(t, err)
	require.Equal(t, "h2", config.TLSConfig.ServerName)
}

func TestAServerOfTheRoleIsFound(t *testing.T) {
	for _, c := range []struct {
		attrs   string
		servers []map[string]string
		want    int
		logins  []int
	}{
		{"any", []map[string]string{isStandby, isPrimary}, 0, []int{1, 0}},
		{"read-write", []map[string]string{isStandby, isFrozen, isPrimary}, 2, []int{1, 1, 1}},
		{"read-only", []map[string]string{isPrimary, isFrozen}, 1, []int{1, 1}},
		{"primary", []map[string]string{isStandby, isFrozen}, 1, []int{1, 1}},
		{"standby", []map[string]string{isPrimary, isFrozen, isStandby}, 2, []int{1, 1, 1}},
		{"prefer-standby", []map[string]string{isPrimary, isStandby}, 1, []int{1, 1}},
		{"prefer-standby", []map[string]string{isPrimary, isFrozen}, 0, []int{2, 1}}, // one connection at a time
	} {
		t.Run(c.attrs, func(t *testing.T) {
			servers, list := newServers(t, c.servers...)
			tmpl := parseList(t, list, "target_session_attrs="+c.attrs)
			s, err := tmpl.Dial(t.Context(), nil)
			require.NoError(t, err)
			host, passed := s.(dialects.Hosted).Host()
			require.Equal(t, servers[c.want].addr, host)
			require.Equal(t, c.want > 0 && c.attrs != "prefer-standby", passed != "")
			for i, srv := range servers {
				logins, questions := srv.asked()
				require.Equal(t, c.logins[i], logins, i)
				require.Zero(t, questions, "they say it unasked")
			}
			require.NoError(t, s.(dialects.RoleChecker).CheckRole(t.Context()))
			require.NoError(t, s.Close(t.Context()))
		})
	}
}

func TestAnOlderServerIsAsked(t *testing.T) {
	servers, list := newServers(t, nil, nil)
	servers[0].answer, servers[1].answer = [2]string{"t", "off"}, [2]string{"f", "off"}
	s, err := parseList(t, list, "target_session_attrs=read-write").Dial(t.Context(), nil)
	require.NoError(t, err)
	host, _ := s.(dialects.Hosted).Host()
	require.Equal(t, servers[1].addr, host)
	servers[1].mu.Lock()
	servers[1].answer[1] = "on"
	servers[1].mu.Unlock()
	require.ErrorIs(t, s.(dialects.RoleChecker).CheckRole(t.Context()), dialects.ErrWrongRole)
	require.NoError(t, s.Close(t.Context()))

	s, err = parseList(t, servers[0].addr, "").Dial(t.Context(), nil)
	require.NoError(t, err)
	servers[0].asked()
	require.NoError(t, s.(dialects.RoleChecker).CheckRole(t.Context()))
	_, questions := servers[0].asked()
	require.Zero(t, questions, "what it was is not known")
	require.NoError(t, s.Close(t.Context()))
}

func TestAServerThatHasLostItsRoleIsFoundOut(t *testing.T) {
	servers, list := newServers(t, isPrimary)
	for _, params := range []string{"", "target_session_attrs=read-write"} {
		servers[0].becomes(isPrimary)
		s, err := parseList(t, list, params).Dial(t.Context(), nil)
		require.NoError(t, err)
		checker := s.(dialects.RoleChecker)
		require.NoError(t, checker.CheckRole(t.Context()))
		servers[0].becomes(isStandby)
		require.ErrorIs(t, checker.CheckRole(t.Context()), dialects.ErrWrongRole)
		require.NoError(t, s.Close(t.Context()))
		require.Error(t, checker.CheckRole(t.Context()), "nobody answers")
		require.NotErrorIs(t, checker.CheckRole(t.Context()), dialects.ErrWrongRole)
	}
}

func TestTheErrorOfAWalkNamesEachHostAndItsReason(t *testing.T) {
	servers, list := newServers(t, isStandby, isPrimary)
	servers[1].refuse("53300", "sorry, too many clients already")
	dead := deadAddr(t)
	_, err := parseList(t, dead+","+list, "target_session_attrs=read-write").Dial(t.Context(), nil)
	require.ErrorIs(t, err, dialects.ErrWrongRole)
	var refusal *net.OpError
	require.ErrorAs(t, err, &refusal)
	var server *pgconn.PgError
	require.ErrorAs(t, err, &server)
	require.Equal(t, "53300", server.Code)
	for _, want := range []string{"none of 3 servers", dead + ": ", "connection refused", servers[0].addr + ": the server is a standby", servers[1].addr + ": ", "too many clients"} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, err.Error(), "\n")
	requireSafe(t, err)

	_, err = parseList(t, servers[0].addr, "target_session_attrs=read-write").Dial(t.Context(), nil)
	require.EqualError(t, err, "the server is a standby, and target_session_attrs=read-write asks for another")
}

func TestAWrongPasswordIsNotTriedOnTheNextHost(t *testing.T) {
	for code, goesOn := range map[string]bool{"28P01": false, "28000": true, "57P03": true, "3D000": true} {
		servers, list := newServers(t, isPrimary, isPrimary)
		servers[0].refuse(code, "no")
		s, err := parseList(t, list, "").Dial(t.Context(), nil)
		logins, _ := servers[1].asked()
		if goesOn {
			require.NoError(t, err, code)
			require.NoError(t, s.Close(t.Context()))
			require.Equal(t, 1, logins)
			continue
		}
		require.Equal(t, dialects.AuthFailed, dialect{}.Diagnose(err))
		require.Zero(t, logins)
	}
}

func TestAnAuthenticationErrorIsDiagnosedBehindOthers(t *testing.T) {
	servers, list := newServers(t, isPrimary, isPrimary)
	servers[0].refuse("57P03", "the database system is starting up")
	servers[1].refuse("28P01", "no")
	_, err := parseList(t, list, "").Dial(t.Context(), nil)
	require.Equal(t, dialects.AuthFailed, dialect{}.Diagnose(err))
}

func TestAHostThatAcceptsAndSaysNothingCostsItsShare(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // its connections wait to be accepted
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	servers, list := newServers(t, isPrimary)
	tmpl := parseList(t, l.Addr().String()+","+list, "target_session_attrs=primary")
	var begin time.Time
	s, limit := dialtest.Within(t, tmpl, 3*time.Second, func() { begin = time.Now() })
	require.GreaterOrEqual(t, time.Since(begin), limit/2)
	host, passed := s.(dialects.Hosted).Host()
	require.Equal(t, servers[0].addr, host)
	require.Contains(t, passed, l.Addr().String())
	require.NoError(t, s.Close(t.Context()))
}

func TestEveryAddressOfANameIsAskedAnew(t *testing.T) {
	servers, _ := newServers(t, isStandby, isPrimary)
	tmpl := parseList(t, "db.example:5432", "target_session_attrs=read-write")
	dials, lookups := tmpl.config.DialFunc, 0
	tmpl.config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		i := map[string]int{"192.0.2.1:5432": 0, "192.0.2.2:5432": 1}[address]
		return dials(ctx, network, servers[i].addr)
	}
	tmpl.config.LookupFunc = func(_ context.Context, name string) ([]string, error) {
		require.Equal(t, "db.example", name)
		if lookups++; lookups == 3 {
			return nil, errors.New("no such host")
		}
		return []string{"192.0.2.1", "192.0.2.2"}, nil
	}
	for range 2 {
		s, err := tmpl.Dial(t.Context(), nil)
		require.NoError(t, err)
		require.Equal(t, servers[1].addr, s.(*session).wire.RemoteAddr().String())
		host, _ := s.(dialects.Hosted).Host()
		require.Empty(t, host, "the DSN names one host")
		require.NoError(t, s.Close(t.Context()))
		for _, srv := range servers {
			logins, _ := srv.asked()
			require.Equal(t, 1, logins)
		}
	}
	_, err := tmpl.Dial(t.Context(), nil)
	require.ErrorContains(t, err, "no such host")
	require.Equal(t, 3, lookups)
}

func TestAHostWithoutTLSIsReachedWithoutItBeforeTheNextOne(t *testing.T) {
	servers, list := newServers(t, isPrimary, isPrimary) // who asks for TLS is hung up on
	tmpl, err := parse("postgres://u:" + secret + "@" + deadAddr(t) + "," + list + "/d?sslmode=prefer&target_session_attrs=primary")
	require.NoError(t, err)
	s, err := tmpl.Dial(t.Context(), nil)
	require.NoError(t, err)
	host, _ := s.(dialects.Hosted).Host()
	require.Equal(t, servers[0].addr, host)
	require.NoError(t, s.Close(t.Context()))
}

func TestAWrappedConnectionKnowsWhenItsServerStopsTakingWrites(t *testing.T) {
	servers, list := newServers(t, isPrimary)
	config := parseList(t, list, "").config.Copy()
	w, err := dialect{}.Wrap(stdlib.GetConnector(*config))
	require.NoError(t, err)
	require.False(t, w.Traits().RoleMatters)
	s, err := w.Dial(t.Context(), nil)
	require.NoError(t, err)
	require.NoError(t, s.(dialects.RoleChecker).CheckRole(t.Context()))
	servers[0].becomes(isFrozen)
	require.ErrorIs(t, s.(dialects.RoleChecker).CheckRole(t.Context()), dialects.ErrWrongRole)
	require.NoError(t, s.Close(t.Context()))
}

func TestAServerThatCannotBeReachedIsToldFromASlowOne(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // its connections wait to be accepted
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	tmpl := parseList(t, l.Addr().String(), "")
	dials := tmpl.config.DialFunc
	for _, reachable := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		tmpl.config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
			if !reachable {
				cancel()
				return nil, ctx.Err()
			}
			defer time.AfterFunc(200*time.Millisecond, cancel) // when the caller has noted the connection
			return dials(ctx, network, address)
		}
		_, o := tmpl.dialHost(ctx, tmpl.addresses[0], 0, nil)
		cancel()
		require.Error(t, o.Err)
		require.False(t, o.Answered)
		require.Equal(t, !reachable, o.Unreachable)
	}
}

// A program may connect with the config of a connection, which it gets by sql.Conn.Raw.
func TestWhatConnectsLaterWithTheSameConfigIsNotKept(t *testing.T) {
	var way reach
	build := way.keeping(func(in io.Reader, out io.Writer) *pgproto3.Frontend { return pgproto3.NewFrontend(in, out) })
	require.NotNil(t, build(nil, nil))
	require.Len(t, way.frontends, 1)
	way.end()
	var both sync.WaitGroup // the race detector looks on
	for range 2 {
		both.Go(func() { build(nil, nil) })
	}
	both.Wait()
	require.Empty(t, way.frontends)
}

// TestEachDialReadsTheFilesOfTheDSN: a certificate or a password that was replaced is used by
// the next connection.
func TestEachDialReadsTheFilesOfTheDSN(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "pgpass")
	write := func(password string) {
		require.NoError(t, os.WriteFile(file, []byte("h:5432:d:u:"+password+"\n"), 0o600))
	}
	write("one")
	tmpl, err := parse("host=h user=u dbname=d sslmode=disable passfile=" + file)
	require.NoError(t, err)
	for _, password := range []string{"one", "two"} {
		write(password)
		config, err := tmpl.configFor("h:5432", nil)
		require.NoError(t, err)
		require.Equal(t, password, config.Password)
	}

	root := filepath.Join(t.TempDir(), "ca.crt")
	server := httptest.NewTLSServer(nil)
	defer server.Close()
	certificate := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
	require.NoError(t, os.WriteFile(root, certificate, 0o600))
	tmpl, err = parse("host=h user=u password=p dbname=d sslmode=verify-full sslrootcert=" + root)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(root, []byte("half"), 0o600))
	_, err = tmpl.configFor("h:5432", nil)
	require.Error(t, err, "it is being replaced")
	require.NoError(t, os.WriteFile(root, certificate, 0o600))
	config, err := tmpl.configFor("h:5432", nil)
	require.NoError(t, err)
	require.NotSame(t, tmpl.config.TLSConfig.RootCAs, config.TLSConfig.RootCAs)
}
