package pairs

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/pooldriver/pooldriver/integration/testbed"
)

var onPage sync.Mutex

// print writes the tables of an engine into a page, between two marks. The rest of the page is written by hand.
func (to *results) print(page string, engine testbed.Engine, banned string, refused int, excused, silent []string) error {
	onPage.Lock()
	defer onPage.Unlock()
	text, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	begin, end := fmt.Sprintf("<!-- %s -->\n", engine), fmt.Sprintf("<!-- end of %s -->\n", engine)
	before, rest, found := strings.Cut(string(text), begin)
	_, after, ends := strings.Cut(rest, end)
	if !found || !ends {
		return fmt.Errorf("%s has no %s", page, begin)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%d pairs of levels work, %d are refused, %d cannot act because of a known fault, %d were not exercised.\n\n", len(to.works), refused, len(excused), len(silent))
	b.WriteString("| axis | level | pairs that work | not exercised |\n|---|---|---:|---|\n")
	for i, a := range axes {
		for l, level := range a.levels {
			p := [2]int8{int8(i), int8(l)}
			c := empty()
			if c[i] = l; c.banned(banned) {
				continue
			}
			n := 0
			for k := range to.works {
				if slices.Contains(k[:2], p) {
					n++
				}
			}
			var not []string
			for _, s := range slices.Concat(silent, excused) {
				pair, _, _ := strings.Cut(s, " (")
				x, y, _ := strings.Cut(pair, " ")
				switch name := a.name + "=" + level; name {
				case x:
					not = append(not, y)
				case y:
					not = append(not, x)
				}
			}
			fmt.Fprintf(&b, "| %s | %s | %d | %s |\n", a.name, level, n, strings.Join(not, ", "))
		}
	}
	b.WriteString("\n| act | levels that have not acted on it |\n|---|---|\n")
	for _, name := range slices.Sorted(maps.Keys(to.byAct)) {
		var not []string
		for _, a := range axes {
			for _, level := range a.levels[1:] {
				c := empty()
				if c[axisOf(a.name)] = slices.Index(a.levels, level); a.acted != nil && !c.banned(banned) && !to.byAct[name][a.name+"="+level] {
					not = append(not, a.name+"="+level)
				}
			}
		}
		fmt.Fprintf(&b, "| %s | %s |\n", name, strings.Join(not, ", "))
	}
	b.WriteString("\n| counted by Stats | |\n|---|---:|\n")
	for _, name := range slices.Sorted(maps.Keys(to.counts)) {
		fmt.Fprintf(&b, "| %s | %d |\n", name, to.counts[name])
	}
	return os.WriteFile(page, []byte(before+begin+b.String()+end+after), 0o644)
}
