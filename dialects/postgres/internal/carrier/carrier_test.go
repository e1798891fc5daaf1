package carrier

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

// script is a network: what is to come from it, and what went out.
type script struct {
	in, out bytes.Buffer
	chunks  func(io.Reader) io.Reader
}

// held returns a carrier that holds a BEGIN, whose answer has been read.
func (s *script) held(t *testing.T) *Carrier {
	t.Helper()
	c := s.idleCarrier(t)
	require.True(t, c.AwaitBegin())
	s.write(t, c, &pgproto3.Query{String: "begin"})
	require.Equal(t, byte('T'), requireTypes(t, c, "CZ"))
	require.Zero(t, s.out.Len())
	return c
}

func (s *script) write(t *testing.T, c *Carrier, messages ...pgproto3.Message) {
	t.Helper()
	var p []byte
	for _, m := range messages {
		p = append(p, encode(nil, m)...)
	}
	n, err := c.Write(p)
	require.NoError(t, err)
	require.Equal(t, len(p), n)
}

func (s *script) answer(t *testing.T, messages ...pgproto3.Message) {
	t.Helper()
	for _, m := range messages {
		s.in.Write(encode(nil, m))
	}
}

// requireTypes reads messages of these types, and returns the last one's status.
func requireTypes(t *testing.T, c *Carrier, types string) (status byte) {
	t.Helper()
	for i := range types {
		m, err := c.frontend.Receive()
		require.NoError(t, err)
		require.Equal(t, types[i], encode(nil, m)[0], "message %d of %s", i, types)
		if z, ok := m.(*pgproto3.ReadyForQuery); ok {
			status = z.TxStatus
		}
	}
	return status
}

// requireSent takes what went out, and compares the types of the messages.
func (s *script) requireSent(t *testing.T, want string) {
	t.Helper()
	var types []byte
	for p := s.out.Bytes(); len(p) > 0; {
		msg, err := firstMessage(p)
		require.NoError(t, err)
		require.NotNil(t, msg)
		types = append(types, msg[0])
		p = p[len(msg):]
	}
	require.Equal(t, want, string(types))
	s.out.Reset()
}

var (
	beginOK = []pgproto3.Message{&pgproto3.ParseComplete{}, &pgproto3.BindComplete{},
		&pgproto3.CommandComplete{CommandTag: []byte("BEGIN")}, &pgproto3.CloseComplete{}}
	insertDone = []pgproto3.Message{&pgproto3.CommandComplete{CommandTag: []byte("INSERT 0 1")}, &pgproto3.ReadyForQuery{TxStatus: 'T'}}
	refused    = &pgproto3.ErrorResponse{Severity: "ERROR", Code: "57014", Message: "canceled"}
	notice     = &pgproto3.NoticeResponse{Severity: "WARNING", Message: "by the way"}
	parsed     = []pgproto3.Message{&pgproto3.Parse{Query: "INSERT"}, &pgproto3.Bind{}, &pgproto3.Execute{}, &pgproto3.Sync{}}
)

func TestAnswersToACarriedBeginAreTakenOutHoweverTheyAreCut(t *testing.T) {
	for name, chunks := range map[string]func(io.Reader) io.Reader{
		"at once": nil, "byte by byte": iotest.OneByteReader, "in halves": iotest.HalfReader, "with the error": iotest.DataErrReader,
	} {
		t.Run(name, func(t *testing.T) {
			s := &script{chunks: chunks}
			c := s.held(t)
			s.write(t, c, &pgproto3.Query{String: "INSERT"})
			s.requireSent(t, "PBECQ")
			s.answer(t, beginOK[0], beginOK[1], notice)
			s.answer(t, beginOK[2:]...)
			s.answer(t, insertDone...)
			require.Equal(t, byte('T'), requireTypes(t, c, "NCZ"))
			_, err := c.frontend.Receive()
			require.ErrorIs(t, err, io.ErrUnexpectedEOF)
			s.write(t, c, &pgproto3.Query{String: "commit"})
			s.requireSent(t, "Q")
			require.False(t, c.busy.Load())
		})
	}
}

// A server can refuse at any of BEGIN's messages, or be cancelled right after it.
func TestBeginThatFailsAtAnyOfItsMessagesEndsTheStatement(t *testing.T) {
	for answered := range len(beginOK) {
		for _, simple := range []bool{true, false} {
			s := &script{chunks: iotest.OneByteReader}
			c := s.held(t)
			s.answer(t, beginOK[:answered]...)
			s.answer(t, refused)
			status := byte('I')
			if answered == len(beginOK)-1 {
				status = 'E' // it is open, and has failed
			}
			s.answer(t, &pgproto3.ReadyForQuery{TxStatus: status})
			want := "PBECPBES"
			if simple {
				s.write(t, c, &pgproto3.Query{String: "INSERT"})
				want = "PBECQS"
			} else {
				s.write(t, c, parsed...)
			}
			require.Equal(t, byte('E'), requireTypes(t, c, "EZ"))
			s.requireSent(t, want)
		}
	}
}

func TestSeveralStatementsWaitUntilBeginIsAnswered(t *testing.T) {
	several := append(append([]pgproto3.Message{}, parsed...), parsed...)
	s := &script{}
	c := s.held(t)
	s.answer(t, beginOK...)
	s.answer(t, &pgproto3.ReadyForQuery{TxStatus: 'T'})
	s.write(t, c, several...)
	s.requireSent(t, "PBECSPBESPBES")
	s.answer(t, insertDone...)
	require.Equal(t, byte('T'), requireTypes(t, c, "CZ"))

	// And in the next transaction a Close in front of all has its answer.
	s.in.WriteString(idle)
	requireTypes(t, c, "Z")
	require.True(t, c.AwaitBegin())
	s.write(t, c, &pgproto3.Query{String: "begin"})
	requireTypes(t, c, "CZ")
	s.write(t, c, &pgproto3.Close{ObjectType: 'S', Name: "x"}, &pgproto3.Sync{})
	s.requireSent(t, "CS")
	s.answer(t, &pgproto3.CloseComplete{}, &pgproto3.ReadyForQuery{TxStatus: 'I'})
	require.Equal(t, byte('T'), requireTypes(t, c, "3Z"))

	for answered := range len(beginOK) - 1 {
		s = &script{}
		c = s.held(t)
		s.answer(t, beginOK[:answered]...)
		s.answer(t, refused, &pgproto3.ReadyForQuery{TxStatus: 'I'})
		s.write(t, c, several...)
		s.requireSent(t, "PBECS")
		require.Equal(t, byte('E'), requireTypes(t, c, "EZEZ"))
	}

	s = &script{}
	c = s.held(t)
	s.write(t, c, parsed...)
	s.answer(t, refused, &pgproto3.ReadyForQuery{TxStatus: 'I'})
	s.write(t, c, parsed...) // before the first one's answer was read
	s.requireSent(t, "PBECPBES")
	require.Equal(t, byte('E'), requireTypes(t, c, "EZEZ"))
	s.write(t, c, &pgproto3.Close{ObjectType: 'S', Name: "x"}, &pgproto3.Sync{})
	s.requireSent(t, "CS")
	s.answer(t, &pgproto3.CloseComplete{}, &pgproto3.ReadyForQuery{TxStatus: 'I'})
	require.Equal(t, byte('E'), requireTypes(t, c, "3Z"))
	s.write(t, c, &pgproto3.CopyData{Data: []byte("x")}, &pgproto3.CopyDone{})
	s.write(t, c, &pgproto3.Query{String: "rollback"})
	require.Equal(t, byte('I'), requireTypes(t, c, "CZ"))
	s.requireSent(t, "")
	s.write(t, c, &pgproto3.Query{String: "INSERT"})
	s.requireSent(t, "Q")
}

func TestCarrierAwaitsNoBeginInTheMiddleOfAMessage(t *testing.T) {
	behind := encode(nil, &pgproto3.NotificationResponse{Channel: "n", Payload: "p"})
	for cut := 1; cut <= len(behind); cut++ {
		s := &script{}
		c := newCarrier(&s.in, &s.out, &gate{}, pgproto3.NewFrontend)
		require.False(t, c.AwaitBegin(), "it has not begun")
		s.in.WriteString(idle)
		s.in.Write(behind[:cut])
		requireTypes(t, c, "Z")
		require.False(t, c.AwaitBegin(), "%d bytes of a notification have come", cut)
	}
}

func TestFarewellTakesNoBeginWithIt(t *testing.T) {
	s := &script{}
	c := s.held(t)
	_, err := c.Write(append(encode(nil, parsed[0]), goodbye...))
	require.NoError(t, err)
	s.requireSent(t, "X")
}

func TestAnswerToBeginThatMakesNoSenseIsAnError(t *testing.T) {
	s := &script{}
	c := s.held(t)
	s.write(t, c, parsed...)
	s.answer(t, &pgproto3.ReadyForQuery{TxStatus: 'I'})
	_, err := c.frontend.Receive()
	require.ErrorContains(t, err, "answered BEGIN or settings with a message of type 'Z'")
}

var (
	tenant      = []dialects.ContextSetting{{Name: "app.tenant", Value: "secret"}}
	settingsSet = []pgproto3.Message{&pgproto3.CloseComplete{}, &pgproto3.ParseComplete{}, &pgproto3.BindComplete{},
		&pgproto3.DataRow{Values: [][]byte{[]byte("secret")}}, &pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")}, &pgproto3.CloseComplete{}}
	selected = []pgproto3.Message{&pgproto3.CommandComplete{CommandTag: []byte("SELECT 1")}, &pgproto3.ReadyForQuery{TxStatus: 'I'}}
)

// idleCarrier returns a carrier with nothing under way.
func (s *script) idleCarrier(t *testing.T) *Carrier {
	t.Helper()
	var r io.Reader = &s.in
	if s.chunks != nil {
		r = s.chunks(r)
	}
	c := newCarrier(r, &s.out, &gate{}, pgproto3.NewFrontend)
	s.in.WriteString(idle)
	requireTypes(t, c, "Z")
	return c
}

func TestAStatementCarriesSettingsAndTheirAnswersAreTakenOut(t *testing.T) {
	for _, chunks := range []func(io.Reader) io.Reader{nil, iotest.OneByteReader, iotest.HalfReader} {
		s := &script{chunks: chunks}
		c := s.idleCarrier(t)
		for range 2 {
			require.True(t, c.CarrySettings(tenant))
			s.write(t, c, &pgproto3.Query{}) // pings pass
			s.requireSent(t, "Q")
			s.answer(t, &pgproto3.EmptyQueryResponse{}, &pgproto3.ReadyForQuery{TxStatus: 'I'})
			require.Equal(t, byte('I'), requireTypes(t, c, "IZ"))
			s.write(t, c, &pgproto3.Parse{Name: "p", Query: "SELECT 1"}, &pgproto3.Describe{}, &pgproto3.Sync{}) // executes nothing
			s.requireSent(t, "PDS")
			s.answer(t, &pgproto3.ParseComplete{}, &pgproto3.NoData{}, &pgproto3.ReadyForQuery{TxStatus: 'I'})
			requireTypes(t, c, "1nZ")

			s.write(t, c, parsed...)
			s.requireSent(t, "CPBEC"+"PBES")
			s.answer(t, settingsSet...)
			s.answer(t, notice, &pgproto3.ParseComplete{}, &pgproto3.BindComplete{})
			s.answer(t, selected...)
			require.Equal(t, byte('I'), requireTypes(t, c, "N12CZ"))
			c.Unload()
			s.write(t, c, parsed...)
			s.requireSent(t, "PBES")
			s.answer(t, selected...)
			requireTypes(t, c, "CZ")
			require.False(t, c.busy.Load())
		}
	}
}

// TestWhatASimpleQueryWithSettingsLeavesOpenIsEnded: the server says T behind the query.
func TestWhatASimpleQueryWithSettingsLeavesOpenIsEnded(t *testing.T) {
	for _, text := range []string{"SELECT 1", "SELECT 1 /* " + strings.Repeat("x", onePacket) + " */"} {
		s := &script{chunks: iotest.OneByteReader}
		c := s.idleCarrier(t)
		require.True(t, c.CarrySettings(tenant))
		s.write(t, c, &pgproto3.Query{String: text})
		s.requireSent(t, "CPBEC"+"QPCS")
		s.answer(t, settingsSet...)
		s.answer(t, selected[0], &pgproto3.ReadyForQuery{TxStatus: 'T'}, &pgproto3.ParseComplete{}, &pgproto3.CloseComplete{}, &pgproto3.ReadyForQuery{TxStatus: 'I'})
		require.Equal(t, byte('I'), requireTypes(t, c, "CZ"))
		require.True(t, c.Passing())
	}
}

// TestSettingsThatAreRefusedAreTheStatementsError at any of their messages.
func TestSettingsThatAreRefusedAreTheStatementsError(t *testing.T) {
	for answered := range len(settingsSet) {
		for _, simple := range []bool{true, false} {
			s := &script{chunks: iotest.OneByteReader}
			c := s.idleCarrier(t)
			require.True(t, c.CarrySettings(tenant))
			s.answer(t, settingsSet[:answered]...)
			s.answer(t, &pgproto3.ErrorResponse{Severity: "ERROR", Code: "22023", Message: `invalid value: "secret"`, Detail: "secret", Hint: "secret"})
			s.answer(t, &pgproto3.ReadyForQuery{TxStatus: 'I'})
			want := "CPBEC" + "PBES"
			if simple {
				s.write(t, c, &pgproto3.Query{String: "SELECT 1"})
				want = "CPBEC" + "QPCS"
			} else {
				s.write(t, c, parsed...)
			}
			s.requireSent(t, want)
			m, err := c.frontend.Receive()
			require.NoError(t, err)
			refused := m.(*pgproto3.ErrorResponse)
			require.Equal(t, "22023", refused.Code)
			require.Contains(t, refused.Message, "app.tenant")
			require.NotContains(t, fmt.Sprintf("%+v", refused), "secret")
			require.Equal(t, byte('I'), requireTypes(t, c, "Z"))
			c.Unload()
			s.write(t, c, parsed...)
			s.requireSent(t, "PBES")
			s.answer(t, selected...)
			requireTypes(t, c, "CZ")
		}
	}
}

// TestABeginCarriesSettings, which are refused behind it.
func TestABeginCarriesSettings(t *testing.T) {
	for _, refuses := range []bool{false, true} {
		s := &script{}
		c := s.held(t)
		require.True(t, c.CarrySettings(tenant))
		s.write(t, c, parsed...)
		s.requireSent(t, "PBEC"+"CPBEC"+"PBES")
		s.answer(t, beginOK...)
		if refuses {
			s.answer(t, settingsSet[:2]...)
			s.answer(t, &pgproto3.ErrorResponse{Severity: "ERROR", Code: "22023", Message: "secret"}, &pgproto3.ReadyForQuery{TxStatus: 'E'})
			m, err := c.frontend.Receive()
			require.NoError(t, err)
			require.NotContains(t, m.(*pgproto3.ErrorResponse).Message, "secret")
			require.Equal(t, byte('E'), requireTypes(t, c, "Z"))
			continue
		}
		s.answer(t, settingsSet...)
		s.answer(t, insertDone...)
		require.Equal(t, byte('T'), requireTypes(t, c, "CZ"))
	}
}

func TestSettingsAreNotCarriedByWhatTheyWouldNotHoldFor(t *testing.T) {
	s := &script{}
	c := s.idleCarrier(t)
	require.True(t, c.CarrySettings(tenant))
	_, err := c.Write(append(encode(nil, &pgproto3.Execute{}), append(bytes.Clone(syncMessage), append(encode(nil, &pgproto3.Execute{}), syncMessage...)...)...))
	require.ErrorIs(t, err, errLoaded)
	require.Zero(t, s.out.Len())
	c.Unload()

	s.answer(t, notice) // half of it has come with the last answer
	s.in.Truncate(s.in.Len() - 1)
	_, err = c.frontend.Receive()
	require.Error(t, err)
	require.False(t, c.CarrySettings(tenant))
}

// TestWhatIsSentAheadGoesBeforeAParse: an error of the Parse must find the savepoint.
func TestWhatIsSentAheadGoesBeforeAParse(t *testing.T) {
	var s script
	c := s.idleCarrier(t)
	require.True(t, c.CarryAhead([]string{"RELEASE SAVEPOINT a", "SAVEPOINT a"}, nil))
	s.write(t, c, &pgproto3.Parse{Name: "p", Query: "SELEC"}, &pgproto3.Describe{ObjectType: 'S', Name: "p"}, &pgproto3.Sync{})
	s.requireSent(t, "PBECPBEC"+"PDS")
	for range 2 {
		s.answer(t, &pgproto3.ParseComplete{}, &pgproto3.BindComplete{}, &pgproto3.CommandComplete{CommandTag: []byte("SAVEPOINT")}, &pgproto3.CloseComplete{})
	}
	s.answer(t, &pgproto3.ErrorResponse{Code: "42601"}, &pgproto3.ReadyForQuery{TxStatus: 'E'})
	require.Equal(t, byte('E'), requireTypes(t, c, "EZ"))
	require.True(t, c.Unload())
}

func TestWhatIsSentAheadWaitsForAStatement(t *testing.T) {
	var s script
	c := s.idleCarrier(t)
	require.True(t, c.CarryAhead([]string{"SAVEPOINT a"}, nil))
	s.write(t, c, &pgproto3.Close{ObjectType: 'S', Name: "old"}, &pgproto3.Sync{}) // fails nothing
	s.requireSent(t, "CS")
	require.False(t, c.Unload())
}

func TestStatementsWithNamesAreCounted(t *testing.T) {
	s := &script{}
	c := s.idleCarrier(t)
	counted := func(prepared, executed uint64, messages ...pgproto3.Message) {
		t.Helper()
		beforePrepared, beforeExecuted := c.Kept()
		s.write(t, c, messages...)
		nowPrepared, nowExecuted := c.Kept()
		require.Equal(t, [2]uint64{prepared, executed}, [2]uint64{nowPrepared - beforePrepared, nowExecuted - beforeExecuted})
	}
	counted(0, 0, parsed...)
	counted(0, 0, &pgproto3.Query{String: "SELECT 1"})
	counted(1, 0, &pgproto3.Parse{Name: "kept", Query: "SELECT 1"}, &pgproto3.Describe{ObjectType: 'S', Name: "kept"}, &pgproto3.Sync{})
	counted(0, 2, &pgproto3.Bind{PreparedStatement: "kept"}, &pgproto3.Execute{}, &pgproto3.Bind{PreparedStatement: "kept", DestinationPortal: "p"}, &pgproto3.Sync{})
	_, err := c.Write([]byte{'P', 0, 0, 0, 4, 'B', 0, 0, 0, 4, 'B', 0})
	require.NoError(t, err)
}
