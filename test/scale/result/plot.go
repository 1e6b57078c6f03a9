package result

import (
	"cmp"
	"fmt"
	"io"
	"math"
	"regexp"
	"slices"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/plot"
)

// curve is how the time of a phase grows with the size.
type curve struct {
	phase  string
	points [][2]float64 // times, milliseconds
}

// exponent returns the slope of a curve between its ends with logarithmic axes: 0
// if the time does not depend on the size, 1 if it is proportional to it.
func (c curve) exponent() float64 {
	first, last := c.points[0], c.points[len(c.points)-1]
	return math.Log(last[1]/first[1]) / math.Log(last[0]/first[0])
}

// curves returns the times until the last row, or until done if no row changes,
// of phases that were measured at several multiples of the named size.
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
// measured at several multiples. It draws the phases whose names match the expression.
func WritePlot(w io.Writer, all []Result, size string, phases *regexp.Regexp) error {
	drawn := slices.DeleteFunc(curves(all, size), func(c curve) bool { return !phases.MatchString(c.phase) })
	if len(drawn) == 0 {
		return fmt.Errorf("nothing that matches %q was measured at two multiples of %q", phases, size)
	}
	maxX, minY, maxY := 1.0, math.Inf(1), 0.0
	for _, c := range drawn {
		for _, p := range c.points {
			maxX, minY, maxY = max(maxX, p[0]), min(minY, p[1]), max(maxY, p[1])
		}
	}
	low, high := math.Floor(math.Log10(minY)), math.Ceil(math.Log10(maxY*1.0001))
	p := plot.Plot{
		Title: "Time against size, " + size,
		X:     plot.Axis{From: 1, To: maxX, Logarithmic: true},
		Y:     plot.Axis{From: math.Pow(10, low), To: math.Pow(10, high), Logarithmic: true},
	}
	for decade := low; decade <= high; decade++ {
		ms := math.Pow(10, decade)
		p.Y.Ticks = append(p.Y.Ticks, plot.Tick{At: ms, Label: fmt.Sprintf("%g ms", ms)})
	}
	for times := 1.0; times <= maxX; times *= 2 {
		p.X.Ticks = append(p.X.Ticks, plot.Tick{At: times, Label: fmt.Sprintf("%gx", times)})
	}
	for _, c := range drawn {
		p.Curves = append(p.Curves, plot.Curve{Name: fmt.Sprintf("%s (%.2f)", c.phase, c.exponent()), Points: c.points})
	}
	return p.Write(w)
}
