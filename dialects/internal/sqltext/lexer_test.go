package sqltext

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// tokens reads a text to its end and returns the texts of its tokens.
func tokens(src string, features Feature, reading Reading) ([]string, *Lexer) {
	var lx Lexer
	lx.Init(src, NewRules(features), reading)
	var all []string
	for lx.Next() != EOF {
		all = append(all, lx.Text())
	}
	return all, &lx
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
		{"doubtful versioned comment", "a /*!80000 b */ c", VersionedComments, Reading{}, "a|b|c"},
		{"doubtful versioned comment skipped", "a /*!80000 b */ c", VersionedComments, Reading{SkipVersioned: true}, "a|c"},
		{"certain versioned comment not skipped", "a /*! b */ c", VersionedComments, Reading{SkipVersioned: true}, "a|b|c"},
		{"assignment and cast", "@a:=b::c", AtVariables, Reading{}, "@|a|:=|b|::|c"},
		{"name in Unicode's escapes", `U&"a\"b u&"c""d"e.u&"f" xu&"g" U &"h" U&'i'`, UnicodeNames, Reading{},
			`U&"a\"|b|u&"c""d"|e|.|u&"f"|xu|&|"g"|U|&|"h"|U|&|'i'`},
		{"number before a word", "1a 1.5e3", 0, Reading{}, "1|a|1|.|5|e3"},
	} {
		got, lx := tokens(c.src, c.features, c.reading)
		require.Equal(t, c.want, strings.Join(got, "|"), c.name)
		require.False(t, lx.Broken(), c.name)
	}
}

func TestANameInUnicodesEscapesIsDisguised(t *testing.T) {
	for src, want := range map[string]bool{`U&"f"(`: true, `a.u&"f"(`: true, `u&"a"."f"(`: false, `"f"(`: false, `a_u&"f"(`: false, `u&f(`: false} {
		for _, words := range []*Names{nil, NewNames()} {
			var lx Lexer
			lx.Init(src, NewRules(UnicodeNames), Reading{})
			for lx.scan(words); lx.Token() != Open; lx.scan(words) {
			}
			require.Equal(t, want, lx.Disguised(), src)
			require.Equal(t, "f", lx.Name(), src)
		}
	}
}

func TestLexerTellsWhatItCannotTrust(t *testing.T) {
	for src, features := range map[string]Feature{
		"'a": 0, `"a`: 0, "`a": Backticks, "[a": Brackets, "$$a": DollarQuotes, `E'a\'`: EscapeStrings,
		"/* a": 0, "/* /* */": NestedComments, "/* /* */ ": DoubtfulNesting, "/*! a": VersionedComments,
		"a \x00": 0, `a \ b`: 0, "[a;b]": DoubtfulBrackets, "$a(": TclVariables, "#a(": TclVariables,
		"q'[a]'": AlternativeQuotes, `U&"a"`: DoubtfulUnicode, `U&"a`: UnicodeNames, "/*!80000 ' */": VersionedComments, "/*!80000 a; */": VersionedComments,
	} {
		_, lx := tokens(src, features, Reading{})
		require.True(t, lx.Broken(), src)
	}
}

func TestLexerReportsWhatCanBeReadOtherwise(t *testing.T) {
	for src, doubt := range map[string]Doubt{
		`'a\'`: DoubtSingle, `'a\\'`: 0, `'a\b'`: 0, `"a\"`: DoubtDouble, `'a\' "b\"`: DoubtSingle | DoubtDouble,
		"/*!80000 a */": DoubtVersion, "/*M! a */": DoubtVersion, "/*! a */": 0, "/*!40101 a */": 0,
	} {
		_, lx := tokens(src, VersionedComments, Reading{})
		require.Equal(t, doubt, lx.Doubt, src)
	}
}

func TestSkimStopsAtCallsWithTheirSurroundings(t *testing.T) {
	type call struct{ before, qualifier, name string }
	var lx Lexer
	lx.Init(`select a, /* ( */ b.c ( 'f(' ), "d" (1), e, f . "g" /**/ . h(2) i(3) in (4)`, NewRules(0), Reading{})
	var calls []call
	for lx.Skim(NewNames()) != EOF {
		calls = append(calls, call{lx.BeforeText(), lx.Qualifier(), lx.Name()})
	}
	require.Equal(t, []call{{",", "b", "c"}, {",", "", "d"}, {",", "g", "h"}, {")", "", "i"}, {")", "", "in"}}, calls)
}

func TestNamesFindsEveryNameInAnyCaseAndNoOther(t *testing.T) {
	long := strings.Repeat("long_", 10)
	names := NewNames(Group{1, "a in into pg_sleep pg_sleep_for " + long}, Group{2, "set_config"})
	for _, name := range []string{"a", "in", "into", "pg_sleep", "pg_sleep_for", long} {
		require.EqualValues(t, 1, names.Lookup(name), name)
		require.EqualValues(t, 1, names.Lookup(strings.ToUpper(name)), name)
	}
	require.EqualValues(t, 2, names.Lookup("Set_Config"))
	for _, name := range []string{"", "b", "i", "int", "pg_sleep_fox", long + "x", "ſet_config", "set\x7fconfig", "@n"} {
		require.Zero(t, names.Lookup(name), name)
	}
}

func TestNamesRefusesAContradictoryTable(t *testing.T) {
	require.Panics(t, func() { NewNames(Group{1, "a"}, Group{2, "a"}) })
	require.Panics(t, func() { NewNames(Group{1, "A"}) })
	require.Panics(t, func() { NewNames(Group{0, "a"}) })
}

func TestKeepsCapitalsTellsQuotedNamesWithCapitals(t *testing.T) {
	rules := NewRules(0)
	for text, want := range map[string]bool{
		`lower`: false, `Lower`: false, `"lower"`: false, `"Lower"`: true, `"lÖwer"`: false,
		`"S".lower`: true, `S.lower`: false, `"s"."lOwer"`: true, `"A" lower`: false, `"A", s.lower`: false,
	} {
		var lx Lexer
		lx.Init(text, rules, Reading{})
		for lx.Next() != EOF {
		}
		require.Equal(t, want, lx.KeepsCapitals(), text)
	}
}
