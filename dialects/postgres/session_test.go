package postgres

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pooldriver/pooldriver/dialects"
	classifier "github.com/pooldriver/pooldriver/dialects/internal/classify/postgres"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func (s *server) template(t *testing.T, params string) *template {
	t.Helper()
	tmpl, err := parse("postgres://u:" + secret + "@" + s.addr + "/d?sslmode=disable&" + params)
	require.NoError(t, err)
	return tmpl
}

func (s *server) dial(t *testing.T) (dialects.Session, net.Conn) {
	t.Helper()
	session, err := s.template(t, "").Dial(t.Context(), nil)
	require.NoError(t, err)
	return session, <-s.conns
}

func message(t *testing.T, m pgproto3.Message) []byte {
	t.Helper()
	b, err := m.Encode(nil)
	require.NoError(t, err)
	return b
}

func TestEachDialHasItsOwnCopyOfTheTemplate(t *testing.T) {
	srv := newServer(t)
	srv.letGo()
	tmpl := srv.template(t, "application_name=a&pool_max_conns=3")
	for _, cred := range []*dialects.Credential{nil, {User: "other", Password: "x"}, nil} {
		s, err := tmpl.Dial(t.Context(), cred)
		require.NoError(t, err)
		requireSafe(t, s)
		config := s.(*session).pgx.Config()
		config.RuntimeParams["application_name"] = "changed"
		require.NoError(t, s.Close(t.Context()))
	}
	require.Equal(t, "a", tmpl.config.RuntimeParams["application_name"])
	var users []string
	for _, params := range srv.startups {
		users = append(users, params["user"])
		require.Equal(t, "a", params["application_name"])
		require.NotContains(t, params, "pool_max_conns")
	}
	require.Equal(t, []string{"u", "other", "u"}, users)
}

func TestACancelledContextDialsNothingAndIsInTheChain(t *testing.T) {
	srv := newServer(t)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := srv.template(t, "").Dial(ctx, nil)
	require.ErrorIs(t, err, context.Canceled)
	requireSafe(t, err)
	require.Empty(t, srv.conns)
}

func TestTheStatusIsTheServersLastWord(t *testing.T) {
	srv := newServer(t)
	srv.letGo()
	s, _ := srv.dial(t)
	exec := func(query string) error {
		return s.(*session).simple(t.Context(), query)
	}
	require.Equal(t, dialects.TxNone, s.TxStatus())
	require.NoError(t, exec("BEGIN"))
	require.Equal(t, dialects.TxOpen, s.TxStatus())
	_, err := s.Clean(t.Context(), dialects.Stateful)
	require.ErrorContains(t, err, "open")
	require.Error(t, exec("FAIL"))
	require.Equal(t, dialects.TxFailed, s.TxStatus())
	require.NoError(t, s.Rollback(t.Context()))
	require.Equal(t, dialects.TxNone, s.TxStatus())
	require.NoError(t, s.Rollback(t.Context()))

	kept, err := s.Clean(t.Context(), dialects.Stateful)
	require.NoError(t, err)
	require.True(t, kept)
	require.NoError(t, s.Close(t.Context()))
	require.Equal(t, dialects.TxLost, s.TxStatus())
	require.Equal(t, []string{"BEGIN", "FAIL", "ROLLBACK", classifier.Cleaning(dialects.Stateful)}, srv.queries)
}

func TestCleanKeepsStatementsOnlyWhereTheyAreSurelyAsTheyWere(t *testing.T) {
	for effect, want := range map[dialects.Effect]bool{
		dialects.Stateful:                            true,
		dialects.Stateful | dialects.TxControl:       true,
		dialects.Stateful | dialects.Rereads:         true,  // what was prepared since was not kept
		dialects.Clean:                               false, // nobody knows what has run
		dialects.Suspect:                             false,
		dialects.Suspect | dialects.TxControl:        false,
		dialects.Stateful | dialects.ForgetPrepared:  false,
		dialects.Stateful | dialects.NamedPrepared:   false,
		dialects.Stateful | dialects.Suspect:         false,
		dialects.ForgetPrepared:                      false,
		dialects.NamedPrepared | dialects.Suspect:    false,
		dialects.ForgetPrepared | dialects.TxControl: false,
	} {
		srv := newServer(t)
		srv.letGo()
		s, _ := srv.dial(t)
		kept, err := s.Clean(t.Context(), effect)
		require.NoError(t, err)
		require.Equal(t, want, kept, effect.String())
		require.NoError(t, s.Close(t.Context()))
		cleaning, seed, seeds := strings.Cut(srv.queries[0], "; SELECT pg_catalog.setseed(")
		cleaning, plans := strings.CutSuffix(cleaning, "; DISCARD PLANS")
		require.Equal(t, effect&dialects.Rereads != 0, plans, effect.String())
		require.Equal(t, classifier.Cleaning(dialects.Stateful), cleaning)
		require.Equal(t, effect&dialects.Suspect != 0, seeds, "%s: %s", effect, seed)
		if want {
			require.Len(t, srv.queries, 1, effect.String())
		} else {
			require.Equal(t, []string{"deallocate all"}, srv.queries[1:], effect.String())
		}
	}
}

// TestAnewHasPgxKeepNoStatement: the modes of pgx that keep none stay.
func TestAnewHasPgxKeepNoStatement(t *testing.T) {
	const kept, described, describing, exec = pgx.QueryExecModeCacheStatement, pgx.QueryExecModeCacheDescribe, pgx.QueryExecModeDescribeExec, pgx.QueryExecModeExec
	for _, tc := range []struct {
		mode  pgx.QueryExecMode
		cache bool // of descriptions
		want  pgx.QueryExecMode
	}{{kept, true, described}, {kept, false, describing}, {described, true, described}, {describing, true, described}, {exec, true, exec}, {exec, false, exec}} {
		s := &session{mode: tc.mode, described: tc.cache}
		anew := s.Anew([]driver.NamedValue{{Ordinal: 1, Value: kept}, {Ordinal: 2, Value: "a"}, {Ordinal: 3, Value: exec}})
		own := s.unkept(kept)
		require.Equal(t, []driver.NamedValue{{Ordinal: 1, Value: tc.want}, {Ordinal: 2, Value: own}, {Ordinal: 3, Value: "a"}, {Ordinal: 4, Value: exec}}, anew)
	}
	srv := newServer(t)
	srv.letGo()
	opened, _ := srv.dial(t)
	require.Equal(t, []driver.NamedValue{{Ordinal: 1, Value: described}}, opened.(*session).Anew(nil))
	require.NoError(t, opened.Close(t.Context()))
}

func TestTheTimeZoneAloneDecidesHowTextsOfAContextAreRead(t *testing.T) {
	s := &session{}
	for _, name := range append([]string{"app.tenant", "app.timezone"}, dotless...) {
		set := []dialects.ContextSetting{{Name: "app.x", Value: "y"}, {Name: name, Value: "x"}}
		require.NoError(t, s.CheckSettings(set))
		require.Equal(t, name == "timezone", s.Rereads(set), name)
	}
	require.False(t, s.Rereads(nil))
}

func TestPeekTellsALastWordFromGossip(t *testing.T) {
	notice := message(t, &pgproto3.NoticeResponse{Severity: "NOTICE", Message: "m"})
	setting := message(t, &pgproto3.ParameterStatus{Name: "TimeZone", Value: "UTC"})
	event := message(t, &pgproto3.NotificationResponse{PID: 1, Channel: "c", Payload: "p"})
	fatal := message(t, &pgproto3.ErrorResponse{Severity: "FATAL", Code: "57P01", Message: "m"})
	for name, c := range map[string]struct {
		waiting [][]byte
		want    dialects.Liveness
	}{
		"nothing":                  {nil, dialects.Alive},
		"a notice":                 {[][]byte{notice}, dialects.Alive},
		"three that harm nobody":   {[][]byte{notice, setting, event}, dialects.Alive},
		"a last word":              {[][]byte{fatal}, dialects.Dead},
		"a notice and a last word": {[][]byte{notice, fatal}, dialects.Dead},
		"half a notice":            {[][]byte{notice[:8]}, dialects.Unsure},
		"not even a length":        {[][]byte{notice[:3]}, dialects.Unsure},
		"a length below its own":   {[][]byte{{'N', 0, 0, 0, 0}, fatal}, dialects.Unsure},
		"a row":                    {[][]byte{{'D', 0, 0, 0, 4}}, dialects.Unsure},
	} {
		var waiting []byte
		for _, w := range c.waiting {
			waiting = append(waiting, w...)
		}
		require.Equal(t, c.want, listen(waiting), name)
	}
}

func TestPeekSeesWhatTheServerSaysUnasked(t *testing.T) {
	srv := newServer(t)
	srv.letGo()
	s, conn := srv.dial(t)
	require.Equal(t, dialects.Alive, s.Peek())
	_, err := conn.Write(message(t, &pgproto3.ErrorResponse{Severity: "FATAL", Code: "57P01", Message: "m"}))
	require.NoError(t, err)
	require.Eventually(t, func() bool { return s.Peek() == dialects.Dead }, time.Minute, time.Millisecond)
	require.NoError(t, s.Close(t.Context()))
}

func TestPeekIsUnsureOfWhatWasIdleForLong(t *testing.T) {
	srv := newServer(t)
	srv.letGo()
	s, conn := srv.dial(t)
	time.Sleep(time.Millisecond)                               // longer than what is fresh
	if seen := s.Peek(); s.(*session).wire.Idle() < askAfter { // else the machine stood still
		require.Equal(t, dialects.Alive, seen)
	}
	time.Sleep(askAfter)
	require.Equal(t, dialects.Unsure, s.Peek())
	_, err := conn.Write(message(t, &pgproto3.NoticeResponse{Severity: "NOTICE", Message: "m"}))
	require.NoError(t, err)
	require.Equal(t, dialects.Unsure, s.Peek(), "it was there when that was sent")
	require.NoError(t, s.Close(t.Context()))
}

func TestCloseWaitsForTheServerToHangUpAndNoLongerThanItsContext(t *testing.T) {
	srv := newServer(t)
	s, _ := srv.dial(t)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	err := s.Close(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, errNotGone)

	s, _ = srv.dial(t)
	closed := make(chan error, 1)
	go func() { closed <- s.Close(t.Context()) }()
	select {
	case err := <-closed:
		t.Fatalf("Close returned before the server had hung up: %v", err)
	case <-time.After(20 * time.Millisecond):
	}
	srv.letGo()
	require.NoError(t, <-closed)
}

func TestDiagnoseGoesByTheServersCode(t *testing.T) {
	for _, c := range []struct {
		err  error
		want dialects.Diagnosis
	}{
		{nil, 0},
		{errors.New("x"), 0},
		{driver.ErrBadConn, 0},
		{&pgconn.PgError{Code: "28P01"}, dialects.AuthFailed},
		{&pgconn.PgError{Code: "28000"}, dialects.AuthFailed},
		{&pgconn.PgError{Code: "57P01"}, dialects.ServerLeaving},
		{&pgconn.PgError{Code: "57P02"}, dialects.ServerLeaving},
		{&pgconn.PgError{Code: "57P03"}, dialects.ServerLeaving},
		{&pgconn.PgError{Code: "40001"}, dialects.Conflict},
		{&pgconn.PgError{Code: "40P01"}, dialects.Conflict},
		{&pgconn.PgError{Code: "OC000"}, dialects.Conflict},
		{&pgconn.PgError{Code: "53200"}, dialects.Spent},
		{&pgconn.PgError{Code: "53300"}, dialects.ServerFull},
		{&pgconn.PgError{Code: "08P01", Message: "no more connections allowed (max_client_conn)"}, dialects.ServerFull},
		{&pgconn.PgError{Code: "08P01", Message: "invalid message format"}, 0},
		{&pgconn.PgError{Code: "40002"}, 0}, // a constraint was violated
		{&pgconn.PgError{Code: "55P03"}, 0}, // NOWAIT
		{&pgconn.PgError{Code: "57014"}, 0}, // one statement was cancelled
		{&pgconn.PgError{Code: "26000", Message: `prepared statement "stmt_1" does not exist`}, dialects.StaleStatement},
		{&pgconn.PgError{Code: "26000", Routine: "FetchPreparedStatement", Message: "übersetzt"}, dialects.StaleStatement},
		{&pgconn.PgError{Code: "26000", Routine: "exec_stmt_raise", Message: "raised by a program"}, 0},
		{&pgconn.PgError{Code: "26000", Message: "raised by a program"}, 0},
		{&pgconn.PgError{Code: "26000", Message: `prepared statement "nosuch" does not exist`, Where: "PL/pgSQL function p(integer) line 3 at EXECUTE"}, 0},
		{&pgconn.PgError{Code: "0A000", Routine: "RevalidateCachedQuery", Message: "übersetzt"}, dialects.StaleStatement},
		{&pgconn.PgError{Code: "0A000", Message: "cached plan must not change result type"}, dialects.StaleStatement},
		{&pgconn.PgError{Code: "0A000", Routine: "RevalidateCachedQuery", Where: "PL/pgSQL function p(integer) line 3 at SQL statement"}, dialects.PrimaryOnly},
		{&pgconn.PgError{Code: "0A000", Message: "cached plan must not change result type", Where: "SQL function \"f\" statement 1"}, dialects.PrimaryOnly},
		{&pgconn.PgError{Code: "0A000", Message: "not supported"}, dialects.PrimaryOnly},
		{dialError("t", "", &pgconn.PgError{Code: "28P01"}), dialects.AuthFailed},
	} {
		require.Equal(t, c.want, dialect{}.Diagnose(c.err), "%v", c.err)
	}
}

func TestWhatAServerRepeatsOfThePasswordIsStruckOut(t *testing.T) {
	tmpl, err := parse("postgres://u:" + secret + "@127.0.0.1:1/d?sslmode=disable")
	require.NoError(t, err)
	tmpl.config.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		return nil, errors.New("no way in with " + secret)
	}
	_, err = tmpl.Dial(t.Context(), nil)
	require.ErrorContains(t, err, "no way in with xxxxx")
	requireSafe(t, err)

	// What the server's error means for the pool stays.
	config := tmpl.config.Copy()
	config.DialFunc = func(context.Context, string, string) (net.Conn, error) {
		return nil, &pgconn.PgError{Severity: "FATAL", Code: "28P01", Message: secret + " authentication failed"}
	}
	_, err = stdlib.GetConnector(*config).Connect(t.Context())
	err = dialError("t", "", err)
	require.ErrorContains(t, err, "xxxxx authentication failed")
	require.Equal(t, dialects.AuthFailed, dialect{}.Diagnose(err))
	requireSafe(t, err)
	requireSafe(t, errors.Unwrap(err))

	// Below words of somebody else's, too.
	config = tmpl.config.Copy()
	_, err = stdlib.GetConnector(*config).Connect(t.Context())
	err = dialError("t", "", fmt.Errorf("not my fault: %w", err))
	require.ErrorContains(t, err, "not my fault")
	requireSafe(t, err)
	var connectErr *pgconn.ConnectError
	require.False(t, errors.As(err, &connectErr))
}

func TestWrapLeavesOtherDriversAlone(t *testing.T) {
	_, err := dialect{}.Wrap(nil)
	require.ErrorIs(t, err, dialects.ErrNotMine)
	_, err = dialect{}.Wrap(otherConnector{})
	require.ErrorIs(t, err, dialects.ErrNotMine)
}

type otherConnector struct{}

func (otherConnector) Connect(context.Context) (driver.Conn, error) { return nil, errors.New("no") }
func (otherConnector) Driver() driver.Driver                        { return nil }
