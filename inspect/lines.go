package inspect

import (
	"fmt"
	"strings"
	"time"
)

// line is a drawing of one figure over the last minute.
type line struct {
	Name string
	Last string // the present value
	Most string // the highest value
	Ago  string // the left end of the drawing
	Path string // points of an SVG of lineWidth by lineHeight
}

const (
	lineWidth  = 240
	lineHeight = 32
	lineFor    = time.Minute
)

// drawLines draws the last minute. Nothing is drawn where less than two moments are known.
func drawLines(points []Point) []line {
	if len(points) < 2 {
		return nil
	}
	number := func(of func(Point) int) (func(Point) float64, func(float64) string) {
		return func(p Point) float64 { return float64(of(p)) }, func(v float64) string { return fmt.Sprint(int(v)) }
	}
	inUse, count := number(func(p Point) int { return p.InUse })
	waiting, _ := number(func(p Point) int { return p.Waiting })
	failed, _ := number(func(p Point) int { return int(p.Failed) })
	return []line{
		drawLine("in use", points, 1, inUse, count),
		drawLine("waiting", points, 1, waiting, count),
		drawLine("wait p99", points, float64(shortWait), func(p Point) float64 { return float64(p.WaitP99) }, func(v float64) string { return Brief(time.Duration(v)) }),
		drawLine("no connection", points, 1, failed, count),
	}
}

// drawLine draws one figure, with the present at the right. A figure stays until the next point.
// Where points are missing, nothing was in use. The top of the drawing is the highest value, or least.
func drawLine(name string, points []Point, least float64, of func(Point) float64, show func(float64) string) line {
	now := points[len(points)-1].At
	most := 0.0
	for _, p := range points {
		most = max(most, of(p))
	}
	var path strings.Builder
	for _, p := range points {
		x := lineWidth * (1 - min(1, float64(now.Sub(p.At))/float64(lineFor)))
		y := lineHeight - 1.0
		y -= (lineHeight - 2) * of(p) / max(most, least)
		fmt.Fprintf(&path, "%.1f,%.1f ", x, y)
	}
	return line{name, show(of(points[len(points)-1])), show(most), Brief(lineFor), strings.TrimSpace(path.String())}
}

// Spark draws one figure of the last minute with eight letters of different height, in width letters.
// It is for terminals.
func Spark(points []Point, width int, of func(Point) float64) string {
	const levels = "▁▂▃▄▅▆▇█"
	if len(points) < 2 || width < 1 {
		return ""
	}
	now, most := points[len(points)-1].At, 0.0
	columns := make([]float64, width)
	for _, p := range points {
		i := width - 1 - int(float64(width)*float64(now.Sub(p.At))/float64(lineFor))
		if i >= 0 {
			columns[i] = max(columns[i], of(p))
			most = max(most, of(p))
		}
	}
	all := []rune(levels)
	var b strings.Builder
	for _, v := range columns {
		i := 0
		if most > 0 {
			i = int(v / most * float64(len(all)-1))
		}
		b.WriteRune(all[i])
	}
	return b.String()
}
