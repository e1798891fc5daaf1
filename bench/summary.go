package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
)

// writeSummary writes contests with the same contenders as one table, a line for each
// figure that is compared. What the last contender shows is also held against the others.
func writeSummary(w io.Writer, outcomes []outcome) {
	outcomes = slices.DeleteFunc(slices.Clone(outcomes), func(o outcome) bool { return o.missing != nil })
	if len(outcomes) == 0 {
		return
	}
	names := []string{"", ""}
	for _, c := range outcomes[0].contenders {
		names = append(names, c.name)
	}
	others := names[2 : len(names)-1]
	head := slices.Clone(names)
	for _, name := range others {
		head = append(head, "to "+name)
	}
	fmt.Fprintln(w)
	row(w, head)
	fmt.Fprintf(w, "|---|---|%s\n", strings.Repeat("---:|", len(head)-2))
	for _, o := range outcomes {
		last := len(o.contenders) - 1
		for _, m := range o.metrics() {
			if m.compare == apart {
				continue
			}
			cells := []string{o.name, m.title}
			for i, f := range o.figures {
				cells = append(cells, o.measured(m.format(median(f[m.unit])), i))
			}
			for i := range others {
				of := pairwise(o.figures[i][m.unit], o.figures[last][m.unit], ratio)
				low, high := interval(of)
				cells = append(cells, o.measured(fmt.Sprintf("%s (%s)", times(median(of)), span(low, high, times)), i, last))
			}
			row(w, cells)
		}
	}
}

// measured is a cell of the table, if these contenders have not failed.
func (o outcome) measured(cell string, contenders ...int) string {
	for _, i := range contenders {
		if o.failed[i] != nil {
			return unmeasured
		}
	}
	return cell
}
