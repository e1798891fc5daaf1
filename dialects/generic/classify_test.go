package generic

import (
	"testing"

	"github.com/pooldriver/pooldriver/dialects/internal/sqltext"
	"github.com/pooldriver/pooldriver/dialects/internal/sqltext/classifytest"
)

const classifyTable = "testdata/classify.txt"

func TestClassifyGivesEveryStatementItsEffect(t *testing.T) {
	classifytest.RunTable(t, classifyTable, 60, Classify)
}

func TestClassifyAllocatesNothing(t *testing.T) {
	classifytest.RequireNoAllocation(t, classifyTable, Classify)
}

func FuzzClassify(f *testing.F) {
	classifytest.Fuzz(f, classifyTable, classifytest.Properties{
		Classify: Classify,
		Open: func(query string) bool {
			var lx sqltext.Lexer
			lx.Init(query, lexical, sqltext.Reading{})
			for lx.Next() != sqltext.EOF {
			}
			return lx.Broken()
		},
		Space:  []string{" ", "\n\t", "-- it's\n", "/* a' */", ";"},
		Change: "set schema x",
	})
}

func BenchmarkClassify(b *testing.B) {
	classifytest.Benchmark(b, "generic", Classify)
}
