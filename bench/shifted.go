package main

import (
	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
)

// shifted draws error bars over bars that stand beside their place on the axis.
type shifted struct {
	*plotter.YErrorBars
	by vg.Length
}

// Plot draws on a canvas that is moved by as much.
func (s shifted) Plot(c draw.Canvas, p *plot.Plot) {
	c.Push()
	defer c.Pop()
	c.Translate(vg.Point{X: s.by})
	s.YErrorBars.Plot(c, p)
}
