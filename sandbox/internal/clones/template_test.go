package clones

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// fakeServer counts what a template asks of its server.
type fakeServer struct {
	server
	prepared int
	err      error
}

func (s *fakeServer) prepare(context.Context) (recipe, error) {
	s.prepared++
	return recipe{template: "it"}, s.err
}

func testTemplate() *template {
	return &template{keep: time.Hour, turn: make(chan struct{}, 1)}
}

func TestATemplateIsPreparedAgainLongBeforeItsTimeIsOver(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		template, s := testTemplate(), &fakeServer{}
		for range 4 {
			r, err := template.prepare(t.Context(), s, t.Name())
			require.NoError(t, err)
			require.Equal(t, "it", r.template)
			time.Sleep(20 * time.Minute)
		}
		require.Equal(t, 2, s.prepared, "at the beginning and after 40 minutes")
	})
}

func TestATemplateIsPreparedAgainAfterAnErrorThatIsNotTheMigrations(t *testing.T) {
	t.Parallel()
	template, s := testTemplate(), &fakeServer{err: errors.New("no such server")}
	for range 2 {
		_, err := template.prepare(t.Context(), s, "TestFirst")
		require.ErrorIs(t, err, s.err)
	}
	s.err = &MigrationError{Err: errors.New("no such column")}
	for range 2 {
		_, err := template.prepare(t.Context(), s, "TestSecond")
		require.ErrorContains(t, err, "no such column")
	}
	require.Equal(t, 3, s.prepared)
	_, err := template.prepare(t.Context(), s, "TestThird")
	var broken *MigrationError
	require.ErrorAs(t, err, &broken)
	require.Equal(t, "TestSecond", broken.Test)
}
