package session

import (
	"context"
	"errors"
	"slices"

	"github.com/pooldriver/pooldriver/dialects"
)

// Settings of contexts. A dialect has one of two ways to put them in force. A
// SettingsCarrier sends them with each statement, and they end with the statement or with
// its transaction. A SettingsSetter sets them on the session by a round trip, where they
// stay until an operation wants others. Each operation of each borrower says what it wants
// before it sends anything, so that no settings reach a statement that has others or none.

// settings has what is known of the settings on a session.
type settings struct {
	// want is the settings that the last operation outside of a transaction has asked for.
	// While a transaction is open, it is the settings that the begin has asked for.
	want []dialects.ContextSetting
	// held is what was set on the session by a round trip, also if that has failed.
	held []dialects.ContextSetting
	// inForce: held, or in a transaction want, is in force on the server, as far as is
	// known. A failed statement, and one that may set something itself, ends that.
	inForce bool
}

// Cargo is the settings that a statement has to carry. It belongs to the statement, and not to the
// session, so no other statement can carry it.
type Cargo struct {
	settings []dialects.ContextSetting
	inTx     bool // they are in force until the end of the transaction that is open
}

// ErrOtherSettings is the answer to an operation in a transaction that has other settings.
var ErrOtherSettings = errors.New("pooldriver: this statement is part of a transaction that began with other settings (WithSettings): begin the transaction with the settings of the statement, or give the statement a context of NewTask")

var errNoSettings = errors.New("its dialect has none")

// HasSettings reports whether an operation without settings has to call UseSettings, too.
func (s *Session) HasSettings() bool { return s.settings.want != nil || s.settings.held != nil }

// Use says for what an operation needs its settings.
type Use uint8

// The uses.
const (
	ToPrepare Use = iota // a statement, or a transaction
	ToExecute            // a statement
	ToLend               // the driver's connection
)

// UseSettings puts the settings of an operation in force, or returns what its statement has to
// carry. In a transaction the transaction's settings hold: an operation in it must have the same
// settings or none.
func (s *Session) UseSettings(ctx context.Context, want []dialects.ContextSetting, use Use) (Cargo, error) {
	st := &s.settings
	if err := s.checkSettings(want); err != nil {
		return Cargo{}, err
	}
	if s.deferred == nil && s.InTx() {
		if want != nil && !slices.Equal(want, st.want) {
			return Cargo{}, ErrOtherSettings
		}
		return s.useSettingsInTx(ctx, use)
	}
	st.want = want
	switch {
	case s.carrier != nil && st.held == nil && use != ToLend:
		st.inForce = false
		if use != ToExecute {
			return Cargo{}, nil
		}
		return Cargo{settings: want}, nil
	case slices.Equal(want, st.held) && (st.inForce || want == nil):
		return Cargo{}, nil
	}
	return Cargo{}, s.setSettings(ctx, want)
}

func (s *Session) checkSettings(want []dialects.ContextSetting) error {
	if want == nil {
		return nil
	}
	checker, ok := s.server.(dialects.SettingsChecker)
	if !ok {
		return errNoSettings
	}
	return checker.CheckSettings(want)
}

// useSettingsInTx is UseSettings in a transaction, with the settings that the begin has asked
// for. If a round trip has set them, it has done so before the transaction began: a rollback does
// not undo them.
func (s *Session) useSettingsInTx(ctx context.Context, use Use) (Cargo, error) {
	st := &s.settings
	switch {
	case st.want == nil || st.inForce || s.carrier == nil || st.held != nil:
		return Cargo{}, nil
	case s.TxStatus() == dialects.TxFailed: // the server refuses everything but the end of the transaction
		return Cargo{}, nil
	case use == ToExecute:
		return Cargo{settings: st.want, inTx: true}, nil
	case use == ToLend: // no statement of the loan carries them
		return Cargo{}, s.callSetter(ctx, s.carrier, st.want)
	}
	return Cargo{}, nil
}

func (s *Session) callSetter(ctx context.Context, setter dialects.SettingsSetter, want []dialects.ContextSetting) error {
	s.call()
	var err error
	if s.guard != nil {
		err = s.guard.SetSettings(ctx, want)
	} else {
		err = setter.SetSettings(ctx, want)
	}
	s.returned()
	return err
}

// setSettings sets want on the session. If the settings of an earlier borrower cannot be set
// back, the session is closed.
func (s *Session) setSettings(ctx context.Context, want []dialects.ContextSetting) error {
	setter, ok := s.server.(dialects.SettingsSetter)
	if !ok {
		return errNoSettings
	}
	st := &s.settings
	if s.traits.PreparedKeepsTypes && !sameNames(want, st.held) {
		s.stmts.MarkAllStale() // they keep the types that variables had
	}
	st.inForce = false
	err := s.callSetter(ctx, setter, want)
	switch {
	case s.carrier != nil && s.guard != nil: // they end before the next statement
	case err == nil:
		st.held, st.inForce = want, true
	case want == nil:
		s.MarkUnusable()
	case st.held == nil:
		st.held = want // perhaps
	}
	return err
}

func sameNames(a, b []dialects.ContextSetting) bool {
	return slices.EqualFunc(a, b, func(a, b dialects.ContextSetting) bool { return a.Name == b.Name })
}

// ReadBySettings reports whether the server reads the texts of the present operation by settings of
// a context. Then nothing that was prepared is executed, and nothing is kept.
func (s *Session) ReadBySettings() bool {
	st := &s.settings
	return (st.want != nil || st.held != nil) && s.rereader != nil && (s.rereader.Rereads(st.want) || s.rereader.Rereads(st.held))
}

// sendWithSettings sends st, which carries settings.
func (s *Session) sendWithSettings(ctx context.Context, st *Statement) error {
	if s.guard != nil { // the guard sends the settings with st
		err := s.send(ctx, st)
		s.settings.inForce = s.settings.inForce || st.Cargo.inTx && err == nil
		return err
	}
	err := s.carrier.CarrySettings(ctx, st.Cargo.settings)
	switch {
	case err != nil:
	case st.Wrote != nil && st.prepared == nil:
		err = s.sendAsking(ctx, st)
	default:
		err = s.send(ctx, st)
	}
	if sent := s.carrier.DropSettings(); sent && st.Cargo.inTx && err == nil {
		s.settings.inForce = true
	}
	return err
}

// doubt is called after an event that may have undone the settings of a transaction: a failed
// statement, the end of a savepoint. all: the event may also have changed the session.
func (st *settings) doubt(all bool) { st.inForce = st.inForce && st.held != nil && !all }
