package mysql

import (
	"testing"

	"github.com/pooldriver/pooldriver/dialects/internal/sqltext/classifytest"
)

var suite = classifytest.Suite{
	Dialect:  "mysql",
	Classify: Classify,
	Least:    150,
	Language: language,
	Space:    []string{" ", "\n\t", "-- it's\n", "# it's\n", "/* a /* b' */", ";"},
	Change:   "set sql_mode = ansi",
}

func TestClassifyGivesEveryStatementItsEffect(t *testing.T) { suite.RunTable(t) }
func TestClassifyAllocatesNothing(t *testing.T)             { suite.RequireNoAllocation(t) }
func FuzzClassify(f *testing.F)                             { suite.Fuzz(f) }
func BenchmarkClassify(b *testing.B)                        { suite.Benchmark(b) }
