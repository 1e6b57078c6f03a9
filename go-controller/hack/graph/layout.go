package main

import (
	"cmp"
	"slices"
)

// Sizes, in pixels.
const (
	chipH, chipGap   = 21.0, 4.0
	pad, titleH      = 7.0, 17.0
	charW            = 7.3
	gapX, gapY       = 16.0, 74.0
	passW, margin    = 14.0, 22.0
	wiringW, legendH = 900.0, 64.0
)

// layout places everything: arrows pass rows between the groups, groups are ordered so that few arrows cross, and
// moved towards what they are connected to.
func (g *picture) layout() {
	for _, a := range g.arrows {
		for r := a.from.row + 1; r < a.to.row; r++ {
			p := &node{row: r, passes: true, w: passW}
			a.via = append(a.via, p)
			g.rows[r] = append(g.rows[r], p)
		}
	}
	for _, row := range g.rows {
		for i, n := range row {
			n.order = i
			if !n.passes {
				n.size()
			}
		}
	}
	up, down := g.neighbours()
	for sweep := range 24 {
		side := down
		if sweep%2 == 0 {
			side = up
		}
		for _, row := range g.rows {
			center := map[*node]float64{}
			for _, n := range row {
				center[n] = float64(n.order)
				if len(side[n]) > 0 {
					sum := 0.0
					for _, o := range side[n] {
						sum += (float64(o.order) + 0.5) / float64(len(g.rows[o.row]))
					}
					center[n] = sum / float64(len(side[n])) * float64(len(row))
				}
			}
			slices.SortStableFunc(row, func(a, b *node) int { return cmp.Compare(center[a], center[b]) })
			for i, n := range row {
				n.order = i
			}
		}
	}
	g.place(up, down)
}

// neighbours returns what each node is connected to in the row above and in the row below.
func (g *picture) neighbours() (up, down map[*node][]*node) {
	up, down = map[*node][]*node{}, map[*node][]*node{}
	for _, a := range g.arrows {
		chain := append(append([]*node{a.from}, a.via...), a.to)
		for i := 1; i < len(chain); i++ {
			up[chain[i]] = append(up[chain[i]], chain[i-1])
			down[chain[i-1]] = append(down[chain[i-1]], chain[i])
		}
	}
	for i, row := range g.rows { // nodes without arrows are still placed above what they import
		for _, n := range row {
			if n.kind == wiring {
				down[n] = append(down[n], g.rows[i+1]...)
			}
		}
	}
	return up, down
}

// size sets the size of a group with its packages.
func (n *node) size() {
	columns := max(1, n.columns)
	lines := (len(n.packages) + columns - 1) / columns
	n.w = float64(columns)*(n.chipW()+chipGap) - chipGap + 2*pad
	n.h = float64(lines)*(chipH+chipGap) - chipGap + 2*pad
	if n.title != "" {
		n.h += titleH
		n.w = max(n.w, charW*float64(len(n.title))+2*pad)
	}
	if n.kind == wiring {
		n.w = wiringW
	}
}

func (n *node) chipW() float64 {
	longest := 0
	for _, p := range n.packages {
		longest = max(longest, len(n.label(p)))
	}
	return charW*float64(longest) + 12
}

// place sets coordinates.
func (g *picture) place(up, down map[*node][]*node) {
	y := margin
	for _, row := range g.rows {
		x, height := margin, 0.0
		for _, n := range row {
			n.x, n.y = x, y
			x += n.w + gapX
			height = max(height, n.h)
		}
		for _, n := range row {
			if n.bottom = y + height; n.passes {
				n.h = height
			}
		}
		y += height + gapY
	}
	for range 60 {
		for _, row := range g.rows {
			align(row, up, down)
		}
	}
	left := g.rows[0][0].x
	for _, row := range g.rows {
		left = min(left, row[0].x)
	}
	for _, row := range g.rows {
		for _, n := range row {
			n.x += margin - left
			g.w = max(g.w, n.x+n.w+margin)
		}
	}
	g.h = y - gapY + legendH
}

// align moves the nodes of a row to the middle of what they are connected to, as far as their order and the gaps
// allow.
func align(row []*node, up, down map[*node][]*node) {
	want := make([]float64, len(row))
	for i, n := range row {
		sum, count := 0.0, 0.0
		for _, side := range [][]*node{up[n], down[n]} {
			for _, o := range side {
				weight := 1.0
				if n.passes && o.passes {
					weight = 4 // keep arrows straight
				}
				sum += weight * (o.x + o.w/2)
				count += weight
			}
		}
		want[i] = n.x
		if count > 0 {
			want[i] = sum/count - n.w/2
		}
	}
	// The average of shifting right and shifting left preserves all gaps.
	right, left := slices.Clone(want), slices.Clone(want)
	for i := 1; i < len(row); i++ {
		right[i] = max(right[i], right[i-1]+row[i-1].w+gap(row[i-1], row[i]))
	}
	for i := len(row) - 2; i >= 0; i-- {
		left[i] = min(left[i], left[i+1]-row[i].w-gap(row[i], row[i+1]))
	}
	for i, n := range row {
		n.x = (right[i] + left[i]) / 2
	}
}

func gap(a, b *node) float64 {
	if a.passes && b.passes {
		return 0
	}
	return gapX
}
