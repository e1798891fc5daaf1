package main

import (
	"fmt"
	"io"
	"strings"
)

// write writes the outcome as a table, one line for each contender.
func (o outcome) write(w io.Writer) {
	fmt.Fprintf(w, "\n### %s\n\n", o.name)
	if o.missing != nil {
		fmt.Fprintf(w, "%s: %s\n", unmeasured, oneLine(o.missing))
		return
	}
	fmt.Fprintf(w, "%d rounds.\n\n", o.held)
	head := []string{""}
	for _, m := range o.metrics() {
		head = append(head, m.columns()...)
	}
	head = append(head, "wanted")
	row(w, head)
	fmt.Fprintf(w, "|---|%s---|\n", strings.Repeat("---:|", len(head)-2))
	for i, c := range o.contenders {
		cells := []string{c.name}
		if err := o.failed[i]; err != nil {
			row(w, append(cells, unmeasured+": "+oneLine(err)))
			continue
		}
		for _, m := range o.metrics() {
			cells = append(cells, m.cells(o.figures[0][m.unit], o.figures[i][m.unit], i == 0)...)
		}
		row(w, append(cells, o.wanted(c.name)))
	}
}

// columns are the titles of what a metric shows.
func (m metric) columns() []string {
	titles := []string{m.title}
	if m.spread {
		titles = append(titles, "quartiles")
	}
	if m.compare != apart {
		titles = append(titles, "ratio", "95 %")
	}
	return titles
}

// cells are what a metric shows of a contender.
func (m metric) cells(base, own []float64, isBase bool) []string {
	if len(own) == 0 {
		return make([]string, len(m.columns()))
	}
	cells := []string{m.format(median(own))}
	if m.spread {
		cells = append(cells, span(quantile(own, 0.25), quantile(own, 0.75), m.format))
	}
	switch {
	case m.compare == apart:
	case isBase || len(base) == 0:
		cells = append(cells, "", "")
	default:
		r := m.compare.of(base, own)
		low, high := interval(r)
		cells = append(cells, times(median(r)), span(low, high, times))
	}
	return cells
}

// wanted says what was promised of the contender, and what came of it.
func (o outcome) wanted(contender string) string {
	var words []string
	for _, p := range o.promises {
		if p.contender() == contender {
			v := p.judge(o)
			words = append(words, fmt.Sprintf("%s: %s, %s", v.wanted, v.seen, v.word))
		}
	}
	return strings.Join(words, "; ")
}

func row(w io.Writer, cells []string) { fmt.Fprintf(w, "| %s |\n", strings.Join(cells, " | ")) }

// longestError is how much of an error is shown.
const longestError = 160

// oneLine writes an error so that it fits into a table.
func oneLine(err error) string {
	text := []rune(strings.ReplaceAll(strings.Join(strings.Fields(err.Error()), " "), "|", "\\|"))
	if len(text) > longestError {
		return string(text[:longestError]) + "…"
	}
	return string(text)
}
