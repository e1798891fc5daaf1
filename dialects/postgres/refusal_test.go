package postgres

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/dialtest"
)

// requireAllSafe looks at everything below an error, too.
func requireAllSafe(t *testing.T, err error) {
	t.Helper()
	requireSafe(t, err)
	switch e := err.(type) {
	case interface{ Unwrap() error }:
		if below := e.Unwrap(); below != nil {
			requireAllSafe(t, below)
		}
	case interface{ Unwrap() []error }:
		for _, below := range e.Unwrap() {
			requireAllSafe(t, below)
		}
	}
}

func TestThePasswordInTheAnswerToTheRoleQuestionIsStruckOut(t *testing.T) {
	servers, list := newServers(t, nil)
	servers[0].fails = &pgproto3.ErrorResponse{Severity: "ERROR", Code: "08P01", Message: "proxy: no way on with " + secret}
	for _, more := range []string{"", "," + deadAddr(t)} {
		_, err := parseList(t, list+more, "target_session_attrs=primary").Dial(t.Context(), nil)
		require.ErrorContains(t, err, "no way on with xxxxx")
		requireAllSafe(t, err)
	}
}

func TestThePasswordInAnyFieldOfAServersErrorIsStruckOut(t *testing.T) {
	for _, refusal := range []pgproto3.ErrorResponse{{Detail: secret}, {Hint: "try " + secret}, {Where: secret}, {Routine: secret}, {InternalQuery: secret}} {
		servers, list := newServers(t, isPrimary)
		refusal.Severity, refusal.Code, refusal.Message = "FATAL", "28P01", "no"
		servers[0].refuses = &refusal
		for _, more := range []string{"", "," + deadAddr(t)} {
			_, err := parseList(t, list+more, "").Dial(t.Context(), nil)
			require.Equal(t, dialects.AuthFailed, dialect{}.Diagnose(err))
			requireAllSafe(t, err)
		}
	}
}

func TestOfSeveralErrorsWithThePasswordEachCodeRemains(t *testing.T) {
	err := dialError("t", secret, errors.Join(&pgconn.PgError{Code: "57P03", Detail: secret}, &pgconn.PgError{Code: "28P01"}))
	requireAllSafe(t, err)
	require.Len(t, serverErrors(err), 2)
}

// TestAPasswordThatLDAPRefusesIsTriedOnOneServer: LDAP, PAM and RADIUS say 28000
// where PostgreSQL itself says 28P01.
func TestAPasswordThatLDAPRefusesIsTriedOnOneServer(t *testing.T) {
	for _, c := range []struct {
		asks    bool
		routine string
		goesOn  bool
	}{
		{true, "auth_failed", false},
		{true, "", false},                    // a proxy
		{true, "ClientAuthentication", true}, // by pg_hba.conf
		{false, "ClientAuthentication", true},
		{false, "auth_failed", true}, // peer, ident, a certificate
	} {
		servers, list := newServers(t, isPrimary, isPrimary)
		servers[0].asks = c.asks
		servers[0].refuses = &pgproto3.ErrorResponse{Severity: "FATAL", Code: "28000", Message: "no", Routine: c.routine}
		s, err := parseList(t, list, "").Dial(t.Context(), nil)
		logins, _ := servers[1].asked()
		if c.goesOn {
			require.NoError(t, err)
			require.NoError(t, s.Close(t.Context()))
			require.Equal(t, 1, logins)
			continue
		}
		require.Equal(t, dialects.AuthFailed, dialect{}.Diagnose(err))
		require.Zero(t, logins)
	}
}

func TestARefusedCredentialIsDiagnosedInEveryBranch(t *testing.T) {
	for _, first := range []string{"57P03", "53300"} {
		servers, list := newServers(t, isPrimary, isPrimary)
		servers[0].refuse(first, "not now")
		servers[1].refuse("28000", "no") // which is not final
		_, err := parseList(t, list, "").Dial(t.Context(), nil)
		require.NotZero(t, dialect{}.Diagnose(err)&dialects.AuthFailed, first)
	}
}

func TestTheSecondAddressOfAnOnlyNameIsReachedWhereTheFirstIsSilent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // its connections wait to be accepted
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	servers, _ := newServers(t, isPrimary)
	tmpl := parseList(t, "db.example:5432", "")
	dials := tmpl.config.DialFunc
	tmpl.config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		to := map[string]string{"192.0.2.1:5432": l.Addr().String(), "192.0.2.2:5432": servers[0].addr}[address]
		return dials(ctx, network, to)
	}
	lookups := 0
	tmpl.config.LookupFunc = func(context.Context, string) ([]string, error) {
		lookups++
		return []string{"192.0.2.1", "192.0.2.2"}, nil
	}
	s, _ := dialtest.Within(t, tmpl, time.Second, func() { lookups = 0 })
	require.Equal(t, 1, lookups)
	require.NoError(t, s.Close(t.Context()))
}

func TestAHostThatIsMissingInAListIsRefused(t *testing.T) {
	for _, dsn := range []string{
		"postgres://u:" + secret + "@db1,,db2/d", "postgres://u:" + secret + "@,db2/d", "postgres://u:" + secret + "@db1:1,:2/d",
		"postgres://u:" + secret + "@h/d?host=a,,b", "postgres:///d?sslmode=disable&host=a%2C", "postgres:host=db1,,db2 password=" + secret,
		"user=u host = 'a,,b' password=" + secret, "host=a,",
	} {
		_, err := parse(dsn)
		require.Equal(t, errEmptyHost, err, dsn)
	}
	for _, dsn := range []string{
		"postgres://u@/d", "postgres:///d", "postgres://u@:5433/d", "host= user=u", "host='' user=u", "user=u dbname=d", "host=a,b", "postgres://u:a,,b@h/d",
		"postgres://u@h1:1,h2,/d?host=h1,h2,%2Frun&port=1,5432,7", "host=a hostaddr=,",
	} {
		_, err := parse(dsn)
		require.NotEqual(t, errEmptyHost, err, dsn)
	}
}

func TestAListWithThePasswordTwiceIsRefused(t *testing.T) {
	for _, dsn := range []string{"postgres://app:" + secret + "@db1,app:" + secret + "@db2/d", "postgres://app:" + secret + "@x@db1/d"} {
		_, err := parse(dsn)
		require.ErrorContains(t, err, "@")
		requireAllSafe(t, err)
	}
}
