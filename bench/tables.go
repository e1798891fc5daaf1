package main

import (
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// tables are those of a report, as they are written: by the title of their contest.
type tables map[string]table

// table has the columns and the lines of one. A column's title may occur more than once: "quartiles" follows
// the metric whose quartiles they are.
type table struct {
	columns []string
	lines   [][]string
}

// readTables reads a report.
func readTables(file string) (tables, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := make(tables)
	section, name := "", ""
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "## "):
			section, name = line[len("## "):], ""
		case strings.HasPrefix(line, "### "):
			name = line[len("### "):]
		case strings.HasPrefix(line, "|---") || !strings.HasPrefix(line, "|") || name == "":
		default:
			cells := cellsOf(line)
			title := contest{section: section, name: name}.title()
			t := all[title]
			if t.columns == nil {
				t.columns = cells
			} else {
				t.lines = append(t.lines, cells)
			}
			all[title] = t
		}
	}
	return all, nil
}

// cellsOf are the cells of a table's line, which begins and ends with a bar.
func cellsOf(line string) []string {
	cells := strings.Split(strings.Trim(line, "|"), " | ")
	for i := range cells {
		cells[i] = strings.TrimSpace(cells[i])
	}
	return cells
}

// cell is the cell of a line in a metric's column, or in the column of that title which belongs to the metric.
func (t table) cell(line []string, metric, title string) string {
	i := slices.Index(t.columns, metric)
	if i >= 0 && title != "" {
		for i++; i < len(t.columns) && t.columns[i] != title; i++ {
			if !slices.Contains([]string{"quartiles", "ratio", "95 %"}, t.columns[i]) {
				return "" // the next metric begins
			}
		}
	}
	if i < 0 || i >= len(line) {
		return ""
	}
	return line[i]
}

// units are those in which the report writes figures.
var units = []struct {
	suffix string
	by     float64
}{
	{" ns", 1}, {" µs", float64(time.Microsecond)}, {" ms", float64(time.Millisecond)}, {" s", float64(time.Second)},
	{"/s", 1}, {"×", 1}, {" %", 1}, {" B", 1},
}

// parseFigure reads a figure with its unit.
func parseFigure(text string) (float64, bool) {
	for _, u := range units {
		if number, ok := strings.CutSuffix(text, u.suffix); ok {
			v, err := strconv.ParseFloat(number, 64)
			return v * u.by, err == nil && !math.IsInf(v, 0) && !math.IsNaN(v)
		}
	}
	return 0, false
}

// thousands writes a whole number, with a comma between its thousands.
func thousands(v float64) string {
	text := fmt.Sprintf("%.0f", v)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}
