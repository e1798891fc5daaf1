package sqltext

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func lexerOf(src string) *Lexer {
	var lx Lexer
	lx.Init(src, NewRules(0), Reading{})
	return &lx
}

func TestBeginStatementGoesOverTheStatementsAndEndsWithTheText(t *testing.T) {
	lx := lexerOf("a (b; ; c(';') /* ; */")
	var firsts []string
	for lx.BeginStatement() {
		require.Zero(t, lx.Depth())
		lx.Next()
		firsts = append(firsts, lx.Text())
		lx.SkipStatement()
	}
	require.Equal(t, []string{"a", ";", "c"}, firsts)
	require.False(t, lx.BeginStatement())
}

func TestSkipStatementNotingFindsNamesInAnyQuotesAndNoStrings(t *testing.T) {
	names := NewNames(Group{1, "a"}, Group{2, "b"})
	for src, want := range map[string]uint8{
		"a": 1, `c = x."B", A`: 3, "'a' c": 0, "c; a": 0, "": 0, "c -- a": 0,
	} {
		lx := lexerOf(src)
		lx.Next()
		require.Equal(t, want, lx.SkipStatementNoting(names), src)
		require.True(t, lx.Ended(), src)
	}
}

func TestSkipBodyEndsBehindTheStatementsOfTheBody(t *testing.T) {
	for src, want := range map[string]bool{
		"begin end x": true, "begin select case when a then b end; update end; end x": true,
		"begin": false, "begin select 1 end": false, "begin select 1; ": false, "begin 'end'": false,
	} {
		lx := lexerOf(src)
		lx.Next()
		require.Equal(t, want, lx.SkipBody(), src)
		if want {
			lx.Next()
			require.Equal(t, "x", lx.Text(), src)
		}
	}
}

func TestSkipWordsStopsAtTheFirstOtherToken(t *testing.T) {
	words := NewNames(Group{Modifier, "or replace"}, Group{Temporary, "temp"})
	for src, want := range map[string]struct {
		codes uint8
		next  string
	}{
		"create table temp":            {0, "table"},
		"create Or REPLACE table":      {Modifier, "table"},
		"create temp table":            {Temporary, "table"},
		"create or replace temp table": {Modifier | Temporary, "table"},
		`create temp "temp"`:           {Temporary, `"temp"`},
		"create temp":                  {Temporary, ""},
	} {
		lx := lexerOf(src)
		lx.Next()
		require.Equal(t, want.codes, lx.SkipWords(words), src)
		require.Equal(t, want.next, lx.Text(), src)
	}
}

func TestSkipOpenStopsAtTheFirstTokenThatIsNoOpenParenthesis(t *testing.T) {
	for src, want := range map[string]string{"a": "a", "((a": "a", "()": ")", "(": "", ";(a": ";"} {
		lx := lexerOf(src)
		lx.SkipOpen(lx.Next())
		require.Equal(t, want, lx.Text(), src)
	}
}

func TestWordInFindsUnquotedWordsOnly(t *testing.T) {
	words := NewNames(Group{1, "a"}, Group{2, "b"})
	for src, want := range map[string]uint8{"a": 1, "B": 2, "c": 0, `"a"`: 0, "'a'": 0, "": 0} {
		lx := lexerOf(src)
		lx.Next()
		require.Equal(t, want, lx.WordIn(words), src)
	}
}

func TestGivesNameTellsNamesFromCalls(t *testing.T) {
	words := NewNames(Group{1, "into"})
	for src, want := range map[string]bool{
		"into t (": true, "INTO s.t (": true, "from t (": false, "t (": false, `"into" t (`: false,
		"with a as (b), c (": true, "with a as (select b), c as (d) select e, f (": false, "a, b (": false,
	} {
		lx := lexerOf(src)
		for lx.Skim(withWord) != EOF {
			if lx.IsWord("with") {
				lx.BeginWith()
			}
		}
		require.Equal(t, want, lx.GivesName(words), src)
	}
}

var withWord = NewNames(Group{1, "with"})

func TestMisreadTellsTextsThatNoDatabaseTakes(t *testing.T) {
	for src, want := range map[string]bool{"'a'": false, "/* a": false, `\N`: false, "'a": true, `"a`: true, `a \ b`: true} {
		lx := lexerOf(src)
		lx.SkipStatement()
		require.Equal(t, want, lx.Misread(), src)
	}
}
