package sqltext

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

func TestSkipBodyEndsBehindTheStatementsOfTheBody(t *testing.T) {
	for src, want := range map[string]bool{
		"begin end x": true, "begin select case when a then b end; update end; end x": true,
		"begin": false, "begin select 1 end": false, "begin select 1; ": false, "begin 'end'": false,
	} {
		var s Statement
		s.begin(New(Language{Unknown: dialects.Suspect, Readings: []Reading{{}}}), src, 0)
		s.next()
		require.Equal(t, want, s.SkipBody(0) == dialects.Clean, src)
	}
}

func TestEffectsAreThoseOfNamesInAnyQuotesAndOfNoStrings(t *testing.T) {
	names := NewNames(Group[dialects.Effect]{1, "a"}, Group[dialects.Effect]{2, "b"})
	for src, want := range map[string]dialects.Effect{"a": 1, `c = x."B", A`: 3, "'a' c": 0, "c; a": 0, "": 0, "c -- a": 0} {
		require.Equal(t, want, statementOf(src, 0).Effects(0, names), src)
	}
}

func TestPastIsBehindTheClosingParenthesis(t *testing.T) {
	for src, want := range map[string]int{"(a) b": 3, "((a), (b)) c": 9, "(a": -1, "(a; b)": -1, "('a)' )": 3} {
		require.Equal(t, want, statementOf(src, 0).BehindClosingParen(0), src)
	}
}
