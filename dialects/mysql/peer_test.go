package mysql

import (
	"bufio"
	"bytes"
	"crypto/sha1"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/pooldriver/pooldriver/dialects"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// peer is a server that speaks as much of the protocol as the dialect hears.
type peer struct {
	l       net.Listener
	working sync.WaitGroup

	mu       sync.Mutex                           // protects following fields
	refuse   func(login) uint16                   // error number for a login; nil: none
	answer   func(s *peerSession, q string) reply // nil, or the zero reply: standard
	reset    []byte                               // answers COM_RESET_CONNECTION; nil: OK
	tls      *tls.Config                          // nil: it has none
	sessions []*peerSession
	seesAll  map[string]bool // users with the privilege PROCESS
	log      []string        // logins, statements and commands, in order
}

// refuses, answers and resets set what the peer does from now on.
func (p *peer) refuses(f func(login) uint16) { p.mu.Lock(); p.refuse = f; p.mu.Unlock() }
func (p *peer) answers(f func(s *peerSession, q string) reply) {
	p.mu.Lock()
	p.answer = f
	p.mu.Unlock()
}
func (p *peer) resets(packet []byte)   { p.mu.Lock(); p.reset = packet; p.mu.Unlock() }
func (p *peer) encrypts(c *tls.Config) { p.mu.Lock(); p.tls = c; p.mu.Unlock() }

// login is what a client says of itself.
type login struct{ user, database, attributes, auth string }

// by reports whether a client knows the password (mysql_native_password).
func (l login) by(password string) bool {
	hash := func(data ...byte) []byte { sum := sha1.Sum(data); return sum[:] }
	once := hash([]byte(password)...)
	key := hash(append([]byte(peerSalt), hash(once...)...)...)
	for i := range once {
		once[i] ^= key[i]
	}
	return l.auth == string(once)
}

type peerSession struct {
	login       // guarded by peer.mu
	gone   bool // likewise
	peer   *peer
	nc     net.Conn
	cork   *cork // under TLS
	id     uint32
	status uint16
}

// cork keeps what is written while it is in, and then writes all at once.
type cork struct {
	net.Conn
	in   bool
	kept []byte
}

func (c *cork) Write(b []byte) (int, error) {
	if c.in {
		c.kept = append(c.kept, b...)
		return len(b), nil
	}
	return c.Conn.Write(b)
}

func (c *cork) out() error {
	_, err := c.Conn.Write(c.kept)
	c.in, c.kept = false, nil
	return err
}

// reply is an answer to a statement: an error, rows or OK.
type reply struct {
	errno uint16
	rows  [][]any // of strings and nil
	ok    bool
	hang  chan struct{} // waits for it first
	given bool          // by the function itself
}

const (
	peerLongPassword   = 1
	peerConnectWithDB  = 1 << 3
	peerProtocol41     = 1 << 9
	peerTLS            = 1 << 11
	peerSecure         = 1 << 15
	peerMultiResults   = 1 << 17
	peerPluginAuth     = 1 << 19
	peerConnectAttrs   = 1 << 20
	peerDeprecateEOF   = 1 << 24
	peerCapabilities   = peerLongPassword | peerConnectWithDB | peerProtocol41 | peerSecure | peerMultiResults | peerPluginAuth | peerConnectAttrs | peerDeprecateEOF
	peerFirstID        = 70_000
	peerSalt           = "12345678123456789012"
	peerVersion        = "5.5.5-11.8.0-peer"
	comQuit            = 1
	comQuery           = 3
	comPing            = 14
	comResetConnection = 0x1f
)

func newPeer(t testing.TB) *peer {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &peer{l: l}
	p.working.Go(func() {
		for {
			nc, err := l.Accept()
			if err != nil {
				return
			}
			p.mu.Lock()
			s := &peerSession{peer: p, nc: nc, id: peerFirstID + uint32(len(p.sessions)), status: statusAutocommit}
			p.sessions = append(p.sessions, s)
			p.mu.Unlock()
			p.working.Go(s.serve)
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		p.mu.Lock()
		for _, s := range p.sessions {
			_ = s.nc.Close()
		}
		p.mu.Unlock()
		p.working.Wait()
	})
	return p
}

func (p *peer) note(line string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.log = append(p.log, line)
}

// said returns what was logged since the last call.
func (p *peer) said() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	log := p.log
	p.log = nil
	return log
}

func (p *peer) session(i int) *peerSession {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sessions[i]
}

func (p *peer) dsn(user, params string) string {
	return "mysql://" + user + "@" + p.l.Addr().String() + "/app?" + params
}

func (p *peer) template(t testing.TB, params string) *template {
	t.Helper()
	tmpl, err := parse(p.dsn("app:secret", params))
	require.NoError(t, err)
	tmpl.proofs.record(peerVersion, nil) // its resets need no proof
	return tmpl
}

func (p *peer) dial(t testing.TB, tmpl dialects.Template) *session {
	t.Helper()
	s, err := tmpl.Dial(t.Context(), nil)
	require.NoError(t, err)
	t.Cleanup(func() { _ = s.Conn().Close() })
	return s.(*session)
}

func (s *peerSession) serve() {
	defer func() {
		_ = s.nc.Close()
		s.peer.mu.Lock()
		s.gone = true
		s.peer.mu.Unlock()
	}()
	s.peer.mu.Lock()
	sealed := s.peer.tls
	s.peer.mu.Unlock()
	if s.send(0, s.greeting(sealed != nil)) != nil {
		return
	}
	seq, data, err := receive(s.nc)
	if err == nil && sealed != nil && len(data) == 32 { // a request for TLS
		s.peer.mu.Lock()
		s.cork = &cork{Conn: s.nc}
		s.nc = tls.Server(s.cork, sealed)
		s.peer.mu.Unlock()
		seq, data, err = receive(s.nc)
	}
	if err != nil {
		return
	}
	s.peer.mu.Lock()
	s.login = readLogin(data)
	refuse := s.peer.refuse
	s.peer.mu.Unlock()
	s.peer.note("login " + s.user + "/" + s.database)
	if refuse != nil {
		if errno := refuse(s.login); errno != 0 {
			_ = s.send(seq+1, errorPacket(errno))
			return
		}
	}
	if s.send(seq+1, s.okPacket(0)) != nil {
		return
	}
	in := bufio.NewReader(s.nc)
	for {
		_, data, err := receive(in)
		if err != nil || s.command(data) != nil {
			return
		}
	}
}

var errQuit = errors.New("quit")

func (s *peerSession) command(data []byte) error {
	switch data[0] {
	case comQuit:
		s.peer.note("quit")
		return errQuit
	case comPing:
		s.peer.note("ping")
		return s.send(1, s.okPacket(0))
	case comResetConnection:
		s.peer.note("reset")
		s.status = statusAutocommit
		s.peer.mu.Lock()
		answer := s.peer.reset
		s.peer.mu.Unlock()
		if answer != nil {
			_, err := s.nc.Write(answer)
			return err
		}
		return s.send(1, s.okPacket(0))
	case comQuery:
		return s.query(string(data[1:]))
	}
	return errors.New("unknown command")
}

func (s *peerSession) query(q string) error {
	s.peer.note(q)
	var r reply
	s.peer.mu.Lock()
	answer := s.peer.answer
	s.peer.mu.Unlock()
	if answer != nil {
		r = answer(s, q)
	}
	if r.hang != nil {
		<-r.hang
	}
	switch {
	case r.given:
		return nil
	case r.errno != 0:
		return s.send(1, errorPacket(r.errno))
	case r.rows != nil:
		return s.sendRows(r.rows)
	case r.ok:
	case q == askHome:
		return s.sendRows(homeRow(s.id, "utf8mb4", "utf8mb4_general_ci", "utf8mb4", "", nil).rows)
	case q == "SELECT CONNECTION_ID()":
		return s.sendRows([][]any{{"4711"}})
	}
	switch strings.ToUpper(q) {
	case "BEGIN":
		s.status |= statusInTransaction
	case "COMMIT", "ROLLBACK":
		s.status &^= statusInTransaction
	case "SET AUTOCOMMIT = 0":
		s.status &^= statusAutocommit
	case "SET AUTOCOMMIT = 1":
		s.status |= statusAutocommit
		s.status &^= statusInTransaction
	}
	if s.status&statusAutocommit == 0 && strings.HasPrefix(q, "INSERT") {
		s.status |= statusInTransaction
	}
	return s.send(1, s.okPacket(0))
}

func (s *peerSession) greeting(sealed bool) []byte {
	capabilities := uint32(peerCapabilities)
	if sealed {
		capabilities |= peerTLS
	}
	b := []byte{10}
	b = append(b, peerVersion+"\x00"...)
	b = binary.LittleEndian.AppendUint32(b, s.id)
	b = append(b, peerSalt[:8]+"\x00"...)
	b = binary.LittleEndian.AppendUint16(b, uint16(capabilities))
	b = append(b, 45)
	b = binary.LittleEndian.AppendUint16(b, s.status)
	b = binary.LittleEndian.AppendUint16(b, uint16(capabilities>>16))
	b = append(b, 21)
	b = append(b, make([]byte, 10)...)
	b = append(b, peerSalt[8:]+"\x00"...)
	return append(b, "mysql_native_password\x00"...)
}

func (s *peerSession) okPacket(header byte) []byte {
	b := []byte{header, 0, 0}
	b = binary.LittleEndian.AppendUint16(b, s.status)
	return append(b, 0, 0)
}

func errorPacket(errno uint16) []byte {
	b := binary.LittleEndian.AppendUint16([]byte{0xff}, errno)
	return append(b, "#HY000refused"...)
}

func (s *peerSession) send(seq byte, data []byte) error {
	_, err := s.nc.Write(packet(seq, data))
	return err
}

func packet(seq byte, data []byte) []byte {
	n := len(data)
	return append([]byte{byte(n), byte(n >> 8), byte(n >> 16), seq}, data...)
}

func (s *peerSession) sendRows(rows [][]any) error {
	columns := 0
	if len(rows) > 0 {
		columns = len(rows[0])
	}
	columns = max(columns, 1)
	out := packet(1, []byte{byte(columns)})
	seq := byte(2)
	add := func(data []byte) { out = append(out, packet(seq, data)...); seq++ }
	for range columns {
		var b []byte
		for _, field := range []string{"def", "", "", "", "c", "c"} {
			b = append(append(b, byte(len(field))), field...)
		}
		b = append(b, 12, 45, 0, 255, 0, 0, 0, 253, 0, 0, 0, 0, 0)
		add(b)
	}
	for _, row := range rows {
		var b []byte
		for _, v := range row {
			if text, ok := v.(string); ok {
				b = append(append(b, byte(len(text))), text...) // up to 250 bytes
			} else {
				b = append(b, 0xfb)
			}
		}
		add(b)
	}
	add(s.okPacket(0xfe))
	_, err := s.nc.Write(out)
	return err
}

func receive(r io.Reader) (seq byte, data []byte, err error) {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return 0, nil, err
	}
	data = make([]byte, int(header[0])|int(header[1])<<8|int(header[2])<<16)
	_, err = io.ReadFull(r, data)
	if err == nil && len(data) == 0 {
		err = errors.New("empty packet")
	}
	return header[3], data, err
}

func readLogin(data []byte) login {
	var l login
	capabilities := binary.LittleEndian.Uint32(data)
	rest := data[32:]
	user, rest, _ := bytes.Cut(rest, []byte{0})
	l.user = string(user)
	l.auth, rest = string(rest[1:1+int(rest[0])]), rest[1+int(rest[0]):]
	if capabilities&peerConnectWithDB != 0 {
		database, after, _ := bytes.Cut(rest, []byte{0})
		l.database, rest = string(database), after
	}
	_, rest, _ = bytes.Cut(rest, []byte{0}) // the plugin
	l.attributes = string(rest)
	return l
}

// processes answers the killer's question: the sessions that are there, by the
// host that host says for each.
func (p *peer) processes(asking *peerSession, host func(*peerSession) string, alive func(*peerSession) bool) reply {
	return p.processList(asking, "", host, alive)
}

// processList is processes for a question that may name another user than the one
// who asks, whose sessions are shown to those who see all.
func (p *peer) processList(asking *peerSession, q string, host func(*peerSession) string, alive func(*peerSession) bool) reply {
	p.mu.Lock()
	defer p.mu.Unlock()
	user, others := asking.user, "0"
	if _, after, ok := strings.Cut(q, "user = X'"); ok {
		name, _, _ := strings.Cut(after, "'")
		text, _ := hex.DecodeString(name)
		user = string(text)
		for _, s := range p.sessions {
			if p.seesAll[asking.user] && !s.gone && s.user != asking.user {
				others = "1"
			}
		}
	}
	r := reply{rows: [][]any{}}
	for _, s := range p.sessions {
		if !alive(s) || s.user != asking.user && !p.seesAll[asking.user] {
			continue
		}
		own, same := "0", "0"
		if s == asking {
			own = "1"
		}
		if s.user == user {
			same = "1"
		}
		r.rows = append(r.rows, []any{own, host(s), same, others})
	}
	return r
}

func remote(s *peerSession) string { return s.nc.RemoteAddr().String() }

// homeRow answers askHome for the connection with that number, in a database whose
// character set is the server's.
func homeRow(id uint32, row ...any) reply {
	return reply{rows: [][]any{append(row, strconv.Itoa(int(id)), "1", "1")}}
}

func count(log []string, prefix string) (n int) {
	for _, line := range log {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

func TestThePeerSpeaksTheProtocol(t *testing.T) {
	p := newPeer(t)
	s := p.dial(t, p.template(t, ""))
	require.NoError(t, s.Ping(t.Context()))
	p.answers(func(*peerSession, string) reply { return reply{rows: [][]any{{"a", nil}, {"", "b"}}} })
	rows, err := ask(t.Context(), s.conn, "SELECT 1")
	require.NoError(t, err)
	require.Equal(t, [][]text{{{"a", true}, {}}, {{"", true}, {"b", true}}}, rows)
	require.Equal(t, []string{"login app/app", askHome, "ping", "SELECT 1"}, p.said())
	require.NoError(t, s.Close(t.Context()))
	require.Equal(t, []string{"quit"}, p.said())
}
