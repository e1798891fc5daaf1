package sizing

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/pooldriver/pooldriver/inspect"
)

// Text draws the curve for a terminal.
func (c *Curve) Text() string {
	const width = 40
	var b strings.Builder
	fmt.Fprintf(&b, "   %5s %14s %7s %9s\n", "conns", "statements/s", "noise", "p99")
	most := 0.0
	for _, p := range c.Points {
		most = max(most, p.Rate)
	}
	for _, p := range c.Points {
		mark := "  "
		if p.Size == c.Advice {
			mark = "→ "
		}
		fmt.Fprintf(&b, "%s %5d %14s %7s %9s  %s", mark, p.Size, thousands(p.Rate), "±"+percent(p.Noise()), inspect.Brief(p.P99), strings.Repeat("█", int(math.Round(width*p.Rate/max(most, 1)))))
		if p.Errors > 0 {
			fmt.Fprintf(&b, " %d errors", p.Errors)
		}
		b.WriteString("\n")
	}
	return b.String()
}

// The picture, in its own units.
const (
	pictureWidth, pictureHeight = 720.0, 400.0
	left, right, top, bottom    = 80.0, 80.0, 50.0, 60.0
)

// SVG draws the curve: statements per second with their noise, and the 99th percentile.
func (c *Curve) SVG(title string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %g %g" font-family="sans-serif" font-size="12">`+"\n", pictureWidth, pictureHeight)
	fmt.Fprintf(&b, `<rect width="%g" height="%g" fill="#fff"/>`+"\n", pictureWidth, pictureHeight)
	text := func(x, y float64, anchor, colour, text string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, colour, escaped.Replace(text))
	}
	const black, rate, slow = "#333", "#d55e00", "#0072b2" // the colour-blind tell them apart (Okabe and Ito)
	text(left, 20, "start", black, title)
	text(left, 38, "start", rate, "statements per second, with their noise")
	text(pictureWidth-right, 38, "end", slow, "p99 of a statement")
	text(pictureWidth/2, pictureHeight-12, "middle", black, "connections")
	if len(c.Points) == 0 {
		return b.String() + "</svg>\n"
	}
	mostRate, mostTime := 1.0, 1.0
	for _, p := range c.Points {
		mostRate, mostTime = max(mostRate, p.High), max(mostTime, float64(p.P99))
	}
	last := math.Log2(float64(c.Points[len(c.Points)-1].Size))
	x := func(size int) float64 {
		return left + (pictureWidth-left-right)*math.Log2(float64(size))/max(last, 1)
	}
	y := func(part float64) float64 { return pictureHeight - bottom - (pictureHeight-top-bottom)*part/1.05 }
	for _, part := range []float64{0, 0.25, 0.5, 0.75, 1} {
		fmt.Fprintf(&b, `<line x1="%g" x2="%g" y1="%.1f" y2="%.1[3]f" stroke="#ddd"/>`+"\n", left, pictureWidth-right, y(part))
		text(left-8, y(part)+4, "end", rate, thousands(part*mostRate))
		text(pictureWidth-right+8, y(part)+4, "start", slow, inspect.Brief(time.Duration(part*mostTime)))
	}
	if c.Advice > 0 {
		fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1[1]f" y1="%.1f" y2="%.1f" stroke="%s" stroke-dasharray="4 3"/>`+"\n", x(c.Advice), y(0), y(1), black)
		text(x(c.Advice)+5, y(0)-6, "start", black, fmt.Sprintf("enough: %d", c.Advice))
	}
	var rates, times strings.Builder
	for _, p := range c.Points {
		at := x(p.Size)
		text(at, pictureHeight-bottom+18, "middle", black, strconv.Itoa(p.Size))
		fmt.Fprintf(&b, `<line x1="%.1f" x2="%.1[1]f" y1="%.1f" y2="%.1f" stroke="%s" stroke-width="4" stroke-opacity="0.4"/>`+"\n", at, y(p.Low/mostRate), y(p.High/mostRate), rate)
		fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3.5" fill="%s"/>`+"\n", at, y(p.Rate/mostRate), rate)
		fmt.Fprintf(&rates, "%.1f,%.1f ", at, y(p.Rate/mostRate))
		fmt.Fprintf(&times, "%.1f,%.1f ", at, y(float64(p.P99)/mostTime))
	}
	fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.TrimSpace(rates.String()), rate)
	fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="1.5" stroke-dasharray="6 3"/>`+"\n", strings.TrimSpace(times.String()), slow)
	return b.String() + "</svg>\n"
}

var escaped = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;")

// thousands prints a rate: "12,300", "81.5".
func thousands(rate float64) string {
	if rate == 0 {
		return "0"
	}
	if rate < 100 {
		return strconv.FormatFloat(rate, 'f', 1, 64)
	}
	text := strconv.FormatFloat(rate, 'f', 0, 64)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 0, 64) + " %" }
