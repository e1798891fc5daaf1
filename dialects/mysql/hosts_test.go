package mysql

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/hosts"
	"github.com/pooldriver/pooldriver/dialects/internal/myerror"
	"github.com/pooldriver/pooldriver/internal/testing/dialtest"
)

// What servers answer to askSettings and askReady.
var (
	writable = [][]any{{"innodb_read_only", "OFF"}, {"read_only", "OFF"}}
	readOnly = [][]any{{"innodb_read_only", "OFF"}, {"read_only", "ON"}, {"wsrep_on", "OFF"}}
	galera   = [][]any{{"read_only", "OFF"}, {"wsrep_on", "ON"}}
)

// becomes makes a peer say what it is; ready is a node's of Galera.
func (p *peer) becomes(settings [][]any, ready string) {
	p.answers(func(_ *peerSession, q string) reply {
		switch q {
		case askSettings:
			return reply{rows: settings}
		case askReady:
			return reply{rows: [][]any{{"wsrep_ready", ready}}}
		}
		return reply{}
	})
}

func newPeers(t *testing.T, settings ...[][]any) (peers []*peer, list string) {
	t.Helper()
	var addrs []string
	for _, rows := range settings {
		p := newPeer(t)
		p.becomes(rows, "ON")
		peers = append(peers, p)
		addrs = append(addrs, p.l.Addr().String())
	}
	return peers, strings.Join(addrs, ",")
}

func parseList(t *testing.T, list, params string) *template {
	t.Helper()
	tmpl, err := parse("app:" + secret + "@tcp(" + list + ")/app?" + params)
	require.NoError(t, err)
	return tmpl
}

func TestListsOfHostsAreReadInEveryForm(t *testing.T) {
	tcp := func(address string) endpoint { return endpoint{"tcp", address} }
	for dsn, want := range map[string][]endpoint{
		"mysql://u:p@h1:1,h2/d":                {tcp("h1:1"), tcp("h2:3306")},
		"mysql://u:a,b@h1,[::1]:7,h3:3/d":      {tcp("h1:3306"), tcp("[::1]:7"), tcp("h3:3")},
		"mysql://h1,%2Frun%2Fs/d":              {tcp("h1:3306"), {"unix", "/run/s"}},
		"mysql://h1,h1,h2/d":                   {tcp("h1:3306"), tcp("h2:3306")},
		"mysql://h1,h2/d?socket=/s":            {{"unix", "/s"}},
		"mysql://u:p@tcp(h1:1,h2)/d":           {tcp("h1:1"), tcp("h2:3306")},
		"u:p,q@tcp(h1:1,h2:2,[::1]:3)/d":       {tcp("h1:1"), tcp("h2:2"), tcp("[::1]:3")},
		"u:p@tcp(h1,/run/s)/d":                 {tcp("h1:3306"), {"unix", "/run/s"}},
		"u:p@unix(/run/a,/run/b)/d":            {{"unix", "/run/a"}, {"unix", "/run/b"}},
		"u:p@unix(/run/a,b)/d":                 {{"unix", "/run/a,b"}},
		"u:p@cloudsql(project:a,project:b)/d":  {{"cloudsql", "project:a,project:b"}},
		"mysql:u:p@tcp(h1:1,h2:2)/d?a=b,c&d=e": {tcp("h1:1"), tcp("h2:2")},
	} {
		got, err := take(dsn)
		require.NoError(t, err, dsn)
		require.Equal(t, want, got.endpoints(), dsn)
	}
	for dsn, want := range map[string]error{
		"mysql://u:p@h1,/d":                errList,
		"mysql://u:p@,h1/d":                errList,
		"u:p@tcp(h1,,h2)/d":                errList,
		"mysql://u:p@h1,h2:x/d":            errPort,
		"u:p@tcp(h1,h 2)/d":                errHost,
		"mysql://h1,%2Frun%2/d":            errEscape,
		"app,hunter2@tcp(h1,h2)/d":         errUser,
		"app@tcp(h1,h2)/shop,hunter2":      errDatabase,
		"app@tcp(h1,h2;password=x)/d":      errHost,
		"app@tcp(h1,/run/s;password=x)/d":  errHost,
		"u@h/d?target_session_attrs=write": errHost,
	} {
		_, err := parse(dsn)
		require.Equal(t, want, err, dsn)
	}
}

func TestTargetSessionAttrsIsOursAndNotTheDrivers(t *testing.T) {
	for _, role := range []hosts.Role{hosts.Any, hosts.ReadWrite, hosts.ReadOnly, hosts.Primary, hosts.Standby, hosts.PreferStandby} {
		for _, dsn := range []string{"mysql://u@h/d?", "u@tcp(h)/d?"} {
			tmpl, err := parse(dsn + "sql_mode=ANSI&target_session_attrs=" + role.String())
			require.NoError(t, err)
			require.Equal(t, role, tmpl.role)
			require.Equal(t, map[string]string{"sql_mode": "ANSI"}, tmpl.servers[0].config.Params)
			require.Equal(t, role != hosts.Any, tmpl.Traits().RoleMatters)
			require.Equal(t, "mysql u@h:3306/d", tmpl.Target())
		}
	}
	_, err := parse("mysql://u@h/d?target_session_attrs=hunter2")
	require.EqualError(t, err, `the value of the parameter "target_session_attrs" is none of any, read-write, read-only, primary, standby, prefer-standby`)
	tmpl, err := parse("mysql://u@h1,h2,h3/d")
	require.NoError(t, err)
	require.Equal(t, "mysql u@h1:3306/d (+2 more)", tmpl.Target())
	require.True(t, tmpl.Traits().RoleMatters, "a node that is not ready is left")
}

func TestEachServerIsVerifiedByItsOwnName(t *testing.T) {
	tmpl, err := parse("mysql://u@h1,h2/d?tls=true")
	require.NoError(t, err)
	for i, name := range []string{"h1", "h2"} {
		require.Equal(t, name, tmpl.servers[i].config.TLS.ServerName)
		require.Equal(t, name, tmpl.servers[i].killConfig.TLS.ServerName)
	}
}

func TestAServerOfTheRoleIsFound(t *testing.T) {
	for _, c := range []struct {
		attrs    string
		settings [][][]any
		want     int
		logins   []int
	}{
		{"any", [][][]any{readOnly, writable}, 0, []int{1, 0}},
		{"read-write", [][][]any{readOnly, {{"innodb_read_only", "ON"}}, {{"read_only", "NO_LOCK"}}, writable}, 3, []int{1, 1, 1, 1}},
		{"primary", [][][]any{readOnly, {}}, 1, []int{1, 1}},
		{"read-only", [][][]any{writable, readOnly}, 1, []int{1, 1}},
		{"standby", [][][]any{writable, readOnly}, 1, []int{1, 1}},
		{"prefer-standby", [][][]any{writable, readOnly}, 1, []int{1, 1}},
		{"prefer-standby", [][][]any{writable, galera}, 0, []int{2, 1}}, // one connection at a time
	} {
		t.Run(c.attrs, func(t *testing.T) {
			peers, list := newPeers(t, c.settings...)
			tmpl := parseList(t, list, "target_session_attrs="+c.attrs)
			s := peers[0].dial(t, tmpl)
			host, _ := s.Host()
			require.Equal(t, peers[c.want].l.Addr().String(), host)
			for i, p := range peers {
				said := p.said()
				require.Equal(t, c.logins[i], count(said, "login"), i)
				require.Equal(t, c.logins[i], count(said, askSettings), i)
			}
			require.NoError(t, s.CheckRole(t.Context()))
			require.NoError(t, s.Close(t.Context()))
		})
	}
}

func TestANodeThatIsNotReadyIsPassedOverForEveryRole(t *testing.T) {
	for _, attrs := range []string{"", "target_session_attrs=read-write", "target_session_attrs=prefer-standby"} {
		peers, list := newPeers(t, galera, galera)
		peers[0].becomes(galera, "OFF")
		tmpl := parseList(t, list, attrs)
		s := peers[0].dial(t, tmpl)
		host, passed := s.Host()
		require.Equal(t, peers[1].l.Addr().String(), host)
		if attrs == "" {
			require.Equal(t, peers[0].l.Addr().String()+": the server is a cluster's node that is not ready", passed)
		}
		require.NoError(t, s.CheckRole(t.Context()))
		peers[1].becomes(galera, "OFF")
		require.ErrorIs(t, s.CheckRole(t.Context()), dialects.ErrWrongRole)
		require.NoError(t, s.Close(t.Context()))
	}
}

func TestAServerThatIsPartOfNoClusterIsAlwaysReady(t *testing.T) {
	peers, list := newPeers(t, nil)
	// MariaDB has the variable, and the state OFF, also without a cluster.
	peers[0].becomes([][]any{{"read_only", "OFF"}, {"wsrep_on", "OFF"}}, "OFF")
	s := peers[0].dial(t, parseList(t, list, "target_session_attrs=read-write"))
	require.NoError(t, s.CheckRole(t.Context()))
	require.NoError(t, s.Close(t.Context()))
}

func TestOneServerOfAnyKindIsAskedNothing(t *testing.T) {
	peers, list := newPeers(t, readOnly)
	tmpl := parseList(t, list, "target_session_attrs=any")
	s := peers[0].dial(t, tmpl)
	require.NoError(t, s.CheckRole(t.Context()))
	host, _ := s.Host()
	require.Empty(t, host)
	require.Equal(t, []string{"login app/app", askHome}, peers[0].said())
	require.NoError(t, s.Close(t.Context()))
}

func TestAServerThatHasLostItsRoleIsFoundOut(t *testing.T) {
	peers, list := newPeers(t, writable)
	s := peers[0].dial(t, parseList(t, list, "target_session_attrs=read-write"))
	require.NoError(t, s.CheckRole(t.Context()))
	peers[0].becomes(readOnly, "")
	err := s.CheckRole(t.Context())
	require.ErrorIs(t, err, dialects.ErrWrongRole)
	require.EqualError(t, err, "the server is read-only (read_only), and target_session_attrs=read-write asks for another")
	peers[0].answers(func(*peerSession, string) reply { return reply{errno: 1227} })
	require.NotErrorIs(t, s.CheckRole(t.Context()), dialects.ErrWrongRole)
	require.Error(t, s.CheckRole(t.Context()))
	require.NoError(t, s.Close(t.Context()))
}

func TestEachServerHasAStateAtConnectOfItsOwn(t *testing.T) {
	peers, list := newPeers(t, readOnly, writable)
	for i, charset := range []string{"latin1", "utf8mb4"} {
		settings := [][][]any{readOnly, writable}[i]
		peers[i].answers(func(s *peerSession, q string) reply {
			switch q {
			case askSettings:
				return reply{rows: settings}
			case askHome:
				return homeRow(s.id, charset, charset+"_general_ci", charset, "", nil)
			}
			return reply{}
		})
	}
	tmpl := parseList(t, list, "")
	first := peers[0].dial(t, tmpl)
	require.Contains(t, first.home.setup, "latin1")
	require.NoError(t, peers[0].l.Close())
	second := peers[1].dial(t, tmpl)
	require.Contains(t, second.home.setup, "utf8mb4")
	require.NoError(t, first.Close(t.Context()))
	require.NoError(t, second.Close(t.Context()))
}

func TestTheErrorOfAWalkNamesEachServerAndItsReason(t *testing.T) {
	peers, list := newPeers(t, readOnly, writable)
	peers[1].refuses(func(login) uint16 { return myerror.ConnectionLimit })
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	dead := l.Addr().String()
	require.NoError(t, l.Close())
	_, err = parseList(t, dead+","+list, "target_session_attrs=primary").Dial(t.Context(), nil)
	require.ErrorIs(t, err, dialects.ErrWrongRole)
	require.Equal(t, uint16(myerror.ConnectionLimit), errorNumber(err))
	var refusal *net.OpError
	require.ErrorAs(t, err, &refusal)
	for _, want := range []string{"none of 3 servers", dead + ": dial tcp", peers[0].l.Addr().String() + ": the server is read-only (read_only)", "1040"} {
		require.ErrorContains(t, err, want)
	}
	require.NotContains(t, shown(err), secret)
}

func TestAWrongPasswordIsNotTriedOnTheNextServer(t *testing.T) {
	peers, list := newPeers(t, writable, writable)
	peers[0].refuses(func(login) uint16 { return myerror.AccessDenied })
	_, err := parseList(t, list, "").Dial(t.Context(), nil)
	require.Equal(t, dialects.AuthFailed, diagnose(err))
	require.Empty(t, peers[1].said())
}

func TestAServerThatAcceptsAndSaysNothingCostsItsShare(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // its connections wait to be accepted
	require.NoError(t, err)
	defer func() { _ = l.Close() }()
	peers, list := newPeers(t, writable)
	var begin time.Time
	s, limit := dialtest.Within(t, parseList(t, l.Addr().String()+","+list, ""), 3*time.Second, func() { begin = time.Now() })
	require.GreaterOrEqual(t, time.Since(begin), limit/2)
	host, _ := s.(dialects.Hosted).Host()
	require.Equal(t, peers[0].l.Addr().String(), host)
	require.NoError(t, s.Close(t.Context()))
}

func TestEveryAddressOfANameIsAsked(t *testing.T) {
	peers, list := newPeers(t, writable)
	_, port, err := net.SplitHostPort(list)
	require.NoError(t, err)
	tmpl := parseList(t, "localhost:"+port, "target_session_attrs=read-write")
	s := peers[0].dial(t, tmpl)
	require.Equal(t, list, s.wire.RemoteAddr().String(), "and nobody at ::1, if it is one of them")
	require.NoError(t, s.Close(t.Context()))
	_, err = parseList(t, "no-such-host.invalid", "target_session_attrs=read-write").Dial(t.Context(), nil)
	var lookup *net.DNSError
	require.ErrorAs(t, err, &lookup)
}

func TestAStatementIsKilledOnTheServerItRunsOn(t *testing.T) {
	dead := newPeer(t)
	require.NoError(t, dead.l.Close())
	standby := newPeer(t)
	standby.becomes(readOnly, "")
	b := newBusyServer(t)
	b.answers(func(s *peerSession, q string) reply {
		if q == askSettings {
			return reply{rows: writable}
		}
		return b.answerTo(s, q)
	})
	list := dead.l.Addr().String() + "," + standby.l.Addr().String() + "," + b.l.Addr().String()
	s := b.dial(t, parseList(t, list, "target_session_attrs=read-write"))
	b.cancelled(t, s)
	standby.said()
	b.said()
	require.NoError(t, s.Close(t.Context()))
	require.Equal(t, 1, count(b.said(), killLabel))
	require.Empty(t, standby.said())
}

func TestTheKillerGoesToTheAddressOfItsVictim(t *testing.T) {
	a, b := newPeer(t), newPeer(t)
	a.answers(func(s *peerSession, q string) reply {
		if strings.Contains(q, "processlist") { // it lists the killer alone
			return s.peer.processes(s, remote, func(other *peerSession) bool { return other == s })
		}
		return reply{}
	})
	b.answers(a.answer)
	tmpl := a.template(t, "")
	k := tmpl.servers[0].killer
	k.users.Add(1) // it stays while somebody needs it
	for _, p := range []*peer{a, b, b, a} {
		require.NoError(t, k.stop(t.Context(), victim{thread: 1, remote: p.l.Addr().String()}))
	}
	k.leave()
	require.Equal(t, 2, count(a.said(), "login"))
	require.Equal(t, 1, count(b.said(), "login"))
}

func TestARefusalToWriteIsADoubtAndANodeThatIsNotReadyIsLeft(t *testing.T) {
	for _, c := range []struct {
		number  uint16
		message string
		want    dialects.Diagnosis
	}{
		{1792, "Cannot execute statement in a READ ONLY transaction", dialects.RoleDoubt},
		{1290, "The MariaDB server is running with the --read-only option so it cannot execute this statement", dialects.RoleDoubt},
		{1290, "The MySQL server is running with the --super-read-only option so it cannot execute this statement", dialects.RoleDoubt},
		{1290, "The MySQL server is running with the --secure-file-priv option so it cannot execute this statement", 0},
		{1290, "The MySQL server is running with the LOCK_WRITE_GROWTH option so it cannot execute this statement", 0},
		{1836, "Running in read-only mode", dialects.RoleDoubt},
		{1874, "InnoDB is in read only mode.", dialects.RoleDoubt},
		{1047, "WSREP has not yet prepared node for application use", dialects.ServerLeaving},
		{1047, "Unknown command", 0},
		{3032, "The server is currently in offline mode", dialects.ServerLeaving | dialects.SessionEnded},
	} {
		require.Equal(t, c.want, diagnose(&mysql.MySQLError{Number: c.number, Message: c.message}), c.message)
	}
}

func TestAServerThatCannotBeReachedIsToldFromASlowOne(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // its connections wait to be accepted
	require.NoError(t, err)
	tmpl := parseList(t, l.Addr().String(), "")
	unreachable := func(limit time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), limit)
		defer cancel()
		_, o := tmpl.dialHost(ctx, tmpl.servers[0], 0, nil)
		require.Error(t, o.Err)
		require.False(t, o.Answered)
		return o.Unreachable
	}
	for limit := 50 * time.Millisecond; unreachable(limit); limit *= 2 { // the machine stood still before the server was reached
		require.Less(t, limit, 10*time.Second)
	}
	_ = l.Close()
	require.True(t, unreachable(50*time.Millisecond))
}

func TestARefusedCredentialIsDiagnosedInEveryBranch(t *testing.T) {
	full, refused := &mysql.MySQLError{Number: myerror.ConnectionLimit}, &mysql.MySQLError{Number: myerror.AccessDenied}
	require.Equal(t, dialects.ServerFull|dialects.AuthFailed, diagnose(errors.Join(full, fmt.Errorf("login: %w", refused))))
	require.Equal(t, dialects.ServerFull, diagnose(errors.Join(errors.New("no"), full)))
	require.Zero(t, diagnose(errors.New("no")))
}
