package behaviour

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver"
	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/internal/testing/stubdialect"
)

// askingStub is a stub whose template asks for credentials beside its dials.
type askingStub struct {
	*credentialStub
	ask func(context.Context, dialects.Credential) (dialects.Credential, error)
}

func (s *askingStub) AskCredentials(ask func(context.Context, dialects.Credential) (dialects.Credential, error)) {
	s.ask = ask
}

func newAskingStub(t *testing.T, source pooldriver.CredentialSource) (*askingStub, *pooldriver.Connector) {
	t.Helper()
	s := &askingStub{credentialStub: &credentialStub{Stub: stubdialect.New(dialects.Traits{})}}
	c := pooldriver.Wrap(stubdialect.Connector(s), quiet, func(c *pooldriver.Config) { c.Credentials = source })
	t.Cleanup(func() { require.NoError(t, c.Close()) })
	return s, c
}

func TestATemplateThatAsksLearnsTheCredentialOfNow(t *testing.T) {
	calls, lasts := 0, time.Hour
	s, c := newAskingStub(t, func(context.Context) (pooldriver.Credential, error) {
		calls++
		cred := pooldriver.Credential{User: "app", Password: fmt.Sprint(calls)}
		if lasts > 0 {
			cred.Expires = time.Now().Add(lasts)
		}
		return cred, nil
	})
	for _, step := range []struct{ refused, want string }{
		{"0", "1"}, // nobody has asked before
		{"0", "1"}, // it is good for an hour
		{"1", "2"}, // but the server says no
		{"1", "2"},
	} {
		cred, err := s.ask(t.Context(), pooldriver.Credential{User: "app", Password: step.refused})
		require.NoError(t, err)
		require.Equal(t, step.want, cred.Password)
	}
	lasts = 0
	_, err := s.ask(t.Context(), pooldriver.Credential{User: "app", Password: "2"})
	require.NoError(t, err)
	_, err = s.ask(t.Context(), pooldriver.Credential{User: "app", Password: "3"})
	require.NoError(t, err)
	require.Equal(t, 4, calls, "one without a date is asked for each time, once")

	require.NoError(t, c.Close())
	_, err = s.ask(t.Context(), pooldriver.Credential{})
	require.ErrorIs(t, err, context.Canceled)
	require.Equal(t, 4, calls, "nor is the source of a closed pool asked")
}

func TestASourceThatFailsOrPanicsIsAnErrorToATemplateThatAsks(t *testing.T) {
	sealed, calls := errors.New("sealed"), 0
	s, _ := newAskingStub(t, func(context.Context) (pooldriver.Credential, error) {
		if calls++; calls == 1 {
			return pooldriver.Credential{}, sealed
		}
		panic("vault")
	})
	_, err := s.ask(t.Context(), pooldriver.Credential{})
	require.ErrorIs(t, err, sealed)
	_, err = s.ask(t.Context(), pooldriver.Credential{})
	require.ErrorContains(t, err, "panicked")
}

func TestATemplateIsGivenNothingToAskWithoutASource(t *testing.T) {
	s, _ := newAskingStub(t, nil)
	require.Nil(t, s.ask)
}
