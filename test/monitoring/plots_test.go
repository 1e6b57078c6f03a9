package monitoring

import (
	"cmp"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/monitoring"
	"github.com/ovnkube/ovnkube/go-controller/pkg/testing/plot"
)

// units maps Grafana's units to axis labels.
var units = map[string]string{"s": "s", "ops": "/s", "pps": "/s"}

// curve returns the curve of a series, which is interrupted where there is no number.
func (w *watched) curve(target monitoring.Target, s series) plot.Curve {
	c := plot.Curve{Name: target.Name(s.Metric)}
	last := math.NaN()
	for _, v := range s.Values {
		at := v.at - float64(w.from.Unix())
		if at-last > 1.5*step.Seconds() {
			c.Points = append(c.Points, [2]float64{at, math.NaN()})
		}
		c.Points = append(c.Points, [2]float64{at, v.value})
		last = at
	}
	return c
}

// draw draws a panel that the documentation shows into the directory $MONITORING_PLOTS.
func (w *watched) draw(t *testing.T, panel monitoring.Panel, curves []plot.Curve) {
	t.Helper()
	dir := os.Getenv("MONITORING_PLOTS")
	if dir == "" || !slices.Contains(drawn, panel.Title) {
		return
	}
	largest := 0.0
	for _, c := range curves {
		for _, p := range c.Points {
			if p[1] > largest { // false for NaN
				largest = p[1]
			}
		}
	}
	slices.SortFunc(curves, func(a, b plot.Curve) int { return cmp.Compare(a.Name, b.Name) })
	p := plot.Plot{
		Title: panel.Title, X: plot.Linear(0, w.to.Sub(w.from).Seconds(), "s"), Y: plot.Linear(0, 1.1*largest, units[panel.FieldConfig.Defaults.Unit]),
		Curves: curves, Marks: w.marks,
	}
	name := "monitoring-" + strings.ToLower(strings.NewReplacer(" ", "-", ",", "").Replace(panel.Title)) + ".svg"
	file, err := os.Create(filepath.Join(dir, name))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := p.Write(file); err != nil {
		t.Fatal(err)
	}
}
