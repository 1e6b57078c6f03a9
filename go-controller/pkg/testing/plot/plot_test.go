package plot

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
)

func TestWrite(t *testing.T) {
	p := Plot{
		Title: "a < b", X: Linear(0, 4, "s"), Y: Axis{From: 1, To: 100, Logarithmic: true, Ticks: []Tick{{10, "ten"}}},
		Curves: []Curve{
			{Name: "whole & well", Points: [][2]float64{{0, 1}, {2, 10}, {4, 100}}},
			{Name: "interrupted", Points: [][2]float64{{0, math.NaN()}, {1, 1}, {2, math.NaN()}, {3, 10}, {4, 10}, {4, math.NaN()}}},
		},
		Marks: []Tick{{2, "killed"}},
	}
	var out bytes.Buffer
	if err := p.Write(&out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{
		"a &lt; b", "whole &amp; well", ">killed<", ">4 s<", ">ten<",
		`points="70.0,390.0 290.0,215.0 510.0,40.0"`, // half way for a tenth: logarithmic
		`points="180.0,390.0 180.0,390.0"`, `points="400.0,215.0 510.0,215.0"`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %s in\n%s", want, text)
		}
	}
	if n := strings.Count(text, "<polyline"); n != 3 || strings.Contains(text, "NaN") {
		t.Errorf("%d lines in\n%s", n, text)
	}
	for dec := xml.NewDecoder(&out); ; {
		_, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func TestLinear(t *testing.T) {
	for _, test := range []struct {
		from, to float64
		ticks    string
	}{
		{0, 1, "0 0.2 0.4 0.6 0.8 1"},
		{0, 3, "0 0.5 1 1.5 2 2.5 3"},
		{0, 0, "0 0.2 0.4 0.6 0.8 1"},
		{0, 1.43, "0 0.5 1 1.5"},
		{0, 270, "0 50 100 150 200 250 300"},
		{0, 0.0021, "0 0.0005 0.001 0.0015 0.002 0.0025"},
	} {
		a := Linear(test.from, test.to, "")
		var labels []string
		for _, tick := range a.Ticks {
			labels = append(labels, tick.Label)
		}
		if got := strings.Join(labels, " "); got != test.ticks || a.To < test.to || fmt.Sprint(a.To) != labels[len(labels)-1] {
			t.Errorf("%v to %v: %s to %v, want %s", test.from, test.to, got, a.To, test.ticks)
		}
	}
}
