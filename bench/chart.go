package main

import (
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
)

// place is where a contest is shown in a chart: a group of bars, one for each
// contender.
type place struct {
	chart, group string
	metric       metric
	// relative bars show the ratio to the baseline and its interval, others the
	// figure and its quartiles.
	relative bool
	scale    float64 // figures are divided by it; 0 is 1
	axis     string
}

// chart is a picture of some contests.
type chart struct {
	title  string
	groups []group
}

type group struct {
	outcome
	at place
}

// charts collects the contests that share a chart, in their order.
func charts(outcomes []outcome) []chart {
	var all []chart
	at := make(map[string]int)
	for _, o := range outcomes {
		if o.missing != nil || !slices.Contains(o.failed, nil) {
			continue // nothing to draw
		}
		for _, on := range o.on {
			i, ok := at[on.chart]
			if !ok {
				i = len(all)
				at[on.chart] = i
				all = append(all, chart{title: on.chart})
			}
			all[i].groups = append(all[i].groups, group{o, on})
		}
	}
	return all
}

var notInFileName = regexp.MustCompile(`[^a-z0-9]+`)

// file is the name that the chart is written under.
func (c chart) file() string {
	return strings.Trim(notInFileName.ReplaceAllString(strings.ToLower(c.title), "-"), "-") + ".svg"
}

// bars are the figures of one contender, by group.
type bars struct {
	plotter.XYs
	plotter.YErrors
}

// colours are the contenders', the same in every chart; the colour-blind tell them
// apart (Okabe and Ito).
var colours = map[string]color.Color{
	plainName:        color.RGBA{R: 153, G: 153, B: 153, A: 255},
	plainInterpolate: color.RGBA{R: 90, G: 90, B: 90, A: 255},
	pgxpoolName:      color.RGBA{R: 86, G: 180, B: 233, A: 255},
	puddleName:       color.RGBA{R: 0, G: 114, B: 178, A: 255},
	ours:             color.RGBA{R: 213, G: 94, B: 0, A: 255},
	oursInterpolate:  color.RGBA{R: 240, G: 178, B: 66, A: 255},
	lazyName:         color.RGBA{R: 0, G: 158, B: 115, A: 255},
	pipelinedName:    color.RGBA{R: 0, G: 158, B: 115, A: 255},
	admissionName:    color.RGBA{R: 0, G: 158, B: 115, A: 255},
}

const (
	barWidth    = 12 // points
	chartHeight = 3.2 * vg.Inch
	leastWidth  = 6 * vg.Inch
)

// write draws the chart into a file of the directory.
func (c chart) write(dir string) error {
	p := plot.New()
	on := c.groups[0].at
	p.Title.Text, p.Y.Label.Text, p.Y.Min = c.title, on.axis, 0
	p.Legend.Top, p.Legend.Padding = true, vg.Points(2)
	names := c.contenders()
	var groups []string
	for _, g := range c.groups {
		groups = append(groups, g.at.group)
	}
	for i, name := range names {
		b := c.bars(name)
		if len(b.XYs) == 0 {
			continue
		}
		offset := vg.Points(barWidth * (float64(i) - float64(len(names)-1)/2))
		if err := b.draw(p, name, colours[name], len(groups), offset); err != nil {
			return fmt.Errorf("chart %q: %w", c.title, err)
		}
	}
	p.NominalX(groups...)
	p.X.Min, p.X.Max = -0.6, float64(len(groups))-0.4
	p.Y.Max *= 1.1 + 0.12*float64(len(names)) // the legend's place
	width := max(leastWidth, vg.Points(barWidth*float64(len(groups)*(len(names)+2))))
	return p.Save(width, chartHeight, filepath.Join(dir, c.file()))
}

// contenders are all who have something to show in the chart.
func (c chart) contenders() []string {
	var names []string
	seen := make(map[string]bool)
	for _, g := range c.groups {
		for i, who := range g.contenders {
			if !seen[who.name] && g.failed[i] == nil {
				seen[who.name] = true
				names = append(names, who.name)
			}
		}
	}
	return names
}

func (c chart) bars(name string) bars {
	var b bars
	for x, g := range c.groups {
		i := g.named(name)
		if i < 0 || g.failed[i] != nil || g.failed[0] != nil && g.at.relative {
			continue
		}
		v := g.figures[i][g.at.metric.unit]
		var middle, low, high float64
		if g.at.relative {
			v = g.at.metric.compare.of(g.figures[0][g.at.metric.unit], v)
			low, high = interval(v)
		} else {
			low, high = quantile(v, 0.25), quantile(v, 0.75)
		}
		middle = median(v)
		if math.IsNaN(middle) || math.IsInf(middle, 0) {
			continue
		}
		if math.IsInf(low, 0) || math.IsInf(high, 0) { // too few rounds
			low, high = middle, middle
		}
		scale := g.at.scale
		if scale == 0 {
			scale = 1
		}
		b.XYs = append(b.XYs, plotter.XY{X: float64(x), Y: middle / scale})
		b.YErrors = append(b.YErrors, struct{ Low, High float64 }{(middle - low) / scale, (high - middle) / scale})
	}
	return b
}

// draw adds the bars, side by side with those of the other contenders. A group
// in which the contender is missing has no bar of it.
func (b bars) draw(p *plot.Plot, name string, fill color.Color, groups int, offset vg.Length) error {
	heights := make(plotter.Values, groups)
	for _, point := range b.XYs {
		heights[int(point.X)] = point.Y
	}
	drawn, err := plotter.NewBarChart(heights, vg.Points(barWidth))
	if err != nil {
		return err
	}
	drawn.Color, drawn.Offset, drawn.LineStyle.Width = fill, offset, 0
	p.Add(drawn)
	p.Legend.Add(name, drawn)
	spread, err := plotter.NewYErrorBars(b)
	if err != nil {
		return err
	}
	spread.CapWidth = vg.Points(barWidth / 2)
	p.Add(shifted{spread, offset})
	return nil
}
