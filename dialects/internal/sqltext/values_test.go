package sqltext

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestValuesAreSkippedUpToTheLastCommaBehindOne(t *testing.T) {
	for _, c := range []struct {
		rest, left string // behind a comma; what is left to read
		reading    Reading
	}{
		{"1, 2.5 ,-3,\n?, $1, NULL, Default, f(4)", " f(4)", Reading{}},
		{`'a', "b", 'it''s, 1', E'\', 1', x'00', _binary'', c`, " c", Reading{}},
		{"(1, 'a'), ( ? ,null ) , (2, f(3)), 4, 5", " (2, f(3)), 4, 5", Reading{}},
		{`'a\', 'b', c`, " c", Reading{}},
		{`'a\', 'b', c`, `'a\', 'b', c`, Reading{SingleEscapes: true}},
		{`'a\', b', 1, c`, " c", Reading{SingleEscapes: true}},
		{`"a\", b", 1, c`, " c", Reading{DoubleEscapes: true}},

		{"1", "1", Reading{}},
		{"(1, 2", "(1, 2", Reading{}},
		{"(1), (2)", " (2)", Reading{}},
		{"1), (2), 3, 4", "1), (2), 3, 4", Reading{}},
		{"((1)), 2", "((1)), 2", Reading{}},
		{"(), 2", "(), 2", Reading{}},
		{"'a", "'a", Reading{}},
		{"1, 'a' 'b', 2", " 'a' 'b', 2", Reading{}},
		{"1 into, 2", "1 into, 2", Reading{}},
		{"1into, 2", "1into, 2", Reading{}},
		{"into'a', 2", "into'a', 2", Reading{}},
		{"null(1), 2", "null(1), 2", Reading{}},
		{"nullify, 2", "nullify, 2", Reading{}},
		{"--1, 2\n, 3", "--1, 2\n, 3", Reading{}},
		{"/* 1, */ 2, 3", "/* 1, */ 2, 3", Reading{}},
		{"$$, $$, 1", "$$, $$, 1", Reading{}},
		{"@a, 1", "@a, 1", Reading{}},
		{"U&'a', 1", "U&'a', 1", Reading{}},
		{"q'[a]', 1", "q'[a]', 1", Reading{}},
	} {
		x := lexer{src: c.rest, features: EscapeStrings | DollarQuotes, reading: c.reading}
		require.Equal(t, c.left, c.rest[x.pastValues():], c.rest)
	}
}

// FuzzValues: what is skipped are tokens that mean nothing, and whole ones; the rest is read as it would have been.
func FuzzValues(f *testing.F) {
	for _, text := range []string{"1, 'a', (2, null), f(3)", `E'\', 1', 'a\', "b"`, "(1, 2), (3, 'a' 'b'), 4", "$a$, $a$, 1", "'a", "1e5, /*! 2, */"} {
		f.Add(text, uint32(EscapeStrings|DollarQuotes), false, false)
		f.Add(text, uint32(VersionedComments|DashNeedsSpace|HashComments), true, true)
		f.Add(text, ^uint32(0), true, false)
	}
	f.Fuzz(func(t *testing.T, text string, features uint32, single, double bool) {
		all := lexer{src: text, features: Feature(features), reading: Reading{single, double}, last: Token{Kind: ','}}
		skipping := all
		skipping.pos = skipping.pastValues()
		depth, last := 0, Token{Kind: ','}
		for all.pos < skipping.pos {
			token := all.next()
			switch word := strings.ToLower(text[token.From:token.To]); token.Kind {
			case '(':
				depth++
				require.Contains(t, []Kind{',', '('}, last.Kind, text)
			case ')':
				depth--
			case Word:
				require.Contains(t, " null true false default e x b n _binary ", " "+word+" ", text)
			case ',', '.', '$', '-', '?', Number, String, Quoted:
			default:
				require.Fail(t, "skipped", "%q of %q", word, text)
			}
			last = token
		}
		require.Equal(t, skipping.pos, all.pos, text)
		require.Equal(t, Kind(','), last.Kind, text)
		require.Zero(t, depth, text)
		for range len(text) + 1 {
			require.Equal(t, all.next(), skipping.next(), text)
		}
		require.Equal(t, [4]any{all.doubt, all.strange, all.version, all.misread}, [4]any{skipping.doubt, skipping.strange, skipping.version, skipping.misread}, text)
	})
}
