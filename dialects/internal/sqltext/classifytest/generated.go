package classifytest

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// grammar makes statements that every database may execute. A name in < > stands for one of its alternatives, and
// ~ for a comma. At <leaf> a function may be called.
var grammar = map[string][]string{
	"statement": {"<query>", "<query>", "explain <query>", "<query>; <query>", "insert into t values <rows>", "insert into t (a~ b) values <rows>",
		"insert into t (a~ b) select <item>~ <item> from <from>", "update t set a = <leaf>~ b = <leaf> where <leaf> = 1", "delete from t where a in (<leaf>~ 2~ 3)"},
	"query": {"select <item>", "select <item>~ <item> from <from>", "select <item> from <from> where <leaf> = 1", "with x as (<query>) <query>",
		"with x(a~ b) as (<query>)~ y(c) as (<query>) select a~ <leaf> as c from x~ y", "select distinct <item>~ b from <from> order by <leaf>~ 2",
		"select a from <from> group by a~ <leaf> having count(*) > <leaf>", "<query> union all select <item>", "select * from t where a in <row>",
		"select case when <leaf> = 1 then <leaf> else <leaf> end from t"},
	"from": {"t", "t~ u", "t a~ u as b", "(<query>) s", "(<query>) as s", "t join u on (<leaf> = 1)", "t left join u on t.a = u.a and <leaf> = 1"},
	"item": {"<leaf>", "<leaf> as c", "(<leaf>)", "count(*)", "max(<leaf>)", "coalesce(a~ <leaf>)", "1~ 'x'~ <leaf>", "(<query>)", "exists (<query>)",
		"a + <leaf>", "sum(a) over (partition by <leaf>~ 1 order by b)", "cast(<leaf> as char(3))", "a between <leaf> and <leaf>", "not (<leaf> = 2)"},
	"rows":   {"<row>", "<row>~ <row>", "<row>~ <row>~ <row>~ <row>~ <values>"},
	"row":    {"(<leaf>)", "(1~ <leaf>)", "(<leaf>~ 'x')", "(<value>~ <value>~ <leaf>~ <value>)", "(<value>~ <leaf>~ <long>)", "(<long>~ <leaf>~ <value>)"},
	"values": {"(<value>~ <value>)", "(<long>)"},
	"value":  {"1", "-1.5", "'x'", "'it''s~ 1), f(2'", "null", "'--'", "'/*'", "'a'", "1 + 2", "(3)", "x'00'", "''"},
}

// long stands for more values than a statement keeps tokens.
var long = strings.Repeat("1~ 'a'~ (2~ 3)~ ", 100) + "4"

// derive makes a text of a rule. leaf is called at each <leaf>.
func derive(r *rand.Rand, rule string, depth int, leaf func() string) string {
	switch {
	case rule == "leaf":
		return leaf()
	case rule == "long":
		return long
	case rule == "query" && depth > 5:
		return "select " + leaf()
	}
	alternatives := grammar[rule]
	text := alternatives[r.IntN(len(alternatives))]
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "<")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		name, after, _ := strings.Cut(rest, ">")
		b.WriteString(derive(r, name, depth+1, leaf))
		text = after
	}
}

// RequireCallsAreSeen makes texts at random. They are clean, and with one call of s.Call at any place they are not. A
// comment behind each comma changes nothing: in front of a comment no values are skipped.
func (s *Suite) RequireCallsAreSeen(t *testing.T) {
	seed := rand.Uint64()
	for round := range uint64(1000) {
		places := 0
		text := func(called int) string {
			places = 0
			return derive(rand.New(rand.NewPCG(seed, round)), "statement", 0, func() string {
				if places++; places == called {
					return s.Call
				}
				return "a"
			})
		}
		text(0)
		for called := range places + 1 {
			text := text(called)
			skipped, read := strings.ReplaceAll(text, "~", ","), strings.ReplaceAll(text, "~", ",/**/")
			require.Equal(t, called > 0, s.Classify(skipped).Dirty(), "seed %d: %s", seed, skipped)
			require.Equal(t, s.Classify(read), s.Classify(skipped), "seed %d: %s", seed, skipped)
			require.Equal(t, s.Language.OnlyReads(read), s.Language.OnlyReads(skipped), "seed %d: %s", seed, skipped)
			require.Equal(t, s.Language.AsksBack(read), s.Language.AsksBack(skipped), "seed %d: %s", seed, skipped)
		}
	}
}
