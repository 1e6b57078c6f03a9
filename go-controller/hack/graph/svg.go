package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// style sets a background, so that the picture can be read on any page.
const style = `<style>
text{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#1f2328;text-anchor:middle}
text.t{font:12px system-ui,-apple-system,"Segoe UI","DejaVu Sans",sans-serif}
text.l{text-anchor:start}
rect.b{fill:#ffffff}rect.g{fill:#f6f8fa;stroke:#d1d9e0}
path{fill:none;stroke:#59636e;stroke-width:1.4}path.n{stroke-dasharray:5 3}polygon{fill:#59636e}
rect.command,rect.wiring{fill:#e1e4e8}rect.glue{fill:#cfe3ff}rect.pure{fill:#c4edcc}
rect.kit{fill:#e5dcf9}rect.driver{fill:#ffdfc2}rect.vocabulary{fill:#fff1b3}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3}rect.b{fill:#0d1117}rect.g{fill:#161b22;stroke:#3d444d}
path{stroke:#9198a1}polygon{fill:#9198a1}
rect.command,rect.wiring{fill:#30363d}rect.glue{fill:#1b3a66}rect.pure{fill:#1c4a2a}
rect.kit{fill:#3c2f63}rect.driver{fill:#5a3717}rect.vocabulary{fill:#524613}
}
</style>
`

// svg draws the picture.
func (g *picture) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%.0f" height="%.0f" viewBox="0 0 %.0f %.0f" role="img">`+"\n", g.w, g.h, g.w, g.h)
	b.WriteString("<!-- Drawn by go-controller/hack/graph; do not edit. -->\n<title>Packages of go-controller and what they import</title>\n" + style)
	fmt.Fprintf(&b, `<rect width="%.0f" height="%.0f" rx="8" class="b"/>`+"\n", g.w, g.h)
	out, in := g.ports()
	for _, a := range g.arrows {
		class := "n"
		if a.pure {
			class = "p"
		}
		x, y := out[a], a.from.bottom
		d := fmt.Sprintf("M%.1f %.1fV%.1f", x, a.from.y+a.from.h, y)
		for _, v := range a.via {
			d += curve(x, y, v.x+v.w/2, v.y) + fmt.Sprintf("V%.1f", v.y+v.h)
			x, y = v.x+v.w/2, v.y+v.h
		}
		end := a.to.y - 7
		d += curve(x, y, in[a], end)
		fmt.Fprintf(&b, `<path class="%s" d="%s"/><polygon points="%.1f,%.1f %.1f,%.1f %.1f,%.1f"/>`+"\n",
			class, d, in[a]-4, end, in[a]+4, end, in[a], end+7)
	}
	for _, row := range g.rows {
		for _, n := range row {
			if !n.passes {
				n.draw(&b)
			}
		}
	}
	g.legend(&b)
	b.WriteString("</svg>\n")
	return b.String()
}

// curve draws a curve from one point down to another.
func curve(x1, y1, x2, y2 float64) string {
	if diff := x1 - x2; diff < 0.05 && diff > -0.05 {
		return fmt.Sprintf("V%.1f", y2)
	}
	bend := (y2 - y1) * 0.55
	return fmt.Sprintf("C%.1f %.1f %.1f %.1f %.1f %.1f", x1, y1+bend, x2, y2-bend, x2, y2)
}

// ports returns where arrows leave and enter a group: next to each other, ordered by where they go and come from.
func (g *picture) ports() (out, in map[*arrow]float64) {
	out, in = map[*arrow]float64{}, map[*arrow]float64{}
	leave, enter := map[*node][]*arrow{}, map[*node][]*arrow{}
	for _, a := range g.arrows {
		leave[a.from], enter[a.to] = append(leave[a.from], a), append(enter[a.to], a)
	}
	center := func(n *node) float64 { return n.x + n.w/2 }
	first := func(a *arrow) float64 { return center(append(slices.Clone(a.via), a.to)[0]) }
	last := func(a *arrow) float64 { return center(append([]*node{a.from}, a.via...)[len(a.via)]) }
	spread := func(n *node, arrows []*arrow, by func(*arrow) float64, at map[*arrow]float64) {
		slices.SortStableFunc(arrows, func(a, b *arrow) int { return cmp.Compare(by(a), by(b)) })
		step := min(16, (n.w-16)/float64(max(1, len(arrows)-1)))
		for i, a := range arrows {
			at[a] = center(n) + step*(float64(i)-float64(len(arrows)-1)/2)
		}
	}
	for _, row := range g.rows {
		for _, n := range row {
			spread(n, leave[n], first, out)
			spread(n, enter[n], last, in)
		}
	}
	return out, in
}

// draw draws a group and its packages.
func (n *node) draw(b *strings.Builder) {
	y := n.y + pad
	fmt.Fprintf(b, `<rect class="g" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="6"/>`+"\n", n.x, n.y, n.w, n.h)
	if n.title != "" {
		fmt.Fprintf(b, `<text class="t" x="%.1f" y="%.1f">%s</text>`+"\n", n.x+n.w/2, y+10, n.title)
		y += titleH
	}
	columns := max(1, n.columns)
	w := (n.w - 2*pad + chipGap) / float64(columns)
	for i, p := range n.packages {
		x := n.x + pad + float64(i%columns)*w
		cy := y + float64(i/columns)*(chipH+chipGap)
		label := n.label(p)
		if n.kind == wiring {
			label = p + ": connects all packages below; its arrows are left out"
		}
		fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%.1f" width="%.1f" height="%.1f" rx="4"/><text x="%.1f" y="%.1f">%s</text>`+"\n",
			kindOf(n, p), x, cy, w-chipGap, chipH, x+(w-chipGap)/2, cy+15, label)
	}
}

// legend explains colours and lines.
func (g *picture) legend(b *strings.Builder) {
	x, y := margin, g.h-legendH+24
	for _, e := range []struct {
		kind kind
		text string
	}{
		{pure, "pure: plans"}, {glue, "controllers, I/O"}, {kit, "shared kit"}, {driver, "drivers"}, {vocabulary, "vocabularies"},
	} {
		fmt.Fprintf(b, `<rect class="%s" x="%.1f" y="%.1f" width="16" height="12" rx="3"/><text class="t l" x="%.1f" y="%.1f">%s</text>`+"\n",
			e.kind, x, y, x+22, y+10, e.text)
		x += 22 + 7*float64(len(e.text)) + 22
	}
	for _, e := range []struct{ class, text string }{{"p", "imports"}, {"n", "only its controllers import"}} {
		fmt.Fprintf(b, `<path class="%s" d="M%.1f %.1fh26"/><text class="t l" x="%.1f" y="%.1f">%s</text>`+"\n", e.class, x, y+6, x+32, y+10, e.text)
		x += 32 + 7*float64(len(e.text)) + 22
	}
	fmt.Fprintf(b, `<text class="t l" x="%.1f" y="%.1f">%s</text>`+"\n", margin, y+30,
		"Left out: arrows that others imply, tests, generated code, and package version.")
}
