package sqltext_test

import (
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/generic"
	"github.com/pooldriver/pooldriver/dialects/internal/classify/mysql"
	"github.com/pooldriver/pooldriver/dialects/internal/classify/postgres"
	"github.com/pooldriver/pooldriver/dialects/internal/classify/sqlite"
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

// TestACallIsSeenAtAnyPlace makes texts at random. They are clean, and with one call that may change the session they are
// not. A comment behind each comma changes nothing: in front of a comment no values are skipped.
func TestACallIsSeenAtAnyPlace(t *testing.T) {
	for name, of := range map[string]struct {
		texts interface {
			Effect(string) dialects.Effect
			OnlyReads(string) bool
			AsksBack(string) bool
		}
		call string
	}{
		"postgres": {postgres.Texts{}, "my_func(a)"},
		"mysql":    {mysql.Texts{}, "my_func(a)"},
		"sqlite":   {sqlite.Texts{}, "load_extension(a)"},
		"generic":  {generic.Dialect{}, "set_config('a', 'b', false)"},
	} {
		t.Run(name, func(t *testing.T) {
			seed := rand.Uint64()
			t.Log("seed", seed)
			for round := range uint64(300) {
				for called, more := 0, true; more; called++ {
					places := 0
					text := derive(rand.New(rand.NewPCG(seed, round)), "statement", 0, func() string {
						if places++; places == called {
							return of.call
						}
						return "a"
					})
					more = called < places
					skipped, read := strings.ReplaceAll(text, "~", ","), strings.ReplaceAll(text, "~", ",/**/")
					require.Equal(t, called > 0, of.texts.Effect(skipped).Dirty(), skipped)
					require.Equal(t, of.texts.Effect(read), of.texts.Effect(skipped), skipped)
					require.Equal(t, of.texts.OnlyReads(read), of.texts.OnlyReads(skipped), skipped)
					require.Equal(t, of.texts.AsksBack(read), of.texts.AsksBack(skipped), skipped)
				}
			}
		})
	}
}
