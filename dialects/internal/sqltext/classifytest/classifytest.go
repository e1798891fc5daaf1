// Package classifytest holds what the classifiers' tests have in common: the
// table of statements, the properties that a fuzzer tries, the benchmark.
package classifytest

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
)

// Classifier is the function under test.
type Classifier func(query string) dialects.Effect

// Case is one line of a table.
type Case struct {
	Line   int
	Effect string
	Query  string
}

// Load reads a table: lines of an effect, a tab and a statement; # begins a
// comment line. A statement in double quotes is a Go string.
func Load(tb testing.TB, file string) []Case {
	tb.Helper()
	data, err := os.ReadFile(file)
	require.NoError(tb, err)
	var cases []Case
	for i, line := range strings.Split(string(data), "\n") {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		effect, query, ok := strings.Cut(line, "\t")
		require.True(tb, ok, "%s:%d: no tab", file, i+1)
		query = strings.TrimLeft(query, "\t")
		if strings.HasPrefix(query, `"`) && strings.HasSuffix(query, `"`) {
			query, err = strconv.Unquote(query)
			require.NoError(tb, err, "%s:%d", file, i+1)
		}
		cases = append(cases, Case{i + 1, effect, query})
	}
	return cases
}

// RunTable checks every line of the table, that there are at least least of
// them, and that none is listed twice.
func RunTable(t *testing.T, file string, least int, classify Classifier) {
	cases := Load(t, file)
	require.GreaterOrEqual(t, len(cases), least)
	seen := map[string]int{}
	for _, c := range cases {
		if line, ok := seen[c.Query]; ok {
			t.Errorf("%s:%d: the statement of line %d again", file, c.Line, line)
		}
		seen[c.Query] = c.Line
		if got := classify(c.Query).String(); got != c.Effect {
			t.Errorf("%s:%d: %s\n\thave %s\n\twant %s", file, c.Line, c.Query, got, c.Effect)
		}
	}
}

// RequireNoAllocation checks that classifying allocates nothing, for every
// statement of the table.
func RequireNoAllocation(t *testing.T, file string, classify Classifier) {
	for _, c := range Load(t, file) {
		allocs := testing.AllocsPerRun(5, func() { classify(c.Query) })
		require.Zero(t, allocs, "%s:%d: %s", file, c.Line, c.Query)
	}
}

// Properties are what must hold for any text whatever.
type Properties struct {
	Classify Classifier

	// Open reports whether the text, read in the likely way, ends inside
	// quotes or a comment, or holds what is not understood.
	Open func(query string) bool

	// Space are texts that mean nothing: they are put before the text.
	Space []string

	// Change is a statement that changes the session.
	Change string
}

// Fuzz tries the properties with the table's statements as seeds.
func Fuzz(f *testing.F, file string, p Properties) {
	for _, c := range Load(f, file) {
		f.Add(c.Query)
	}
	for _, seed := range []string{"", ";", "'", "\"", "/*", "--", "(", ")", "\x00", "\xff", "a.b.c(", "$$", "$a$", "[", "`", "/*!", "/*!99999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		effect := p.Classify(query)
		if p.Open(query) {
			require.True(t, effect.Dirty(), "broken text is %s: %q", effect, query)
			return
		}
		for _, space := range p.Space {
			require.Equal(t, effect, p.Classify(space+query), "%q before %q", space, query)
		}
		require.Equal(t, effect, p.Classify(query+"\n; "), "; after %q", query)

		require.True(t, p.Classify(query+"\n;"+p.Change).Dirty(), "%q after %q", p.Change, query)
		require.True(t, p.Classify(p.Change+";\n"+query).Dirty(), "%q before %q", p.Change, query)

		both := p.Classify(query + "\n;" + query)
		require.Equal(t, effect, both&effect, "%q twice loses an effect", query)
	})
}

// Benchmark runs the classifier over the queries.
func Benchmark(b *testing.B, dialect string, classify Classifier) {
	for _, q := range queries {
		b.Run(fmt.Sprintf("dialect=%s/query=%s", dialect, q.name), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				classify(q.text)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(q.text)), "ns/byte")
		})
	}
}

// queries are the benchmark's, in standard SQL.
var queries = []struct{ name, text string }{
	{"select_1", "SELECT 1"},
	{"by_key", "SELECT id, name, email, created_at FROM users WHERE id = 42 AND deleted_at IS NULL"},
	{"insert", "INSERT INTO orders (customer_id, product_id, quantity, price, note) VALUES (1, 2, 3, 4.50, 'as agreed on the phone')"},
	{"update", "UPDATE accounts SET balance = balance - 100, updated_at = CURRENT_TIMESTAMP WHERE id = 7"},
	{"report", `SELECT c.name, count(*) AS orders, sum(o.price * o.quantity) AS total, max(o.created_at) AS latest
FROM customers c
JOIN orders o ON o.customer_id = c.id
LEFT JOIN products p ON p.id = o.product_id
WHERE o.created_at >= '2026-01-01' AND p.category IN ('books', 'music', 'garden')
GROUP BY c.name
HAVING count(*) > 10
ORDER BY total DESC
LIMIT 50`},
	{"set", "SET x = 1"},
}
