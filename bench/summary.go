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
		last := o.figures[len(o.figures)-1]
		for _, m := range o.metrics() {
			if m.compare == apart {
				continue
			}
			cells := []string{o.name, m.title}
			for _, f := range o.figures {
				cells = append(cells, m.format(median(f[m.unit])))
			}
			for i := range others {
				of := pairwise(o.figures[i][m.unit], last[m.unit], ratio)
				low, high := interval(of)
				cells = append(cells, fmt.Sprintf("%s (%s)", times(median(of)), span(low, high, times)))
			}
			row(w, cells)
		}
	}
}
