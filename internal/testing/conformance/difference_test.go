package conformance

import (
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDifferencesArePermittedOnlyWhereTheyAreListed(t *testing.T) {
	see := func(notes ...note) *Env { return &Env{notes: notes} }
	bare, wrapped := see(note{"a", "1"}, note{"b", "2"}), see(note{"a", "1"}, note{"b", "3"})
	require.Len(t, differing("Case", nil, bare, wrapped), 1)
	three := Difference{Case: "Case", Label: "b", Permits: becomes("3")}
	require.Empty(t, differing("Case", []Difference{three}, bare, wrapped))
	require.Len(t, differing("Other", []Difference{three}, bare, wrapped), 1)
	four := Difference{Case: "Case", Label: "b", Permits: becomes("4")}
	require.Len(t, differing("Case", []Difference{four}, bare, wrapped), 1)
	require.Len(t, differing("Case", nil, bare, see(note{"a", "1"})), 1, "one observation less")
	require.Len(t, differing("Case", nil, see(), wrapped), 1, "different ways")
}

func TestNotMoreComparesNumbers(t *testing.T) {
	require.True(t, notMore(describe(3), describe(1)))
	require.False(t, notMore(describe(3), describe(4)))
	require.False(t, notMore(describe("3"), describe(1)))
}

func TestExplainedErrorsStayTheErrorsTheyWere(t *testing.T) {
	bare := describeError(fmt.Errorf("refused: %w", errBoom))
	good := describeError(fmt.Errorf("pooldriver: connecting: %w", fmt.Errorf("refused: %w", errBoom)))
	require.True(t, explained(bare, good))
	require.False(t, explained(bare, describeError(fmt.Errorf("connecting: refused: %w", errBoom))), "whose text is that")
	require.False(t, explained(bare, describeError(errors.New("pooldriver: connecting: refused: boom"))), "the error is lost")
	require.False(t, explained(bare, describeError(fmt.Errorf("pooldriver: %w", errBoom))), "the text is lost")
	require.False(t, explained(bare, describeError(nil)))
	require.False(t, explained(describeError(nil), good))
	require.True(t, failing(describeError(nil), good))
	require.False(t, failing(bare, good))
}

func TestCaughtPanicsMustSayWhatTheyWere(t *testing.T) {
	require.True(t, caughtPanic("panic "+describe("ouch"), describeError(errors.New("pooldriver: panic: ouch"))))
	require.False(t, caughtPanic("panic "+describe("ouch"), describeError(errors.New("pooldriver: panic"))))
	require.False(t, caughtPanic("panic "+describe("ouch"), describeError(nil)))
	require.False(t, caughtPanic(describeError(errBoom), describeError(errors.New("pooldriver: boom"))))
}
