package main

import (
	"image/color"
	"os"
	"strings"

	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/font/liberation"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// picture is a chart as it is drawn: a bar for each contender, with its name before it and its figure behind it,
// in one scale for all panels. A page shows it on light and on dark ground, and on a telephone.
type picture struct {
	title, unit string
	panels      []panel
}

type panel struct {
	title string
	bars  []bar
}

// bar is the figure of one contender; from low to high it varied.
type bar struct {
	name             string
	value, low, high float64
	text             string
}

// look is the ground and what is drawn on it.
type look struct {
	suffix                string // of the file's name
	ground, text, fainter color.RGBA
}

var looks = []look{
	{"", rgb(0xffffff), rgb(0x1f2328), rgb(0x59636e)},
	{"-dark", rgb(0x0d1117), rgb(0xf0f6fc), rgb(0x9198a1)},
}

func rgb(v uint32) color.RGBA {
	return color.RGBA{R: uint8(v >> 16), G: uint8(v >> 8), B: uint8(v), A: 255}
}

// colours are the contenders', the same in every chart and on either ground; the colour-blind tell them
// apart (Okabe and Ito).
var colours = map[string]color.RGBA{
	plainName:        rgb(0x999999),
	preparedName:     rgb(0x0072b2),
	plainInterpolate: rgb(0xcc79a7),
	pgxpoolName:      rgb(0x56b4e9),
	puddleName:       rgb(0x56b4e9),
	ours:             rgb(0xd55e00),
	oursInterpolate:  rgb(0xe69f00),
	lazyName:         rgb(0x009e73),
	eagerName:        rgb(0xe69f00),
	pipelinedName:    rgb(0x009e73),
	admissionName:    rgb(0x009e73),
}

// The measures of a picture.
const (
	pictureWidth = 380 * vg.Length(1)
	margin       = 12 * vg.Length(1)
	figureWidth  = 62 * vg.Length(1) // of the figure behind a bar
	barHeight    = 13 * vg.Length(1)
	barStep      = 17 * vg.Length(1)
	lineHeight   = 16 * vg.Length(1)
	panelGap     = 10 * vg.Length(1)

	titleSize, textSize = 14, 11
)

// faces are fonts whose widths are known here. Where a reader has no Liberation Sans there is Arial, of the same
// widths, or another one without serifs.
var faces = font.NewCache(liberation.Collection())

const (
	drawnFamily = "font-family:Liberation Sans"
	readFamily  = "font-family:Liberation Sans,Arial,Helvetica,sans-serif"
)

func face(size vg.Length, bold bool) font.Face {
	f := font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	if bold {
		f.Weight = 2 // font.WeightBold of golang.org/x/image
	}
	return faces.Lookup(f, size)
}

// save draws the picture in each look: into the file, and beside it.
func (p picture) save(file string) error {
	for _, l := range looks {
		var text strings.Builder
		if _, err := p.draw(l).WriteTo(&text); err != nil {
			return err
		}
		svg := strings.ReplaceAll(text.String(), drawnFamily+";", readFamily+";")
		if err := os.WriteFile(strings.TrimSuffix(file, ".svg")+l.suffix+".svg", []byte(svg), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// draw draws from the top to the bottom.
func (p picture) draw(l look) *vgsvg.Canvas {
	title := wrapped(p.title, face(titleSize, true), pictureWidth-2*margin)
	unit := wrapped(p.unit, face(textSize, false), pictureWidth-2*margin)
	height := 2*margin + lineHeight*vg.Length(len(title)+len(unit)) + 2
	names, most := vg.Length(0), 0.0
	for _, panel := range p.panels {
		height += panelGap + lineHeight + barStep*vg.Length(len(panel.bars))
		for _, b := range panel.bars {
			names, most = max(names, widthOf(face(textSize, false), shownName(b.name))), max(most, b.value, b.high)
		}
	}
	svg := vgsvg.New(pictureWidth, height)
	c := draw.New(svg)
	c.FillPolygon(l.ground, []vg.Point{{}, {X: pictureWidth}, {X: pictureWidth, Y: height}, {Y: height}})
	at := height - margin
	write := func(text string, size vg.Length, bold bool, fill color.Color, x vg.Length) {
		c.SetColor(fill)
		c.FillString(face(size, bold), vg.Point{X: x, Y: at - size}, text)
	}
	for _, line := range title {
		write(line, titleSize, true, l.text, margin)
		at -= lineHeight
	}
	at -= 2
	for _, line := range unit {
		write(line, textSize, false, l.fainter, margin)
		at -= lineHeight
	}
	left := margin + names + 8
	scale := (pictureWidth - left - figureWidth - margin) / vg.Length(most)
	for _, panel := range p.panels {
		at -= panelGap
		write(panel.title, textSize, true, l.text, margin)
		at -= lineHeight
		for _, b := range panel.bars {
			write(shownName(b.name), textSize, false, l.text, margin)
			right, top, bottom := left+scale*vg.Length(b.value), at, at-barHeight
			c.FillPolygon(colours[b.name], []vg.Point{{X: left, Y: bottom}, {X: right, Y: bottom}, {X: right, Y: top}, {X: left, Y: top}})
			if b.high > b.low {
				middle := (top + bottom) / 2
				c.StrokeLine2(draw.LineStyle{Color: l.text, Width: 1}, left+scale*vg.Length(b.low), middle, left+scale*vg.Length(b.high), middle)
			}
			write(b.text, textSize, false, l.text, left+scale*vg.Length(max(b.value, b.high))+5)
			at -= barStep
		}
	}
	return svg
}

// shownName is a contender's name as people know it.
func shownName(name string) string {
	if rest, ok := strings.CutPrefix(name, plainName); ok {
		return "database/sql" + rest
	}
	return name
}

func widthOf(f font.Face, text string) vg.Length { return f.Width(text) }

// wrapped breaks a text into lines that are no wider.
func wrapped(text string, f font.Face, width vg.Length) (lines []string) {
	for word := range strings.FieldsSeq(text) {
		last := len(lines) - 1
		if last >= 0 && widthOf(f, lines[last]+" "+word) <= width {
			lines[last] += " " + word
		} else {
			lines = append(lines, word)
		}
	}
	return lines
}
