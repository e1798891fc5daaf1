package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// report is all that a run has shown.
type report struct {
	rounds   int
	turn     time.Duration
	heap     int  // MB that the process keeps
	awake    bool // processors are kept awake
	servers  []string
	proxies  string // what is to be said of them, if there were any
	outcomes []outcome
}

// tablesFile is the report. docs/performance.md, which is written by hand, has the figures that matter.
const tablesFile = "tables.md"

// chartDir is where the charts are, seen from the report.
const chartDir = "charts"

// save writes the report and its charts into a directory, in the place of an
// older report.
func (r report) save(dir string) error {
	var text strings.Builder
	r.write(&text)
	if err := os.MkdirAll(filepath.Join(dir, chartDir), 0o755); err != nil {
		return err
	}
	file := filepath.Join(dir, tablesFile)
	if err := os.WriteFile(file+".new", []byte(text.String()), 0o644); err != nil {
		return err
	}
	if err := os.Rename(file+".new", file); err != nil {
		return err
	}
	old, err := filepath.Glob(filepath.Join(dir, chartDir, "*.svg"))
	if err != nil {
		return err
	}
	for _, file := range old {
		if strings.HasPrefix(filepath.Base(file), "overload") {
			continue // of another run
		}
		if err := os.Remove(file); err != nil {
			return err
		}
	}
	return drawCharts(dir, measuredOf(r.outcomes))
}

func (r report) write(w io.Writer) {
	fmt.Fprintf(w, `# Performance: all tables of the last run

Written by `+"`make bench`"+`. Only ratios within one run mean anything: the contenders
take turns in the same process, and change who begins. The first line of each table
is the baseline. A ratio says how many times as fast as the baseline a contender is,
or how many times less it takes: above 1 is better. It is the median over the rounds
of the ratio in each round; 95 %% is the interval of that median, by order
statistics. Quartiles are over the rounds.

%d rounds of %v for each contender, fewer where a turn takes long. Where an interval is
promised there are %d times as many, of %d turns each that are %d times shorter; where
a database's median is promised, %d times as many, if there is no proxy. Statements'
cases without a proxy open their connections anew in each round: how fast one is depends
on the server's process behind it, for as long as it lives. In those of one goroutine a
server has half of the processors to itself, and the bench the other half, as on
machines of their own: left to the operating system, both on one processor or each on
another, a query takes 0.7 to 1.4 times as long. %s %s; %s; %d processors (%s).

The process keeps %d MB of memory, as a small service does. With less the garbage
collector, which begins anew whenever the memory has doubled, runs nearly all the time,
and its pauses are what is measured (`+"`-heap 0`"+` shows that).
`, r.rounds, r.turn, boundRounds, boundTurns, boundShort, promisedRounds, r.idling(), time.Now().Format("2006-01-02"), runtime.Version(), runtime.NumCPU(), processor(), r.heap)
	if len(r.servers) > 0 {
		fmt.Fprintf(w, "\nServers, in containers on the same machine: %s.\n", strings.Join(r.servers, "; "))
	}
	if r.proxies != "" {
		fmt.Fprintf(w, "\nThe proxies are in the bench's process. %s\n", r.proxies)
	}
	r.writeVerdicts(w)
	section := ""
	for _, o := range r.outcomes {
		if o.section != section {
			section = o.section
			fmt.Fprintf(w, "\n## %s\n", section)
			if text := sectionTexts[section]; text != "" {
				fmt.Fprintf(w, "\n%s\n", text)
			}
			if section == sectionPipelines {
				writeSummary(w, r.of(section))
			}
			r.writeCharts(w, section)
		}
		o.write(w)
	}
}

// idling says what a processor does while the other is at work.
func (r report) idling() string {
	if !r.awake {
		return "A processor that waits for the other is halted."
	}
	return `A processor that waits for
the other is kept awake, by a process that gives way to every other: a virtual one that
is halted takes 20 to 60 µs to come back, twice in each query (` + "`-awake=false`" + ` shows that).`
}

// writeVerdicts lists every promise.
func (r report) writeVerdicts(w io.Writer) {
	fmt.Fprintln(w, "\n## What was wanted")
	fmt.Fprintln(w, "\nMedians of this run, unless a bound is named. Speed: the other's time by ours. Anything"+
		"\nelse that has a × is ours by the baseline's.")
	fmt.Fprintln(w, "\n| | contender | wanted | seen | |\n|---|---|---|---:|---|")
	for _, o := range r.outcomes {
		for _, p := range o.promises {
			v := p.judge(o)
			row(w, []string{o.title(), p.contender(), v.wanted, v.seen, v.word})
		}
	}
}

func (r report) writeCharts(w io.Writer, section string) {
	for _, c := range charts(measuredOf(r.of(section))) {
		fmt.Fprintf(w, "\n![%s](%s/%s)\n", c.title, chartDir, c.file())
	}
}

// of are the outcomes of a section.
func (r report) of(section string) (within []outcome) {
	for _, o := range r.outcomes {
		if o.section == section {
			within = append(within, o)
		}
	}
	return within
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
