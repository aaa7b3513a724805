package main

import (
	"fmt"
	"slices"
	"strings"

	"tranche/scheduler/sim/packing"
)

// packingPicture draws the first list's allocation over arrivals, with what was
// published beside, and for all lists what ragp-x gains over FGD as published.
func packingPicture(lists []string, measured map[string]map[string]any, published publishedFigures, seeds int) string {
	about := fmt.Sprintf("Means of %d runs on the public trace cluster-trace-gpu-v2023; published are the ten runs of the FGD paper.", seeds)
	d := newDrawing(960, 820, "GPU allocation on Alibaba's trace", about)
	d.text(60, 30, "start", `font-size="16" font-weight="600"`, "GPU that policies could give, list "+lists[0])
	d.text(60, 50, "start", `fill="#5a686c"`, about)
	curves := []shade{ // the highest first: names beside their ends give way downwards
		{"tranche", "RAGP-X", "#0f5c63", ""}, {"fgd", "FGD, ours", "#1b2426", "4 2"}, {"bestfit", "best fit", "#5f7278", "8 4"}, {"random", "random", "#9aa9ad", "2 4"},
	}
	p := plot{60, 100, 700, 320, 76, 98}
	d.axis(p, "GPU allocated, % of the cluster's", "%.0f", 2)
	marks := slices.DeleteFunc(packing.Marks(), func(m int) bool { return m < 80 })
	x := func(mark int) float64 { return p.x + p.w*float64(mark-80)/50 }
	for _, m := range marks {
		d.text(x(m), p.y+p.h+16, "middle", `fill="#5a686c"`, fmt.Sprint(m))
	}
	d.text(p.x+p.w/2, p.y+p.h+34, "middle", `fill="#5a686c"`, "GPU asked for so far, % of the cluster's")
	ends := []float64{}
	for _, c := range curves {
		f, ok := measured[lists[0]][c.name].(figures)
		if !ok {
			continue
		}
		var points []string
		for _, m := range marks {
			points = append(points, fmt.Sprintf("%.1f,%.1f", x(m), p.at(f[fmt.Sprintf("allocated_pct_at_%d", m)])))
		}
		fmt.Fprintf(d, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2.5" stroke-dasharray="%s"/>`+"\n", strings.Join(points, " "), c.fill, c.dash)
		y := p.at(f["allocated_pct_at_130"])
		for slices.ContainsFunc(ends, func(o float64) bool { return o-y < 14 && y-o < 14 }) {
			y += 14
		}
		ends = append(ends, y)
		d.text(p.x+p.w+10, y+4, "start", fmt.Sprintf(`fill="%s" font-weight="600"`, c.fill), fmt.Sprintf("%s %.2f", c.label, f["allocated_pct_at_130"]))
	}
	if old := published[lists[0]]["fgd"]; old != nil {
		for _, m := range marks {
			if v, ok := old[fmt.Sprintf("allocated_pct_at_%d", m)]; ok {
				fmt.Fprintf(d, `<circle cx="%.1f" cy="%.1f" r="4.5" fill="#ffffff" stroke="#1b2426" stroke-width="1.5"><title>FGD, published: %.2f</title></circle>`+"\n", x(m), p.at(v), v)
			}
		}
		d.text(p.x+8, p.y+p.h-10, "start", "", "○ FGD as published")
	}
	gains(d, lists, measured, published)
	return d.end()
}

// gains draws a bar per list, the smallest on the left.
func gains(d *drawing, lists []string, measured map[string]map[string]any, published publishedFigures) {
	gain := map[string]float64{}
	for _, list := range lists {
		f, ok := measured[list]["tranche"].(figures)
		if old := published[list]["fgd"]; ok && old != nil {
			gain[list] = f["allocated_pct_at_100"] - old["allocated_pct_at_100"]
		}
	}
	sorted := slices.DeleteFunc(slices.Clone(lists), func(l string) bool { _, ok := gain[l]; return !ok })
	if len(sorted) == 0 {
		return
	}
	slices.SortFunc(sorted, func(a, b string) int { return int(1000 * (gain[a] - gain[b])) })
	p := plot{60, 530, 880, 190, 0, 8}
	d.axis(p, "RAGP-X over FGD as published, points of allocation when as much was asked for as there is", "+%.0f", 2)
	width := p.w / float64(len(sorted))
	for i, list := range sorted {
		left := p.x + width*(float64(i)+0.15)
		d.rect(left, p.at(gain[list]), width*0.7, p.y+p.h-p.at(gain[list]), `fill="#0f5c63"`)
		d.text(left+width*0.35, p.at(gain[list])-5, "middle", "", fmt.Sprintf("%+.2f", gain[list]))
		y := p.y + p.h + 14
		fmt.Fprintf(d, `<text x="%.1f" y="%.1f" text-anchor="end" transform="rotate(-40 %.1f %.1f)">%s</text>`+"\n", left+width*0.5, y, left+width*0.5, y, list)
	}
	d.line(p.x, p.y+p.h, p.x+p.w, p.y+p.h, `stroke="#1b2426"`)
}
