package main

import (
	"fmt"
	"html"
	"strings"
)

// drawing is a picture under way. Its shades differ in lightness, so that it reads in
// grey.
type drawing struct {
	strings.Builder
	width, height int
}

func newDrawing(width, height int, title, about string) *drawing {
	d := &drawing{width: width, height: height}
	fmt.Fprintf(d, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" font-family="system-ui, sans-serif" font-size="12" fill="#1b2426">`+"\n", width, height, width, height)
	fmt.Fprintf(d, "<title>%s</title>\n<desc>%s</desc>\n<rect width=\"100%%\" height=\"100%%\" fill=\"#ffffff\"/>\n", html.EscapeString(title), html.EscapeString(about))
	return d
}

func (d *drawing) text(x, y float64, anchor, style, text string) {
	fmt.Fprintf(d, `<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>`+"\n", x, y, anchor, style, html.EscapeString(text))
}

func (d *drawing) line(x1, y1, x2, y2 float64, style string) {
	fmt.Fprintf(d, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" %s/>`+"\n", x1, y1, x2, y2, style)
}

func (d *drawing) rect(x, y, w, h float64, style string) {
	fmt.Fprintf(d, `<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" %s/>`+"\n", x, y, w, h, style)
}

func (d *drawing) end() string {
	d.WriteString("</svg>\n")
	return d.String()
}

// shade is how one policy is drawn.
type shade struct{ name, label, fill, dash string }

const gridStyle = `stroke="#d5dcde"`

// legend lists the shades in a row.
func (d *drawing) legend(x, y float64, shades []shade) {
	for _, s := range shades {
		d.rect(x, y-10, 12, 12, fmt.Sprintf(`fill="%s" stroke="#1b2426" stroke-width="0.5"`, s.fill))
		d.text(x+17, y, "start", "", s.label)
		x += 34 + 6.6*float64(len(s.label))
	}
}

// plot is a field with a vertical axis from low to high.
type plot struct {
	x, y, w, h float64
	low, high  float64
}

func (p plot) at(v float64) float64 {
	return p.y + p.h - (min(max(v, p.low), p.high)-p.low)/(p.high-p.low)*p.h
}

// axis draws a plot's title and grid, a line every step.
func (d *drawing) axis(p plot, title, format string, step float64) {
	d.text(p.x, p.y-14, "start", `font-weight="600"`, title)
	for v := p.low; v <= p.high+step/1000; v += step {
		d.line(p.x, p.at(v), p.x+p.w, p.at(v), gridStyle)
		d.text(p.x-6, p.at(v)+4, "end", `fill="#5a686c"`, fmt.Sprintf(format, v))
	}
}

// bars draws one group of bars per label; value gives the height of a
// shade's bar, which format writes above it.
func (d *drawing) bars(p plot, labels []string, shades []shade, format string, value func(label, shade string) float64) {
	group := p.w / float64(len(labels))
	bar := group * 0.8 / float64(len(shades))
	for i, label := range labels {
		left := p.x + group*(float64(i)+0.1)
		for k, s := range shades {
			v := value(label, s.name)
			fmt.Fprintf(d, `<g><title>%s, %s: %.3g</title>`, html.EscapeString(label), html.EscapeString(s.label), v)
			d.rect(left+bar*float64(k), p.at(v), bar*0.9, p.y+p.h-p.at(v), fmt.Sprintf(`fill="%s" stroke="#1b2426" stroke-width="0.5"`, s.fill))
			d.WriteString("</g>\n")
			d.text(left+bar*(float64(k)+0.45), p.at(v)-3, "middle", `font-size="8.5"`, fmt.Sprintf(format, v))
		}
		d.text(left+group*0.4, p.y+p.h+16, "middle", "", label)
	}
	d.line(p.x, p.y+p.h, p.x+p.w, p.y+p.h, `stroke="#1b2426"`)
}
