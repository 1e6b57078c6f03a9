package result

import (
	"cmp"
	"fmt"
	"html"
	"io"
	"math"
	"slices"
	"strings"
)

// The measures of the picture.
const (
	width, height = 760, 440
	left, right   = 70, 250 // of the area of the plot; the legend is on the right
	top, bottom   = 40, 50
)

// colours are told apart by those who do not see all colours, too (Okabe and Ito).
var colours = []string{"#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"}

// curve is how the time of a phase grows with the size.
type curve struct {
	phase  string
	points [][2]float64 // times, milliseconds
}

// exponent is the slope of a curve between its ends where both axes are logarithmic: 0
// where the time does not depend on the size, 1 where it is proportional to it.
func (c curve) exponent() float64 {
	first, last := c.points[0], c.points[len(c.points)-1]
	return math.Log(last[1]/first[1]) / math.Log(last[0]/first[0])
}

// curves returns the times until the last row, or until it was done where no row changes,
// of phases that were measured at several sizes of a name.
func curves(all []Result, size string) []curve {
	var out []curve
	for _, p := range Phases(all) {
		ms := p.Median(func(r Result) float64 {
			if r.Rows > 0 {
				return r.Rows
			}
			return r.Done
		})
		if p.Size.Name != size || ms <= 0 {
			continue
		}
		i := slices.IndexFunc(out, func(c curve) bool { return c.phase == p.Name })
		if i < 0 {
			i = len(out)
			out = append(out, curve{phase: p.Name})
		}
		out[i].points = append(out[i].points, [2]float64{float64(p.Size.Times), ms})
	}
	out = slices.DeleteFunc(out, func(c curve) bool {
		slices.SortFunc(c.points, func(a, b [2]float64) int { return cmp.Compare(a[0], b[0]) })
		return len(c.points) < 2
	})
	return out
}

// WritePlot draws time against size, both logarithmic, from the results of a size that was
// measured at several multiples. phases are those to draw; all where there are none.
func WritePlot(w io.Writer, all []Result, size string, phases ...string) error {
	drawn := curves(all, size)
	if len(phases) > 0 {
		drawn = slices.DeleteFunc(drawn, func(c curve) bool { return !slices.Contains(phases, c.phase) })
	}
	if len(drawn) == 0 {
		return fmt.Errorf("nothing was measured at two multiples of %q", size)
	}
	maxX, minY, maxY := 1.0, math.Inf(1), 0.0
	for _, c := range drawn {
		for _, p := range c.points {
			maxX, minY, maxY = max(maxX, p[0]), min(minY, p[1]), max(maxY, p[1])
		}
	}
	low, high := math.Floor(math.Log10(minY)), math.Ceil(math.Log10(maxY*1.0001))
	x := func(times float64) float64 { return left + math.Log2(times)/math.Log2(maxX)*(width-left-right) }
	y := func(ms float64) float64 { return height - bottom - (math.Log10(ms)-low)/(high-low)*(height-top-bottom) }

	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="#fff"/>`+"\n", width, height)
	fmt.Fprintf(&b, `<text x="%d" y="20" font-size="14">Time against size, %s</text>`+"\n", left, html.EscapeString(size))
	grid := func(x1, y1, x2, y2 float64) {
		fmt.Fprintf(&b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#ddd"/>`+"\n", x1, y1, x2, y2)
	}
	for decade := low; decade <= high; decade++ {
		at := y(math.Pow(10, decade))
		grid(left, at, width-right, at)
		fmt.Fprintf(&b, `<text x="%d" y="%.1f" text-anchor="end">%g ms</text>`+"\n", left-6, at+4, math.Pow(10, decade))
	}
	for times := 1.0; times <= maxX; times *= 2 {
		grid(x(times), top, x(times), height-bottom)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%gx</text>`+"\n", x(times), height-bottom+18, times)
	}
	for i, c := range drawn {
		var points []string
		for _, p := range c.points {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(p[0]), y(p[1])))
		}
		colour, dash := colours[i%len(colours)], ""
		if n := i / len(colours); n > 0 {
			dash = fmt.Sprintf(` stroke-dasharray="%d 3"`, 2+4*n)
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"%s/>`+"\n", strings.Join(points, " "), colour, dash)
		at := top + 17*i
		fmt.Fprintf(&b, `<line x1="%d" y1="%d" x2="%d" y2="%d" stroke="%s" stroke-width="2"%s/>`+"\n", width-right+12, at, width-right+34, at, colour, dash)
		fmt.Fprintf(&b, `<text x="%d" y="%d">%s (%.2f)</text>`+"\n", width-right+40, at+4, html.EscapeString(c.phase), c.exponent())
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(w, b.String())
	return err
}
