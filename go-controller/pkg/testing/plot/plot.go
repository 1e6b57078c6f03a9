package plot

import (
	"fmt"
	"html"
	"io"
	"math"
	"strconv"
	"strings"
)

// Dimensions of the image.
const (
	width, height = 800, 440
	left, right   = 70, 290 // of the plot area; the legend is on the right
	top, bottom   = 40, 50
	legendLine    = 17
)

// colours can be distinguished by people with color blindness, too (Okabe and Ito).
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// Plot is a plot of curves.
type Plot struct {
	Title  string
	X, Y   Axis
	Curves []Curve
	// Marks are vertical lines that mark events.
	Marks []Tick
}

// Axis is one of the two axes.
type Axis struct {
	From, To    float64
	Logarithmic bool
	Ticks       []Tick
}

// Tick is a value with its label.
type Tick struct {
	At    float64
	Label string
}

// Curve is a line through points. A point whose second value is NaN interrupts it.
type Curve struct {
	Name   string
	Points [][2]float64
}

// Linear returns an axis that covers two values, with about five ticks at round numbers.
func Linear(from, to float64, unit string) Axis {
	if to <= from {
		to = from + 1
	}
	step := math.Pow(10, math.Floor(math.Log10((to-from)/4)))
	for _, factor := range []float64{2, 2.5, 2} { // 2, 5, 10
		if (to-from)/step <= 6 {
			break
		}
		step *= factor
	}
	a := Axis{From: math.Floor(from/step) * step, To: math.Ceil(to/step) * step}
	for i := 0.0; a.From+i*step <= a.To+step/2; i++ {
		at := a.From + i*step
		a.Ticks = append(a.Ticks, Tick{at, strings.TrimSpace(strconv.FormatFloat(at, 'g', 6, 64) + " " + unit)})
	}
	return a
}

// place returns the position of a value, from 0 to 1.
func (a Axis) place(v float64) float64 {
	from, to := a.From, a.To
	if a.Logarithmic {
		from, to, v = math.Log(from), math.Log(to), math.Log(v)
	}
	return (v - from) / (to - from)
}

func (p Plot) x(v float64) float64 { return left + p.X.place(v)*(width-left-right) }
func (p Plot) y(v float64) float64 { return height - bottom - p.Y.place(v)*(height-top-bottom) }

// Write writes the plot as SVG.
func (p Plot) Write(w io.Writer) error {
	var b strings.Builder
	tall := max(height, top+legendLine*len(p.Curves))
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, tall)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, tall)
	fmt.Fprintf(&b, `<text x="%d" y="20" font-size="14">%s</text>`+"\n", left, html.EscapeString(p.Title))
	line := func(x1, y1, x2, y2 float64, style string) {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`+"\n", x1, y1, x2, y2, style)
	}
	const grid = `stroke="#ddd"`
	for _, t := range p.Y.Ticks {
		line(left, p.y(t.At), width-right, p.y(t.At), grid)
		fmt.Fprintf(&b, `<text x="%d" y="%.1f" text-anchor="end">%s</text>`+"\n", left-6, p.y(t.At)+4, html.EscapeString(t.Label))
	}
	for _, t := range p.X.Ticks {
		line(p.x(t.At), top, p.x(t.At), height-bottom, grid)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%s</text>`+"\n", p.x(t.At), height-bottom+18, html.EscapeString(t.Label))
	}
	for _, m := range p.Marks {
		line(p.x(m.At), top, p.x(m.At), height-bottom, `stroke="#888" stroke-dasharray="4 3"`)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle" fill="#555">%s</text>`+"\n", p.x(m.At), top-6, html.EscapeString(m.Label))
	}
	for i, c := range p.Curves {
		style := fmt.Sprintf(`stroke="%s" stroke-width="2"`, colours[i%len(colours)])
		if n := i / len(colours); n > 0 {
			style += fmt.Sprintf(` stroke-dasharray="%d 3"`, 2+4*n)
		}
		for _, part := range c.parts() {
			var points []string
			for _, at := range part {
				points = append(points, fmt.Sprintf("%.1f,%.1f", p.x(at[0]), p.y(at[1])))
			}
			if len(points) == 1 { // a line needs two points: draw one of length zero
				points = append(points, points[0])
			}
			fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke-linecap="round" %s/>`+"\n", strings.Join(points, " "), style)
		}
		at := top + legendLine*i
		line(width-right+12, float64(at), width-right+34, float64(at), style)
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s</text>`+"\n", width-right+40, at+4, html.EscapeString(c.Name))
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}

// parts returns the sections of the curve between interruptions.
func (c Curve) parts() [][][2]float64 {
	var parts [][][2]float64
	interrupted := true
	for _, p := range c.Points {
		switch {
		case math.IsNaN(p[1]):
			interrupted = true
			continue
		case interrupted:
			parts = append(parts, nil)
			interrupted = false
		}
		parts[len(parts)-1] = append(parts[len(parts)-1], p)
	}
	return parts
}
