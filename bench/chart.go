package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// place is where a contest is shown in a chart: a group of bars, one for each
// contender.
type place struct {
	chart, group string
	metric       metric
	// relative bars show the ratio to the baseline and its interval, others the
	// figure and its quartiles.
	relative bool
	// rate: the metric is the time of one operation, and the bars show operations per second.
	rate bool
	unit string // what a bar's length means, in words
}

// chart is a picture of some contests.
type chart struct {
	title  string
	groups []group
}

type group struct {
	contest
	at place
}

// charts collects the contests that share a chart, in their order.
func charts(contests []contest) []chart {
	var all []chart
	at := make(map[string]int)
	for _, c := range contests {
		for _, on := range c.on {
			i, ok := at[on.chart]
			if !ok {
				i = len(all)
				at[on.chart] = i
				all = append(all, chart{title: on.chart})
			}
			all[i].groups = append(all[i].groups, group{c, on})
		}
	}
	return all
}

// measuredOf are the contests of which there is something to draw.
func measuredOf(outcomes []outcome) (contests []contest) {
	for _, o := range outcomes {
		if o.missing == nil && slices.Contains(o.failed, nil) {
			contests = append(contests, o.contest)
		}
	}
	return contests
}

var notInFileName = regexp.MustCompile(`[^a-z0-9]+`)

// file is the name that the chart is written under.
func (c chart) file() string {
	return strings.Trim(notInFileName.ReplaceAllString(strings.ToLower(c.title), "-"), "-") + ".svg"
}

// picture is the chart with the figures of the tables. It has no panels if these have none of its contests.
func (c chart) picture(t tables) picture {
	p := picture{title: c.title, unit: c.groups[0].at.unit}
	for _, g := range c.groups {
		if bars := g.bars(t[g.title()]); len(bars) > 0 {
			p.panels = append(p.panels, panel{g.at.group, bars})
		}
	}
	return p
}

// bars are those of the contenders that were measured.
func (g group) bars(t table) (bars []bar) {
	for _, line := range t.lines {
		text, of := t.cell(line, g.at.metric.title, ""), t.cell(line, g.at.metric.title, "quartiles")
		if g.at.relative {
			if text != "" && len(bars) == 0 { // the baseline
				bars = append(bars, bar{name: line[0], value: 1, low: 1, high: 1, text: "1"})
				continue
			}
			text, of = t.cell(line, g.at.metric.title, "ratio"), t.cell(line, g.at.metric.title, "95 %")
		}
		value, ok := parseFigure(text)
		if !ok {
			continue
		}
		b := bar{name: line[0], value: value, low: value, high: value, text: text}
		if from, to, ranged := strings.Cut(of, " – "); ranged {
			low, fine := parseFigure(from)
			high, well := parseFigure(to)
			if fine && well {
				b.low, b.high = low, high
			}
		}
		if g.at.rate {
			b.value, b.low, b.high = 1e9/b.value, 1e9/b.high, 1e9/b.low
		}
		if g.at.rate || g.at.metric.unit == throughput.unit && !g.at.relative {
			b.text = thousands(b.value)
		}
		bars = append(bars, b)
	}
	return bars
}

// drawCharts draws the charts of the contests from the tables in a directory: what is drawn is what the tables say.
func drawCharts(dir string, contests []contest) error {
	t, err := readTables(filepath.Join(dir, tablesFile))
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, chartDir), 0o755); err != nil {
		return err
	}
	var errs []error // one that cannot be drawn costs no other
	for _, c := range charts(contests) {
		if p := c.picture(t); len(p.panels) > 0 {
			if err := p.save(filepath.Join(dir, chartDir, c.file())); err != nil {
				errs = append(errs, fmt.Errorf("chart %q: %w", c.title, err))
			}
		}
	}
	return errors.Join(errs...)
}
