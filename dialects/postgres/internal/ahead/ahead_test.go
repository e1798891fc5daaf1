package ahead

import (
	"bytes"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

// network is what is to come from a server, and what went out.
type network struct {
	in, out  bytes.Buffer
	conn     *Conn
	frontend *pgproto3.Frontend
}

// connected returns a network on which nothing is under way; chunks cuts what comes.
func connected(t *testing.T, chunks func(io.Reader) io.Reader) *network {
	t.Helper()
	n := &network{}
	var r io.Reader = &n.in
	if chunks != nil {
		r = chunks(r)
	}
	n.connect(r)
	n.in.WriteString(idle)
	n.reads(t, "Z")
	return n
}

func (n *network) connect(r io.Reader) {
	n.conn = &Conn{r: r, w: &n.out, gate: &gate{}}
	n.frontend = pgproto3.NewFrontend(n.conn, n.conn)
}

// begins is connected, with a BEGIN to be sent ahead.
func begins(t *testing.T, chunks func(io.Reader) io.Reader) *network {
	t.Helper()
	n := connected(t, chunks)
	require.True(t, n.conn.Begin("begin"))
	return n
}

func (n *network) write(t *testing.T, messages ...pgproto3.Message) {
	t.Helper()
	p := encode(nil, messages...)
	written, err := n.conn.Write(p)
	require.NoError(t, err)
	require.Equal(t, len(p), written)
}

func (n *network) answer(messages ...pgproto3.Message) { n.in.Write(encode(nil, messages...)) }

// reads reads messages of these types as pgx, and returns the last status.
func (n *network) reads(t *testing.T, types string) (status byte) {
	t.Helper()
	for i := range types {
		m, err := n.frontend.Receive()
		require.NoError(t, err)
		require.Equal(t, types[i], encode(nil, m)[0], "message %d of %s", i, types)
		if z, ok := m.(*pgproto3.ReadyForQuery); ok {
			status = z.TxStatus
		}
	}
	return status
}

// sent takes what went out, and compares the types of the messages.
func (n *network) sent(t *testing.T, want string) {
	t.Helper()
	var types []byte
	for p := n.out.Bytes(); len(p) > 0; {
		msg, err := firstMessage(p)
		require.NoError(t, err)
		require.NotNil(t, msg)
		types, p = append(types, msg[0]), p[len(msg):]
	}
	require.Equal(t, want, string(types))
	n.out.Reset()
}

func readyFor(status byte) *pgproto3.ReadyForQuery { return &pgproto3.ReadyForQuery{TxStatus: status} }

var (
	done    = &pgproto3.CommandComplete{CommandTag: []byte("DONE")}
	began   = []pgproto3.Message{&pgproto3.ParseComplete{}, &pgproto3.BindComplete{}, done, &pgproto3.CloseComplete{}}
	refusal = &pgproto3.ErrorResponse{Severity: "ERROR", Code: "57014", Message: "canceled"}
	notice  = &pgproto3.NoticeResponse{Severity: "WARNING", Message: "by the way"}
	parsed  = []pgproto3.Message{&pgproto3.Parse{Query: "INSERT"}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Sync{}}
	query   = &pgproto3.Query{String: "INSERT"}
	tenant  = []dialects.ContextSetting{{Name: "app.tenant", Value: "secret"}}
	set     = []pgproto3.Message{&pgproto3.CloseComplete{}, &pgproto3.ParseComplete{}, &pgproto3.BindComplete{},
		&pgproto3.DataRow{Values: [][]byte{[]byte("secret")}}, done, &pgproto3.CloseComplete{}}
)

func TestAnswersToWhatWasSentAheadAreTakenOutHoweverTheyAreCut(t *testing.T) {
	for name, chunks := range map[string]func(io.Reader) io.Reader{
		"at once": nil, "byte by byte": iotest.OneByteReader, "in halves": iotest.HalfReader, "with the error": iotest.DataErrReader,
	} {
		t.Run(name, func(t *testing.T) {
			n := begins(t, chunks)
			n.write(t, query)
			n.sent(t, "PBECQ")
			n.answer(began[0], began[1], notice)
			n.answer(began[2:]...)
			n.answer(done, readyFor('T'))
			require.Equal(t, byte('T'), n.reads(t, "NCZ"))
			_, err := n.frontend.Receive()
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			require.Equal(t, NoBegin, n.conn.EndBegin())
			require.False(t, n.conn.busy.Load())
			n.write(t, query)
			n.sent(t, "Q")
		})
	}
}

// A server can refuse at any of BEGIN's messages, or be cancelled right after it.
func TestABeginThatFailsEndsTheStatement(t *testing.T) {
	for answered := range len(began) {
		for _, first := range [][]pgproto3.Message{{query}, parsed} {
			n := begins(t, iotest.OneByteReader)
			n.answer(began[:answered]...)
			status, state := byte('I'), Refused
			if answered == len(began)-1 {
				status, state = 'E', NoBegin // it is open, and has failed
			}
			n.answer(refusal, readyFor(status))
			n.write(t, first...)
			require.Equal(t, status, n.reads(t, "EZ"))
			require.Equal(t, state, n.conn.BeginState())
			n.sent(t, map[bool]string{true: "PBECQS", false: "PBECPBES"}[first[0] == query])
			if state == NoBegin {
				continue
			}
			n.write(t, append(parsed, parsed...)...)
			require.Equal(t, byte('I'), n.reads(t, "EZEZ"), "none is open")
			n.write(t, query)
			n.reads(t, "EZ")
			n.sent(t, "")
			n.write(t, &pgproto3.Query{})
			n.sent(t, "Q")
			n.answer(&pgproto3.EmptyQueryResponse{}, readyFor('I'))
			n.reads(t, "IZ")
			require.Equal(t, Refused, n.conn.EndBegin())
			n.write(t, parsed...)
			n.sent(t, "PBES")
		}
	}
}

func TestNothingIsSentAheadOfWhatItWouldNotHoldFor(t *testing.T) {
	for _, apart := range [][]pgproto3.Message{append(parsed, parsed...), parsed[:3], append(parsed, &pgproto3.Flush{})} {
		for _, load := range []func(*Conn) bool{
			func(c *Conn) bool { return c.Begin("begin") }, func(c *Conn) bool { return c.Carry(nil, tenant) }} {
			n := connected(t, nil)
			require.True(t, load(n.conn))
			_, err := n.conn.Write(encode(nil, apart...))
			require.ErrorIs(t, err, errApart)
			n.sent(t, "")
			_, err = n.conn.gate.Write(nil)
			require.ErrorIs(t, err, errGate)
		}
	}
	n := begins(t, nil)
	n.write(t, parsed...)
	_, err := n.conn.Write(encode(nil, parsed...))
	require.ErrorIs(t, err, errBusy, "nobody knows yet whether a transaction is open")
	n.sent(t, "PBECPBES")

	n = begins(t, nil)
	n.write(t, &pgproto3.Query{String: "-- ping"})
	n.write(t, &pgproto3.Query{})
	n.write(t, &pgproto3.Close{ObjectType: 'S', Name: "x"}, &pgproto3.Sync{})
	n.write(t, &pgproto3.Terminate{})
	n.sent(t, "QQCSX")
	require.Equal(t, Held, n.conn.EndBegin())
	n.write(t, parsed...)
	n.sent(t, "PBES")
}

func TestNothingIsSentAheadInTheMiddleOfAMessage(t *testing.T) {
	behind := encode(nil, &pgproto3.NotificationResponse{Channel: "n", Payload: "p"})
	for cut := 1; cut <= len(behind); cut++ {
		n := &network{}
		n.connect(&n.in)
		require.False(t, n.conn.Begin("begin"), "it has not begun")
		n.in.WriteString(idle)
		n.in.Write(behind[:cut])
		n.reads(t, "Z")
		require.False(t, n.conn.Begin("begin"), "%d bytes of a notification have come", cut)
		require.False(t, n.conn.Carry(nil, tenant))
	}
}

func TestAnAnswerThatMakesNoSenseIsAnError(t *testing.T) {
	n := begins(t, nil)
	n.write(t, parsed...)
	n.answer(readyFor('I'))
	_, err := n.frontend.Receive()
	require.ErrorContains(t, err, "with a message of type 'Z'")
}

func TestAStatementCarriesItsSettingsWhenItIsExecuted(t *testing.T) {
	for _, chunks := range []func(io.Reader) io.Reader{nil, iotest.OneByteReader, iotest.HalfReader} {
		n := connected(t, chunks)
		for range 2 {
			require.True(t, n.conn.Carry(nil, tenant))
			n.write(t, &pgproto3.Parse{Name: "p", Query: "SELECT 1"}, &pgproto3.Describe{}, &pgproto3.Sync{})
			n.sent(t, "PDS")
			n.answer(&pgproto3.ParseComplete{}, &pgproto3.NoData{}, readyFor('I'))
			n.reads(t, "1nZ")
			n.write(t, parsed[1:]...)
			n.sent(t, "CPBEC"+"BES")
			n.answer(set...)
			n.answer(notice, &pgproto3.BindComplete{}, done, readyFor('I'))
			require.Equal(t, byte('I'), n.reads(t, "N2CZ"))
			require.True(t, n.conn.Drop())
			n.write(t, parsed...)
			n.sent(t, "PBES")
			n.answer(done, readyFor('I'))
			n.reads(t, "CZ")
		}
	}
}

// TestDropSaysWhetherAStatementHasCarriedTheSettings: then they are in force until the transaction's end.
func TestDropSaysWhetherAStatementHasCarriedTheSettings(t *testing.T) {
	prepares := []pgproto3.Message{&pgproto3.Parse{Name: "p", Query: "SELECT 1"}, &pgproto3.Describe{}, &pgproto3.Sync{}}
	for name, c := range map[string]struct {
		begins   bool
		messages []pgproto3.Message
		wrote    string
		sent     bool
	}{
		"nothing":                        {false, nil, "", false},
		"a statement":                    {false, parsed, "CPBECPBES", true},
		"a text":                         {false, []pgproto3.Message{query}, "CPBECQPCS", true},
		"what is prepared":               {false, prepares, "PDS", false},
		"what is prepared behind BEGIN":  {true, prepares, "PBECPDS", false},
		"a statement behind BEGIN":       {true, parsed, "PBECCPBECPBES", true},
		"what is refused before it goes": {false, append(parsed, parsed...), "", false},
	} {
		t.Run(name, func(t *testing.T) {
			n := connected(t, nil)
			require.True(t, !c.begins || n.conn.Begin("begin"))
			require.True(t, n.conn.Carry(nil, tenant))
			if c.messages != nil {
				_, _ = n.conn.Write(encode(nil, c.messages...))
			}
			n.sent(t, c.wrote)
			require.Equal(t, c.sent, n.conn.Drop())
		})
	}
	n := connected(t, nil)
	require.True(t, n.conn.Carry(nil, tenant))
	n.write(t, parsed...)
	n.answer(append(set, done, readyFor('I'))...)
	n.reads(t, "CZ")
	require.True(t, n.conn.Drop())
	require.True(t, n.conn.Carry(nil, tenant))
	require.False(t, n.conn.Drop(), "of these none was sent")
}

// TestWhatASimpleQueryWithSettingsLeavesOpenIsEnded: the server says T behind the query.
func TestWhatASimpleQueryWithSettingsLeavesOpenIsEnded(t *testing.T) {
	for _, text := range []string{"SELECT 1", "SELECT 1 /* " + strings.Repeat("x", 100_000) + " */"} {
		n := connected(t, iotest.OneByteReader)
		require.True(t, n.conn.Carry(nil, tenant))
		n.write(t, &pgproto3.Query{String: text})
		n.sent(t, "CPBEC"+"QPCS")
		n.answer(set...)
		n.answer(done, readyFor('T'), &pgproto3.ParseComplete{}, &pgproto3.CloseComplete{}, readyFor('I'))
		require.Equal(t, byte('I'), n.reads(t, "CZ"))
	}
}

func TestARefusalOfSettingsShowsNoValue(t *testing.T) {
	for answered := range len(set) {
		for _, statement := range [][]pgproto3.Message{{query}, parsed} {
			n := connected(t, iotest.OneByteReader)
			require.True(t, n.conn.Carry(nil, tenant))
			n.answer(set[:answered]...)
			n.answer(&pgproto3.ErrorResponse{Severity: "ERROR", Code: "22023", Message: `invalid value: "secret"`, Detail: "secret", Hint: "secret"}, readyFor('I'))
			n.write(t, statement...)
			m, err := n.frontend.Receive()
			require.NoError(t, err)
			e := m.(*pgproto3.ErrorResponse)
			require.Equal(t, "22023", e.Code)
			require.Contains(t, e.Message, "app.tenant")
			require.NotContains(t, fmt.Sprintf("%+v", e), "secret")
			require.Equal(t, byte('I'), n.reads(t, "Z"))
		}
	}
}

func TestABeginAndTextsGoInFrontOfSettings(t *testing.T) {
	n := begins(t, nil)
	require.True(t, n.conn.Carry(nil, tenant))
	n.write(t, parsed...)
	n.sent(t, "PBEC"+"CPBEC"+"PBES")
	n.answer(began...)
	n.answer(set[:2]...)
	n.answer(&pgproto3.ErrorResponse{Severity: "ERROR", Code: "22023", Message: "secret"}, readyFor('E'))
	m, err := n.frontend.Receive()
	require.NoError(t, err)
	require.NotContains(t, m.(*pgproto3.ErrorResponse).Message, "secret")
	require.Equal(t, byte('E'), n.reads(t, "Z"))
	require.Equal(t, NoBegin, n.conn.BeginState())

	n = connected(t, nil)
	require.True(t, n.conn.Carry([]string{"RELEASE SAVEPOINT a", "SAVEPOINT a"}, nil))
	n.write(t, &pgproto3.Parse{Name: "p", Query: "SELEC"}, &pgproto3.Describe{}, &pgproto3.Sync{})
	n.sent(t, "PBECPBEC"+"PDS")
	n.answer(append(began, began...)...)
	n.answer(refusal, readyFor('E'))
	require.Equal(t, byte('E'), n.reads(t, "EZ"))
	require.True(t, n.conn.Drop())
	require.True(t, n.conn.Carry([]string{"SAVEPOINT a"}, nil))
	require.False(t, n.conn.Drop())
}

// TestWhatComesWhileSomethingWaitsKeepsItsOrder: half a notification comes with the answer to a ping.
func TestWhatComesWhileSomethingWaitsKeepsItsOrder(t *testing.T) {
	behind := encode(nil, &pgproto3.NotificationResponse{Channel: "n", Payload: "p"})
	for cut := range len(behind) {
		n := begins(t, nil)
		n.write(t, &pgproto3.Query{})
		n.answer(&pgproto3.EmptyQueryResponse{}, readyFor('I'))
		n.in.Write(behind[:cut])
		n.reads(t, "IZ")
		n.write(t, parsed...)
		n.sent(t, "Q"+"PBECPBES")
		n.in.Write(behind[cut:])
		n.answer(append(began, done, readyFor('T'))...)
		n.reads(t, "ACZ")
	}
}

// TestTheQuestionGoesBehindOneStatement, and pgx does not see its answer.
func TestTheQuestionGoesBehindOneStatement(t *testing.T) {
	prepares := []pgproto3.Message{&pgproto3.Parse{Name: "p", Query: "SELECT 1"}, &pgproto3.Describe{}, &pgproto3.Sync{}}
	row := &pgproto3.DataRow{Values: [][]byte{[]byte("t")}}
	for name, chunks := range map[string]func(io.Reader) io.Reader{"at once": nil, "in bytes": iotest.OneByteReader, "in halves": iotest.HalfReader} {
		for _, wrote := range []string{"t", "f"} {
			t.Run(name+" "+wrote, func(t *testing.T) {
				n := connected(t, chunks)
				var told []bool
				n.conn.Ask(func(wrote bool) { told = append(told, wrote) })
				n.write(t, prepares...)
				n.sent(t, "PDS")
				n.answer(&pgproto3.ParseComplete{}, &pgproto3.NoData{}, readyFor('I'))
				n.reads(t, "1nZ")
				n.write(t, parsed[1:]...)
				n.sent(t, "BE"+"PBEC"+"S")
				n.conn.DropQuestion() // too late
				n.answer(&pgproto3.BindComplete{}, row, notice, done)
				n.answer(&pgproto3.ParseComplete{}, &pgproto3.BindComplete{}, notice, &pgproto3.DataRow{Values: [][]byte{[]byte(wrote)}}, done, &pgproto3.CloseComplete{}, readyFor('I'))
				require.Equal(t, byte('I'), n.reads(t, "2DNCNZ"))
				require.Equal(t, []bool{wrote == "t"}, told)
				require.False(t, n.conn.Loaded())
				n.write(t, parsed...)
				n.sent(t, "PBES")
				n.answer(done, readyFor('I'))
				n.reads(t, "CZ")
				require.Len(t, told, 1)
			})
		}
	}
}

func TestAQuestionThatIsNotAnsweredTellsNobody(t *testing.T) {
	for name, answers := range map[string][]pgproto3.Message{
		"the statement fails": {&pgproto3.BindComplete{}, refusal, readyFor('I')},
		"the question fails":  {&pgproto3.BindComplete{}, done, &pgproto3.ParseComplete{}, refusal, readyFor('I')},
	} {
		t.Run(name, func(t *testing.T) {
			n := connected(t, nil)
			n.conn.Ask(func(bool) { t.Error("nobody knows") })
			n.write(t, parsed[1:]...)
			n.answer(answers...)
			n.reads(t, map[bool]string{true: "2EZ", false: "2CEZ"}[len(answers) == 3])
			require.False(t, n.conn.Loaded())
		})
	}
	for name, messages := range map[string][]pgproto3.Message{"nothing": nil, "a text": {query}, "several": append(parsed, parsed...)} {
		t.Run(name, func(t *testing.T) {
			n := connected(t, nil)
			n.conn.Ask(func(bool) { t.Error("it was not sent") })
			if messages != nil {
				n.write(t, messages...)
			}
			n.conn.DropQuestion()
			n.sent(t, map[string]string{"nothing": "", "a text": "Q", "several": "PBESPBES"}[name])
			require.False(t, n.conn.Loaded())
		})
	}
	n := begins(t, nil)
	n.conn.Ask(func(wrote bool) { require.False(t, wrote) })
	n.write(t, parsed...)
	n.sent(t, "PBEC"+"PBE"+"PBEC"+"S")

	n = connected(t, iotest.OneByteReader)
	told := 0
	require.True(t, n.conn.Carry(nil, tenant))
	n.conn.Ask(func(wrote bool) { require.True(t, wrote); told++ })
	n.write(t, parsed...)
	n.sent(t, "CPBEC"+"PBE"+"PBEC"+"S")
	n.answer(set...)
	n.answer(&pgproto3.ParseComplete{}, &pgproto3.BindComplete{}, done, &pgproto3.ParseComplete{}, &pgproto3.BindComplete{},
		&pgproto3.DataRow{Values: [][]byte{[]byte("t")}}, done, &pgproto3.CloseComplete{}, readyFor('I'))
	n.reads(t, "12CZ")
	require.Equal(t, 1, told)
}
