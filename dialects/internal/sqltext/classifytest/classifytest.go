// Package classifytest holds what the classifiers' tests have in common: the
// table of statements, the properties that a fuzzer tries, the benchmark.
package classifytest

import (
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
)

// Table is the file with the statements of the package under test.
const Table = "testdata/classify.txt"

// Suite is what the tests know about one classifier.
type Suite struct {
	Dialect  string
	Classify func(query string) dialects.Effect

	// Least is the least number of statements that the table must have.
	Least int

	Language *sqltext.Language

	// Space are texts that mean nothing: they are put before a text.
	Space []string

	// Change is a statement that changes the session.
	Change string
}

// Case is one line of a table.
type Case struct {
	Line   int
	Effect string
	Query  string
}

// Load reads the table of the package under test.
func Load(tb testing.TB) []Case {
	tb.Helper()
	return LoadFile(tb, Table)
}

// LoadFile reads a table: lines of an effect, a tab and a statement; # begins a
// comment line. A statement in double quotes is a Go string.
func LoadFile(tb testing.TB, table string) []Case {
	tb.Helper()
	data, err := os.ReadFile(table)
	require.NoError(tb, err)
	var cases []Case
	for i, line := range strings.Split(string(data), "\n") {
		if strings.TrimSpace(line) == "" || strings.HasPrefix(line, "#") {
			continue
		}
		effect, query, ok := strings.Cut(line, "\t")
		require.True(tb, ok, "%s:%d: no tab", table, i+1)
		query = strings.TrimLeft(query, "\t")
		if strings.HasPrefix(query, `"`) && strings.HasSuffix(query, `"`) {
			query, err = strconv.Unquote(query)
			require.NoError(tb, err, "%s:%d", table, i+1)
		}
		cases = append(cases, Case{i + 1, effect, query})
	}
	return cases
}

// RunTable checks every line of the table. It also checks that the table has at least Least lines,
// and that no statement is listed twice.
func (s *Suite) RunTable(t *testing.T) {
	cases := Load(t)
	require.GreaterOrEqual(t, len(cases), s.Least)
	seen := map[string]int{}
	for _, c := range cases {
		if line, ok := seen[c.Query]; ok {
			t.Errorf("%s:%d: the statement of line %d again", Table, c.Line, line)
		}
		seen[c.Query] = c.Line
		if got := s.Classify(c.Query).String(); got != c.Effect {
			t.Errorf("%s:%d: %s\n\thave %s\n\twant %s", Table, c.Line, c.Query, got, c.Effect)
		}
	}
}

// RequireNoAllocation checks, for every statement of the table, that the classifier allocates
// nothing.
func (s *Suite) RequireNoAllocation(t *testing.T) {
	for _, c := range Load(t) {
		require.Zero(t, s.allocations(c.Query), "%s:%d: %s", Table, c.Line, c.Query)
	}
	for _, q := range queries {
		require.Zero(t, s.allocations(q.text), q.name)
	}
}

// allocations is the least number in some runs: with the race detector a sync.Pool now and then drops what it is given.
func (s *Suite) allocations(query string) float64 {
	least := math.Inf(1)
	for range 20 {
		if least = min(least, testing.AllocsPerRun(1, func() { s.Classify(query) })); least == 0 {
			break
		}
	}
	return least
}

// broken reports whether the text, read in the likely way, ends inside quotes
// or a comment, or holds something that is not understood.
func (s *Suite) broken(query string) bool { return !s.Language.Understands(query) }

// Fuzz checks what must hold for any text, with the table's statements as seeds.
func (s *Suite) Fuzz(f *testing.F) {
	for _, c := range Load(f) {
		f.Add(c.Query)
	}
	for _, seed := range []string{"", ";", "'", "\"", "/*", "--", "(", ")", "\x00", "\xff", "a.b.c(", "$$", "$a$", "[", "`", "/*!", "/*!99999"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, query string) {
		effect := s.Classify(query)
		if s.broken(query) {
			require.True(t, effect.Dirty(), "broken text is %s: %q", effect, query)
			return
		}
		for _, space := range s.Space {
			require.Equal(t, effect, s.Classify(space+query), "%q before %q", space, query)
		}
		require.Equal(t, effect, s.Classify(query+"\n; "), "; after %q", query)

		require.True(t, s.Classify(query+"\n;"+s.Change).Dirty(), "%q after %q", s.Change, query)
		require.True(t, s.Classify(s.Change+";\n"+query).Dirty(), "%q before %q", s.Change, query)

		both := s.Classify(query + "\n;" + query)
		require.Equal(t, effect, both&effect, "%q twice loses an effect", query)
	})
}

// Benchmark runs the classifier over the queries.
func (s *Suite) Benchmark(b *testing.B) {
	for _, q := range queries {
		b.Run(fmt.Sprintf("dialect=%s/query=%s", s.Dialect, q.name), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				s.Classify(q.text)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(q.text)), "ns/byte")
		})
	}
}

// queries are the queries of the benchmark, in standard SQL.
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
	{"rows_60KB", rows("(1, 2, 3, 4.50, 'as agreed on the phone')", 60<<10)},
	{"rows_2MB", rows("(1, 2, 3, 4.50, 'as agreed on the phone')", 2<<20)},
	{"placeholders_60KB", rows("(?, ?, ?, ?, ?)", 60<<10)},
}

// rows is an INSERT of many rows, which is classified each time that it is executed.
func rows(row string, size int) string {
	return "INSERT INTO orders (customer_id, product_id, quantity, price, note) VALUES " + strings.Repeat(row+", ", size/len(row)) + row
}
