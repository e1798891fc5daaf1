package session

import (
	"context"
	"database/sql/driver"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/generic"
	"github.com/pooldriver/pooldriver/internal/config"
)

// setter is a server's session that has settings, and carries them if carries is true.
type setter struct {
	dialects.Session // whose other methods are not called
	carries          bool
	status           dialects.TxStatus
	set              [][]dialects.ContextSetting // by round trips
	carried          []dialects.ContextSetting   // by the present statement
	keeps            bool                        // sends nothing of the present statement
	fails            error
	answer           error                     // of the next statement
	sent             []dialects.ContextSetting // that the last statement has carried
}

// sender is the driver's connection of a setter.
type sender struct {
	driver.Conn // whose other methods are not called
	set         *setter
}

func (s sender) ExecContext(context.Context, string, []driver.NamedValue) (driver.Result, error) {
	s.set.sent = s.set.carried
	return driver.ResultNoRows, s.set.answer
}

// nobody is an owner whom nothing is told.
type nobody struct{ Owner }

func (nobody) Failed()                                   {}
func (nobody) Sending(context.Context, *Statement) error { return nil }

func (s *setter) Conn() driver.Conn                             { return sender{set: s} }
func (s *setter) Sent() (uint64, bool)                          { return 0, false }
func (s *setter) TxStatus() dialects.TxStatus                   { return s.status }
func (s *setter) CheckSettings([]dialects.ContextSetting) error { return nil }
func (s *setter) CarriesSettings() bool                         { return s.carries }
func (s *setter) DropSettings() (sent bool) {
	sent, s.carried = s.carried != nil && !s.keeps, nil
	return sent
}
func (s *setter) Clean(context.Context, dialects.Effect) (bool, error) { return true, nil }
func (s *setter) SetSettings(_ context.Context, settings []dialects.ContextSetting) error {
	s.set = append(s.set, settings)
	return s.fails
}

func (s *setter) CarrySettings(_ context.Context, settings []dialects.ContextSetting) error {
	s.carried = settings
	return s.fails
}

// settingsBed is a session, and how statements are executed on it.
func settingsBed(carries bool) (server *setter, s *Session, execute func(want []dialects.ContextSetting, effect dialects.Effect, fails error) (carried []dialects.ContextSetting, err error)) {
	server = &setter{carries: carries, status: dialects.TxNone}
	s = new(Session)
	s.Init(&Env{Config: &config.Config{Dialect: generic.Dialect{}}}, server, dialects.Traits{StatusKnown: true}, nobody{})
	s.Lend(false)
	return server, s, func(want []dialects.ContextSetting, effect dialects.Effect, fails error) (carried []dialects.ContextSetting, err error) {
		cargo, err := s.UseSettings(context.Background(), want, ToExecute)
		if err != nil {
			return nil, err
		}
		server.answer = fails
		_, err = s.Run(context.Background(), &Statement{Effect: effect, Cargo: cargo})
		if err != fails {
			return nil, err
		}
		return server.sent, nil
	}
}

var (
	settingsA = []dialects.ContextSetting{{Name: "app.tenant", Value: "a"}}
	settingsB = []dialects.ContextSetting{{Name: "app.tenant", Value: "b"}}
	errFailed = errors.New("failed")
)

func TestStatementsCarryTheirSettings(t *testing.T) {
	server, s, execute := settingsBed(true)
	const clean = dialects.Clean
	for i, step := range []struct {
		status  dialects.TxStatus // at the statement
		want    []dialects.ContextSetting
		effect  dialects.Effect
		fails   error
		carried []dialects.ContextSetting
	}{
		{dialects.TxNone, settingsA, clean, nil, settingsA},
		{dialects.TxNone, settingsA, clean, nil, settingsA}, // the last ones have ended
		{dialects.TxNone, nil, clean, nil, nil},
		{dialects.TxNone, settingsA, dialects.TxControl, nil, settingsA}, // a script that begins
		{dialects.TxOpen, nil, clean, nil, settingsA},
		{dialects.TxOpen, settingsA, clean, nil, nil}, // they are in force
		{dialects.TxOpen, nil, clean, errFailed, nil},
		{dialects.TxFailed, nil, dialects.TxControl, nil, nil}, // nothing but the end is accepted
		{dialects.TxOpen, nil, clean, nil, settingsA},          // a savepoint was rolled back
		{dialects.TxOpen, nil, dialects.Stateful, nil, nil},    // SET
		{dialects.TxOpen, nil, clean, nil, settingsA},
		{dialects.TxNone, settingsB, clean, nil, settingsB},
		{dialects.TxNone, nil, clean, nil, nil},
	} {
		server.status = step.status
		carried, err := execute(step.want, step.effect, step.fails)
		require.NoError(t, err, i)
		require.Equal(t, step.carried, carried, i)
	}
	server.status = dialects.TxOpen
	_, err := execute(settingsA, clean, nil)
	require.ErrorIs(t, err, ErrOtherSettings)
	require.Empty(t, server.set)

	// They are in force when they were sent, and not when a statement was to carry them.
	server.status = dialects.TxNone
	_, err = s.UseSettings(context.Background(), settingsA, ToPrepare) // BEGIN
	require.NoError(t, err)
	server.status = dialects.TxOpen
	_, err = s.UseSettings(context.Background(), nil, ToExecute)
	require.NoError(t, err, "of a statement that is not sent")
	for _, keeps := range []bool{true, false} {
		server.keeps = keeps
		carried, err := execute(nil, clean, nil)
		require.NoError(t, err)
		require.Equal(t, settingsA, carried)
	}
	carried, err := execute(nil, clean, nil)
	require.NoError(t, err)
	require.Nil(t, carried)

	server.status = dialects.TxNone
	_, err = execute(settingsA, clean, nil)
	require.NoError(t, err)
	s.GiveBack()
	s.Lend(false)
	require.False(t, s.HasSettings(), "nothing is left for the next borrower to look at")
}

func TestSettingsOfASessionChangeByRoundTrips(t *testing.T) {
	server, s, execute := settingsBed(false)
	var want [][]dialects.ContextSetting
	requireSet := func(settings []dialects.ContextSetting, effect dialects.Effect, fails error, more ...[]dialects.ContextSetting) {
		t.Helper()
		carried, err := execute(settings, effect, fails)
		require.NoError(t, err)
		require.Nil(t, carried)
		want = append(want, more...)
		require.Equal(t, want, server.set)
	}
	requireSet(nil, dialects.Clean, nil)
	requireSet(settingsA, dialects.Clean, errFailed, settingsA)
	requireSet(settingsA, dialects.Stateful, nil)
	requireSet(settingsA, dialects.Clean, nil, settingsA)
	server.status = dialects.TxOpen
	requireSet(nil, dialects.Clean, nil) // they are the transaction's
	_, err := execute(settingsB, dialects.Clean, nil)
	require.ErrorIs(t, err, ErrOtherSettings)
	server.status = dialects.TxNone
	s.GiveBack()
	s.Lend(false)
	require.True(t, s.HasSettings(), "of the last borrower")
	requireSet(nil, dialects.Clean, nil, nil)
	require.False(t, s.HasSettings())

	requireSet(settingsB, dialects.Clean, nil, settingsB)
	err = s.Clean(t.Context(), false)
	require.NoError(t, err)
	requireSet(nil, dialects.Clean, nil)

	server.fails = errFailed
	_, err = execute(settingsA, dialects.Clean, nil)
	require.ErrorIs(t, err, errFailed)
	require.False(t, s.Unusable())
	_, err = execute(nil, dialects.Clean, nil)
	require.ErrorIs(t, err, errFailed)
	require.True(t, s.Unusable(), "they may be in force")
}
