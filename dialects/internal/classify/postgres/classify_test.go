package postgres

import (
	"testing"

	"github.com/pooldriver/pooldriver/dialects/internal/sqltext/classifytest"
)

var suite = classifytest.Suite{
	Dialect:  "postgres",
	Classify: Classify,
	Least:    150,
	Language: language,
	Space:    []string{" ", "\n\t", "-- it's\n", "/* a /* b' */ c */", ";"},
	Change:   "set search_path to x",
}

func TestClassifyGivesEveryStatementItsEffect(t *testing.T) { suite.RunTable(t) }
func TestClassifyAllocatesNothing(t *testing.T)             { suite.RequireNoAllocation(t) }
func FuzzClassify(f *testing.F)                             { suite.Fuzz(f) }
func BenchmarkClassify(b *testing.B)                        { suite.Benchmark(b) }
