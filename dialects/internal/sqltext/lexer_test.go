package sqltext

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tokens reads a text to its end and returns the texts of its tokens.
func tokens(src string, features Feature, reading Reading) ([]string, *lexer) {
	x := lexer{src: src, features: features, reading: reading}
	var all []string
	for t := x.next(); t.Kind != End || t.From < t.To; t = x.next() {
		all = append(all, src[t.From:t.To])
	}
	return all, &x
}

// statementOf is the only statement of a text.
func statementOf(src string, features Feature) *Statement {
	var s Statement
	s.begin(New(Language{Features: features, Readings: []Reading{{}}}), src, 0)
	s.next()
	return &s
}

func TestLexerEndsQuotesAndCommentsWhereTheRulesSay(t *testing.T) {
	for _, c := range []struct {
		name, src string
		features  Feature
		reading   Reading
		want      string
	}{
		{"doubled quotes", `'a''b' "c""d"`, 0, Reading{}, `'a''b'|"c""d"`},
		{"backslash is a character", `'a\' b`, 0, Reading{}, `'a\'|b`},
		{"backslash escapes", `'a\' b' c`, 0, Reading{SingleEscapes: true}, `'a\' b'|c`},
		{"escaped backslash", `'a\\' b`, 0, Reading{SingleEscapes: true}, `'a\\'|b`},
		{"escape string", `E'a\' b' c`, EscapeStrings, Reading{}, `E|'a\' b'|c`},
		{"dollar quotes", `$a$ ' $b$ $a$ c $1 $$;$$`, DollarQuotes, Reading{}, `$a$ ' $b$ $a$|c|$|1|$$;$$`},
		{"dollar inside a word", `a$b$c d$b$`, DollarQuotes, Reading{}, `a$b$c|d$b$`},
		{"nested comment", `a /* /* */ */ b`, NestedComments, Reading{}, `a|b`},
		{"flat comment", `a /* /* */ b`, 0, Reading{}, `a|b`},
		{"comment that overlaps its end", `a /*/ b */ c`, 0, Reading{}, `a|c`},
		{"dashes", "a --b\nc", 0, Reading{}, "a|c"},
		{"dashes that need a space", "a --b\nc", DashNeedsSpace, Reading{}, "a|-|-|b|c"},
		{"return ends comment", "a --b\rc", ReturnEndsComment, Reading{}, "a|c"},
		{"hash comment", "a #b\nc", HashComments, Reading{}, "a|c"},
		{"hash name", "a #b ##c", HashNames, Reading{}, "a|#b|##c"},
		{"brackets", "[a;b] c", Brackets, Reading{}, "[a;b]|c"},
		{"backticks", "`a;b` c", Backticks, Reading{}, "`a;b`|c"},
		{"versioned comment", "a /*!40101 b */ c", VersionedComments, Reading{}, "a|b|c"},
		{"assignment and cast", "@a:=b::c", UserVariables, Reading{}, "@|a|:=|b|::|c"},
		{"name in Unicode's escapes", `U&"a\"b u&"c""d"e.u&"f" xu&"g" U &"h" U&'i'`, UnicodeNames, Reading{},
			`U&"a\"|b|u&"c""d"|e|.|u&"f"|xu|&|"g"|U|&|"h"|U|&|'i'`},
		{"number before a word", "1a 1.5e3", 0, Reading{}, "1|a|1|.|5|e3"},
	} {
		got, lx := tokens(c.src, c.features, c.reading)
		require.Equal(t, c.want, strings.Join(got, "|"), c.name)
		require.False(t, lx.strange || lx.misread, c.name)
	}
}

func TestANameInUnicodesEscapesIsDisguised(t *testing.T) {
	for src, want := range map[string]bool{`U&"f"(`: true, `a.u&"f"(`: true, `u&"a"."f"(`: false, `"f"(`: false, `a_u&"f"(`: false} {
		s := statementOf(src, UnicodeNames)
		s.finish()
		require.Equal(t, want, s.Mark(s.end-2, Disguised), src)
		require.Equal(t, "f", s.Name(s.end-2), src)
	}
}

func TestLexerTellsWhatItCannotTrust(t *testing.T) {
	for src, features := range map[string]Feature{
		"'a": 0, `"a`: 0, "`a": Backticks, "[a": Brackets, "$$a": DollarQuotes, `E'a\'`: EscapeStrings,
		"/* a": 0, "/* /* */": NestedComments, "/* /* */ ": DoubtfulNesting, "/*! a": VersionedComments,
		"a \x00": 0, `a \ b`: 0, "[a;b]": DoubtfulBrackets, "$a(": TclVariables, "#a(": TclVariables,
		"q'[a]'": AlternativeQuotes, `U&"a"`: DoubtfulUnicode, `U&"a`: UnicodeNames, "/*!80000 ' */": VersionedComments, "/*!80000 a; */": VersionedComments, "/*!80000 a */": VersionedComments, "/*M! a */": VersionedComments,
	} {
		_, lx := tokens(src, features, Reading{})
		require.True(t, lx.strange || lx.misread, src)
	}
}

func TestLexerReportsWhatCanBeReadOtherwise(t *testing.T) {
	for src, doubt := range map[string]bool{
		`'a\'`: true, `'a\\'`: false, `'a\b'`: false, `"a\"`: true, `'a\' "b\"`: true, "/*! a */": false, "/*!40101 a */": false, "E'a\\' b": false,
	} {
		_, lx := tokens(src, VersionedComments|EscapeStrings, Reading{})
		require.Equal(t, doubt, lx.doubt != 0, src)
	}
}

func TestAStatementKeepsItsLastTokens(t *testing.T) {
	s := statementOf(strings.Repeat("a ", 3*window)+"; b", 0)
	s.finish()
	require.Equal(t, 3*window, s.end)
	require.True(t, s.Mark(s.end, End))
	require.True(t, s.Mark(s.end+5, End))
	require.True(t, s.Is(s.end-window+1, "a"))
	require.False(t, s.strange)
	require.True(t, s.Mark(s.end-window, None))
	require.True(t, s.strange)
	require.True(t, s.Mark(-1, None))
	require.True(t, s.next())
	require.True(t, s.Is(0, "b"))
	s.finish()
	require.False(t, s.next())
}

func TestNamesFindsEveryNameInAnyCaseAndNoOther(t *testing.T) {
	long := strings.Repeat("long_", 10)
	names := NewNames(Group[Role]{1, "a in into pg_sleep pg_sleep_for " + long}, Group[Role]{2, "set_config into"})
	for _, name := range []string{"a", "in", "pg_sleep", "pg_sleep_for", long} {
		require.EqualValues(t, 1, names.Lookup(name), name)
		require.EqualValues(t, 1, names.Lookup(strings.ToUpper(name)), name)
	}
	require.EqualValues(t, 2, names.Lookup("Set_Config"))
	require.EqualValues(t, 3, names.Lookup("INTO"))
	for _, name := range []string{"", "b", "i", "int", "pg_sleep_fox", long + "x", "ſet_config", "set\x7fconfig", "@n"} {
		require.Zero(t, names.Lookup(name), name)
	}
}

func TestNamesRefusesANameThatItWouldNotFind(t *testing.T) {
	require.Panics(t, func() { NewNames(Group[Role]{1, "A"}) })
	require.Panics(t, func() { NewNames(Group[Role]{1, strings.Repeat("a", longest+1)}) })
}
