package mysql

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	classifier "github.com/pooldriver/pooldriver/dialects/internal/classify/mysql"
	"github.com/pooldriver/pooldriver/dialects/internal/myerror"
)

// The driver keeps status and closed to itself. When this fails, a new version
// of the driver has moved them, and lookInto has to follow.
func TestTheDriverKeepsStatusAndClosedWhereTheyAreRead(t *testing.T) {
	p := newPeer(t)
	s := p.dial(t, p.template(t, ""))
	require.True(t, s.known)
	require.True(t, s.Conn() == s.conn)
	for _, step := range []struct {
		statement string
		want      dialects.TxStatus
	}{
		{"SELECT 1", dialects.TxNone}, {"BEGIN", dialects.TxOpen}, {"COMMIT", dialects.TxNone},
		{"SET autocommit = 0", dialects.TxImplicit}, {"INSERT INTO t VALUES (1)", dialects.TxImplicit},
		{"COMMIT", dialects.TxImplicit}, {"BEGIN", dialects.TxImplicit}, {"ROLLBACK", dialects.TxImplicit},
		{"SET autocommit = 1", dialects.TxNone}, {"INSERT INTO t VALUES (2)", dialects.TxNone},
	} {
		require.NoError(t, execute(t.Context(), s.conn, step.statement))
		require.Equal(t, step.want, s.TxStatus(), step.statement)
	}
	require.Zero(t, testing.AllocsPerRun(100, func() { s.TxStatus() }))
	require.NoError(t, s.conn.Close())
	require.Equal(t, dialects.TxLost, s.TxStatus())
}

func TestAConnectionOfAnotherDriverHasNoStatus(t *testing.T) {
	for _, conn := range []driver.Conn{nil, struct{ driver.Conn }{}, &struct {
		driver.Conn
		status uint16
	}{}} {
		in := lookInto(conn)
		require.False(t, in.known)
		require.Equal(t, dialects.TxUnknown, in.transaction())
		require.False(t, in.autocommit())
	}
}

func TestWhetherPreparedStatementsKeepTypesIsReadFromTheGreeting(t *testing.T) {
	for version, want := range map[string]bool{
		"8.0.36": true, "8.4.3-log": true, "9.1.0": true, "8.0.mysql_aurora.3.05.2": true, "8.0.11-TiDB-v8.5.0": true,
		"5.7.44": false, "5.5.5-10.11.6-MariaDB-1": false, "11.8.6-MariaDB-0+deb13u1 from Debian": false,
		"somebody's": true,
	} {
		require.Equal(t, want, keepsTypes(packet(0, append([]byte{10}, version+"\x00rest"...))), version)
	}
	require.True(t, keepsTypes(nil), "nobody knows")
	p := newPeer(t)
	require.False(t, p.dial(t, p.template(t, "")).Traits().PreparedKeepsTypes)
}

func TestThreadIDIsReadFromTheGreeting(t *testing.T) {
	p := newPeer(t)
	tmpl := p.template(t, "")
	require.EqualValues(t, peerFirstID, p.dial(t, tmpl).thread)
	require.EqualValues(t, peerFirstID+1, p.dial(t, tmpl).thread)

	whole := packet(0, (&peerSession{id: 1 << 31}).greeting(false))
	require.Equal(t, uint64(1<<31), threadID(whole))
	end := strings.IndexByte(string(whole[5:]), 0) + 5 + 1 + 4
	for n := range end {
		require.Zero(t, threadID(whole[:n]))
	}
	require.Equal(t, uint64(1<<31), threadID(whole[:end]))
	require.Zero(t, threadID(packet(0, errorPacket(1040))))
}

func TestEachConnectionIsAskedForItsStateAtConnect(t *testing.T) {
	p := newPeer(t)
	tmpl := p.template(t, "")
	role := "`first`@`%`"
	p.answers(func(s *peerSession, q string) reply {
		if q == askHome {
			return homeRow(s.id, "utf8mb4", "utf8mb4_general_ci", "utf8mb4", "", role)
		}
		return reply{}
	})
	older := p.dial(t, tmpl)
	role = "`second`@`%`"
	newer := p.dial(t, tmpl)
	require.Equal(t, []string{"login app/app", askHome, "login app/app", askHome}, p.said())
	for s, want := range map[*session]string{older: "SET ROLE `first`@`%`", newer: "SET ROLE `second`@`%`"} {
		_, err := s.Clean(t.Context(), dialects.Suspect)
		require.NoError(t, err)
		require.Contains(t, p.said(), want)
	}
}

func TestCleanResetsAndSetsAgainWhatTheDriverSets(t *testing.T) {
	const charsets = "SET NAMES 'utf8mb4' COLLATE 'utf8mb4_general_ci', character_set_results = 'utf8mb4'"
	for _, c := range []struct {
		name, params string
		effect       dialects.Effect
		home         []any // the server's answer; nil: the standard one
		want         []string
	}{
		{name: "plain", effect: dialects.Stateful, want: []string{"reset", charsets}},
		{name: "variables in order", params: "time_zone=%27UTC%27&autocommit=1&sql_mode=ANSI", effect: dialects.Stateful,
			want: []string{"reset", charsets + ", autocommit = 1, sql_mode = ANSI, time_zone = 'UTC'"}},
		{name: "a procedure may change the role", effect: dialects.Suspect, want: []string{"reset", charsets, "SET ROLE NONE", "USE `app`"}},
		{name: "USE", effect: dialects.Stateful | dialects.ForgetPrepared, want: []string{"reset", charsets, "SET ROLE NONE", "USE `app`"}},
		{name: "role of MariaDB, no results' charset", effect: dialects.NamedPrepared, home: []any{"latin1", "latin1_bin", nil, "", "ro`le"},
			want: []string{"reset", "SET NAMES 'latin1' COLLATE 'latin1_bin', character_set_results = NULL", "SET ROLE `ro``le`", "USE `app`"}},
		{name: "roles of MySQL", effect: dialects.Suspect, home: []any{"utf8mb4", "utf8mb4_general_ci", "utf8mb4", "", "`a`@`%`,`b`@`%`"},
			want: []string{"reset", charsets, "SET ROLE `a`@`%`,`b`@`%`", "USE `app`"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPeer(t)
			if c.home != nil {
				p.answers(func(s *peerSession, q string) reply {
					if q == askHome {
						return homeRow(s.id, c.home...)
					}
					return reply{}
				})
			}
			s := p.dial(t, p.template(t, c.params))
			require.NoError(t, execute(t.Context(), s.conn, "SET autocommit = 0"))
			p.said()
			kept, err := s.Clean(t.Context(), c.effect)
			require.NoError(t, err)
			require.False(t, kept)
			require.Equal(t, c.want, p.said())
			require.Equal(t, dialects.TxNone, s.TxStatus(), "the driver knows that autocommit is on again")
			require.NoError(t, s.Ping(t.Context()), "and is in step with the server")
		})
	}
}

func TestCleanRefusesWhereOnlyANewConnectionIsClean(t *testing.T) {
	standard := []any{"utf8mb4", "utf8mb4_general_ci", "utf8mb4", "", nil}
	for _, c := range []struct {
		name, params string
		effect       dialects.Effect
		answer       reply
		reset        []byte
		sends        bool
	}{
		{name: "compression", params: "compress=true", effect: dialects.Stateful, answer: homeRow(peerFirstID, standard...)},
		{name: "init_connect", effect: dialects.Stateful, answer: homeRow(peerFirstID, "utf8mb4", "utf8mb4_bin", "utf8mb4", "SET @a=1", nil)},
		{name: "state not told", effect: dialects.Stateful, answer: reply{errno: 1305}},
		{name: "reset unknown to the server", effect: dialects.Stateful, answer: homeRow(peerFirstID, standard...), reset: packet(1, errorPacket(1047)), sends: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := newPeer(t)
			p.resets(c.reset)
			p.answers(func(_ *peerSession, q string) reply {
				if q == askHome {
					return c.answer
				}
				return reply{}
			})
			s := p.dial(t, p.template(t, c.params))
			p.said()
			_, err := s.Clean(t.Context(), c.effect)
			require.ErrorIs(t, err, dialects.ErrCannotClean)
			require.Equal(t, c.sends, count(p.said(), "reset") == 1)
			require.NoError(t, s.Ping(t.Context()))
		})
	}
}

func TestARefusalToTellTheStateAtConnectIsNotRemembered(t *testing.T) {
	p := newPeer(t)
	p.answers(func(s *peerSession, q string) reply {
		if q == askHome && s.id == peerFirstID {
			return reply{errno: 1047} // a node of Galera that is not ready yet
		}
		return reply{}
	})
	tmpl := p.template(t, "")
	_, err := p.dial(t, tmpl).Clean(t.Context(), dialects.Stateful)
	require.ErrorIs(t, err, dialects.ErrCannotClean)
	_, err = p.dial(t, tmpl).Clean(t.Context(), dialects.Stateful)
	require.NoError(t, err)
}

func TestThereIsNoWayBackFromUSEToNoDatabase(t *testing.T) {
	p := newPeer(t)
	tmpl, err := parse("mysql://app@" + p.l.Addr().String())
	require.NoError(t, err)
	s := p.dial(t, tmpl)
	_, err = s.Clean(t.Context(), dialects.Stateful)
	require.NoError(t, err)
	p.said()
	var database any = "other"
	p.answers(func(_ *peerSession, q string) reply {
		if q == "SELECT DATABASE()" {
			return reply{rows: [][]any{{database}}}
		}
		return reply{}
	})
	for _, effect := range []dialects.Effect{dialects.Stateful | dialects.ForgetPrepared, dialects.Suspect} {
		_, err = s.Clean(t.Context(), effect)
		require.ErrorIs(t, err, dialects.ErrCannotClean)
		require.Equal(t, []string{"SELECT DATABASE()"}, p.said())
	}
	database = nil
	_, err = s.Clean(t.Context(), dialects.Suspect)
	require.NoError(t, err, "it is in none")
}

func TestCleanFailsOnAnAnswerOutOfOrder(t *testing.T) {
	for name, answer := range map[string][]byte{
		"sequence number": packet(2, []byte{0, 0, 0, 2, 0, 0, 0}),
		"empty":           packet(1, nil),
		"too long":        {0, 0, 2, 1},
		"neither":         packet(1, []byte{7}),
	} {
		t.Run(name, func(t *testing.T) {
			p := newPeer(t)
			p.resets(answer)
			s := p.dial(t, p.template(t, ""))
			_, err := s.Clean(t.Context(), dialects.Stateful)
			require.Error(t, err)
			require.NotErrorIs(t, err, dialects.ErrCannotClean)
		})
	}
}

func TestCleanIsBoundedByItsContext(t *testing.T) { cleanIsBounded(t, newPeer(t), "") }

func cleanIsBounded(t *testing.T, p *peer, parameters string) {
	t.Helper()
	p.resets([]byte{}) // no answer
	s := p.dial(t, p.template(t, parameters))
	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := errors.New("stopped")
	done := make(chan error, 1)
	go func() {
		_, err := s.Clean(ctx, dialects.Stateful)
		done <- err
	}()
	cancel(stopped)
	require.ErrorIs(t, <-done, stopped)
}

func TestCleanOfABusyOrClosedConnectionSendsNothing(t *testing.T) {
	p := newPeer(t)
	tmpl := p.template(t, "")
	closed := p.dial(t, tmpl)
	require.NoError(t, closed.conn.Close())
	_, err := closed.Clean(t.Context(), dialects.Stateful)
	require.ErrorIs(t, err, driver.ErrBadConn)

	busy := p.dial(t, tmpl)
	p.answers(func(*peerSession, string) reply { return reply{rows: [][]any{{"1"}, {"2"}}} })
	rows, err := busy.conn.(driver.QueryerContext).QueryContext(t.Context(), "SELECT 1", nil)
	require.NoError(t, err)
	require.NoError(t, rows.Next(make([]driver.Value, 1)))
	_, err = busy.Clean(t.Context(), dialects.Stateful)
	require.ErrorIs(t, err, driver.ErrBadConn)
	require.Zero(t, count(p.said(), "reset"))
	require.Equal(t, dialects.TxNone, busy.TxStatus(), "busy is not lost")
	require.NoError(t, rows.Close())
}

func TestRollbackTurnsAutocommitOnAgain(t *testing.T) {
	p := newPeer(t)
	s := p.dial(t, p.template(t, ""))
	require.NoError(t, execute(t.Context(), s.conn, "SET autocommit = 0"))
	p.said()
	require.NoError(t, s.Rollback(t.Context()))
	require.Equal(t, []string{"ROLLBACK", "SET autocommit = 1"}, p.said())
	require.NoError(t, s.Rollback(t.Context()))
	require.Equal(t, []string{"ROLLBACK"}, p.said())

}

func TestAConnectionWithoutAutocommitIsRefused(t *testing.T) {
	p := newPeer(t)
	_, err := p.template(t, "autocommit=0").Dial(t.Context(), nil)
	require.ErrorIs(t, err, errAutocommitOff)
	said := p.said()
	require.Equal(t, "quit", said[len(said)-1])
}

func TestPeekTellsIdleFromDead(t *testing.T) {
	p := newPeer(t)
	tmpl := p.template(t, "")
	s := p.dial(t, tmpl)
	require.Equal(t, dialects.Alive, s.Peek())
	require.NoError(t, p.session(0).nc.Close())
	awaitNews(t, s)
	require.Equal(t, dialects.Dead, s.Peek())

	spoken := p.dial(t, tmpl)
	require.NoError(t, p.session(1).send(0, errorPacket(4031)))
	awaitNews(t, spoken)
	require.Equal(t, dialects.Dead, spoken.Peek())
	spoken.carrier = nil // as under TLS
	require.Equal(t, dialects.Unsure, spoken.Peek())
}

// awaitNews returns when something, or the end of the stream, has reached the
// connection; it takes nothing away.
func awaitNews(t *testing.T, s *session) {
	t.Helper()
	for s.Peek() == dialects.Alive {
		require.NoError(t, t.Context().Err())
	}
}

func TestSentCountsWhereItMeansSomething(t *testing.T) {
	p := newPeer(t)
	s := p.dial(t, p.template(t, ""))
	before, ok := s.Sent()
	require.True(t, ok)
	require.NoError(t, execute(t.Context(), s.conn, "SELECT 1"))
	after, _ := s.Sent()
	require.Equal(t, uint64(4+1+len("SELECT 1")), after-before)

	_, ok = p.dial(t, p.template(t, "rejectReadOnly=true")).Sent()
	require.False(t, ok, "the driver says ErrBadConn although the statement was sent")
}

func TestANetworkOfTheProgramGoesWithoutWire(t *testing.T) {
	p := newPeer(t)
	noWay := errors.New("no way")
	mysql.RegisterDialContext("own", func(ctx context.Context, addr string) (net.Conn, error) {
		if addr != p.l.Addr().String() {
			return nil, fmt.Errorf("%w to %s for app:%s", noWay, addr, secret)
		}
		var d net.Dialer
		return d.DialContext(ctx, "tcp", addr)
	})
	defer mysql.DeregisterDialContext("own")
	tmpl, err := parse("app:" + secret + "@own(" + p.l.Addr().String() + ")/app")
	require.NoError(t, err)
	require.True(t, tmpl.servers[0].config.CheckConnLiveness, "the driver looks for itself")
	s := p.dial(t, tmpl)
	require.EqualValues(t, 4711, s.thread)
	_, ok := s.Sent()
	require.False(t, ok)
	require.Equal(t, dialects.Alive, s.Peek())
	_, err = s.Clean(t.Context(), dialects.Stateful)
	require.ErrorIs(t, err, dialects.ErrCannotClean)

	lost, err := parse("app:" + secret + "@own(elsewhere)/app")
	require.NoError(t, err)
	_, err = lost.Dial(t.Context(), nil)
	require.ErrorContains(t, err, "no way to elsewhere for app:xxxxx")
	require.NotErrorIs(t, err, noWay, "the error below has the password in its text")
	require.NotContains(t, shown(err), secret)
}

func TestAPasswordIsStruckOutUnlessItsAbsenceWouldShowIt(t *testing.T) {
	inner := errors.New("no entry for app with hunter2")
	for _, c := range []struct{ password, target, want string }{
		{"hunter2", "mysql app@h:3306/d", "no entry for app with xxxxx"},
		{"app", "mysql root@h:3306/d", inner.Error()},
		{"entry", "mysql app@h:3306/entry", inner.Error()},
		{"", "mysql app@h:3306/d", inner.Error()},
		{"absent", "mysql app@h:3306/d", inner.Error()},
	} {
		err := scrub(inner, c.password, c.target)
		require.EqualError(t, err, c.want)
		require.Equal(t, c.want == inner.Error(), errors.Is(err, inner))
	}
	refused := &mysql.MySQLError{Number: 1045, Message: "no entry with hunter2"}
	err := scrub(fmt.Errorf("dialling: %w", refused), "hunter2", "mysql app@h:3306/d")
	require.EqualError(t, err, "Error 1045: no entry with xxxxx")
	require.NotContains(t, shown(err), "hunter2")
	require.Equal(t, dialects.AuthFailed, dialect{}.Diagnose(err))
}

func TestDialErrorsAreTheDriversOwn(t *testing.T) {
	p := newPeer(t)
	p.refuses(func(l login) uint16 {
		if l.user == "locked" {
			return myerror.AccountLocked
		}
		return myerror.AccessDenied
	})
	tmpl := p.template(t, "")
	for _, cred := range []*dialects.Credential{nil, {User: "locked", Password: "x"}} {
		_, err := tmpl.Dial(t.Context(), cred)
		var refusal *mysql.MySQLError
		require.ErrorAs(t, err, &refusal)
		require.Equal(t, dialects.AuthFailed, dialect{}.Diagnose(err))
	}
}

func TestNothingOfTheTemplateIsSharedWithADial(t *testing.T) {
	p := newPeer(t)
	// The peer has no TLS: the driver strikes it out of the config it is given.
	tmpl := p.template(t, "tls=preferred&sql_mode=ANSI&connectionAttributes=a:b")
	before := tmpl.servers[0].config.Clone()
	s := p.dial(t, tmpl)
	require.True(t, reflect.DeepEqual(before, tmpl.servers[0].config))
	own := reflect.ValueOf(s.conn).Elem().FieldByName("cfg").Elem()
	require.True(t, own.FieldByName("TLS").IsNil(), "the driver did strike it out")
	require.NotEqual(t, reflect.ValueOf(tmpl.servers[0].config.Params).Pointer(), own.FieldByName("Params").Pointer())
}

func TestWrapTakesTheDriversConnectorsAlone(t *testing.T) {
	_, err := dialect{}.Wrap(otherConnector{})
	require.ErrorIs(t, err, dialects.ErrNotMine)

	p := newPeer(t)
	c, err := mysql.ParseDSN("app:" + secret + "@tcp(" + p.l.Addr().String() + ")/app")
	require.NoError(t, err)
	connector, err := mysql.NewConnector(c)
	require.NoError(t, err)
	tmpl, err := dialect{}.Wrap(connector)
	require.NoError(t, err)
	require.NotContains(t, shown(tmpl), secret)
	require.False(t, tmpl.TakesCredential())
	require.True(t, tmpl.Traits().StatusKnown)
	_, err = tmpl.Dial(t.Context(), &dialects.Credential{User: "u"})
	require.Error(t, err)
	s := p.dial(t, tmpl)
	require.EqualValues(t, 4711, s.thread)
	require.NoError(t, execute(t.Context(), s.conn, "BEGIN"))
	require.Equal(t, dialects.TxOpen, s.TxStatus())
	_, err = s.Clean(t.Context(), dialects.Stateful)
	require.ErrorIs(t, err, dialects.ErrCannotClean)
	require.NoError(t, s.Close(t.Context()))
	said := p.said()
	require.Eventually(t, func() bool { // a driver's own connection is closed without waiting for the server
		said = append(said, p.said()...)
		return len(said) > 4
	}, time.Minute, time.Millisecond)
	require.Equal(t, []string{"login app/app", "SELECT CONNECTION_ID()", "BEGIN", "ROLLBACK", "quit"}, said)
}

type otherConnector struct{ driver.Connector }

func (otherConnector) Driver() driver.Driver { return nil }

func TestDiagnose(t *testing.T) {
	for number, want := range map[uint16]dialects.Diagnosis{
		1045: dialects.AuthFailed, 1698: dialects.AuthFailed,
		1053: dialects.ServerLeaving | dialects.SessionEnded, 1927: dialects.ServerLeaving | dialects.SessionEnded, 3169: dialects.ServerLeaving | dialects.SessionEnded,
		3955: dialects.AuthFailed, 4151: dialects.AuthFailed,
		4031: dialects.WasIdle | dialects.SessionEnded, 1062: 0, 1243: dialects.StaleStatement, 1615: 0, 1213: dialects.TxEnded | dialects.Conflict, 1020: dialects.TxEnded | dialects.Conflict, 1206: dialects.TxEnded, 1205: dialects.TxDoubt,
		1461: dialects.TooManyPrepared,
		3100: dialects.TxEnded | dialects.Conflict | dialects.RoleDoubt, 3101: dialects.TxEnded | dialects.Conflict, 1180: 0,
	} {
		err := fmt.Errorf("wrapped: %w", &mysql.MySQLError{Number: number})
		require.Equal(t, want, dialect{}.Diagnose(err), number)
	}
	lost := &mysql.MySQLError{Number: 1180, Message: "Got error 149 - 'Lock deadlock; Retry transaction' during COMMIT"}
	require.Equal(t, dialects.TxEnded|dialects.Conflict, dialect{}.Diagnose(lost))
	for _, text := range []string{"EXECUTE s", "execute immediate 'CALL p()'", "CALL p()", "/*! CALL p() */", "BEGIN NOT ATOMIC EXECUTE s; END", "IF 1 THEN EXECUTE s; END IF"} {
		require.NotZero(t, classifier.Classify(text)&dialects.Suspect, "what may EXECUTE is not repeated after 1243: %s", text)
	}
	require.Zero(t, dialect{}.Diagnose(driver.ErrBadConn))
	require.Zero(t, dialect{}.Diagnose(nil))
}

func TestTheDialectIsRegistered(t *testing.T) {
	d, err := dialects.Find("mysql://u@h/d")
	require.NoError(t, err)
	require.Equal(t, "mysql", d.Name())
	require.Equal(t, classifier.Classify("SET @a = 1"), d.Effect("SET @a = 1"))
	require.True(t, d.Effect("SET @a = 1").Dirty())
}

func TestCloseEndsAnOpenTransactionFirst(t *testing.T) {
	for begin, want := range map[string][]string{
		"BEGIN":              {"ROLLBACK", "quit"},
		"SET autocommit = 0": {"ROLLBACK", "SET autocommit = 1", "quit"},
		"SELECT 1":           {"quit"},
	} {
		p := newPeer(t)
		s := p.dial(t, p.template(t, ""))
		require.NoError(t, execute(t.Context(), s.conn, begin))
		p.said()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		require.NoError(t, s.Close(ctx))
		cancel()
		require.Equal(t, want, p.said(), begin)
		require.True(t, s.wire.Ended())
	}
}
