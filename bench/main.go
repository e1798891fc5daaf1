// Command bench measures pooldriver against its peers, side by side in one
// process, in alternating rounds, and writes what it saw as Markdown. A contest
// that was lost stays in.
//
//	go -C bench run . -rounds 20 > docs/performance.md
package main

import (
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

func main() {
	testing.Init()
	rounds := flag.Int("rounds", 20, "rounds per contest")
	round := flag.Duration("round", 300*time.Millisecond, "length of each contender's turn in a round")
	only := flag.String("only", "", "run the contests whose names contain this")
	flag.Parse()
	w := os.Stdout
	fmt.Fprintf(w, `# Performance

Written by `+"`make bench`"+`. Only ratios within one run mean anything: the twins
take turns in the same process, and change who begins. A ratio below 1 is in our
favour. Spread: quartiles over the rounds.

%d rounds of %v per contender; %s; %s; %d processors (%s).

The first line of each table is the baseline.
`, *rounds, *round, time.Now().Format("2006-01-02"), runtime.Version(), runtime.NumCPU(), processor())
	for _, c := range slices.Concat(poolContests(), nullContests(), boundContests(), taskContests(), queueContests(), readContests()) {
		if !strings.Contains(c.name, *only) {
			continue
		}
		if c.missing != "" {
			fmt.Fprintf(w, "\n### %s\n\nnot measured: %s\n", c.name, c.missing)
			continue
		}
		fmt.Fprintln(os.Stderr, c.name)
		o, err := c.hold(*rounds, *round)
		if err != nil {
			fmt.Fprintln(os.Stderr, "bench:", err)
			os.Exit(1)
		}
		o.write(w)
	}
}

// processor is the processor's name, where Linux tells it.
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(info)) {
		if name, ok := strings.CutPrefix(line, "model name"); ok {
			return strings.TrimSpace(strings.TrimLeft(name, "\t :"))
		}
	}
	return runtime.GOARCH
}
