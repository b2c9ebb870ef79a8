package image

import (
	"fmt"
	"strings"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/runtime/imageservice"
)

// redraw replaces the lines that were drawn last, with one write and without an empty screen between, so that nothing flickers.
func redraw(lines []string, drawn int) string {
	var b strings.Builder
	if drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", drawn)
	}
	b.WriteString("\r")
	for _, l := range lines {
		b.WriteString(l)
		b.WriteString("\x1b[K\n") // the rest of the old line goes
	}
	b.WriteString("\x1b[J") // and so do old lines below
	return b.String()
}

// drawLayers is a line for each layer, none wider than the terminal, and together not higher. What does not fit is counted; layers
// at which something happens go first then.
func drawLayers(layers []imageservice.LayerProgress, width, height int) []string {
	room := max(1, height-1)
	hidden := 0
	if len(layers) > room {
		room = max(1, room-1)
		var shown []imageservice.LayerProgress
		for _, wanted := range []func(string) bool{isActive, func(s string) bool { return s == "waiting" }} {
			for _, l := range layers {
				if wanted(l.State) && len(shown) < room {
					shown = append(shown, l)
				}
			}
		}
		hidden, layers = len(layers)-len(shown), shown
	}
	var lines []string
	for _, l := range layers {
		lines = append(lines, drawLayer(l, width))
	}
	if hidden > 0 {
		lines = append(lines, clip(fmt.Sprintf("and %d other layers", hidden), width))
	}
	return lines
}

func isActive(state string) bool {
	return state == "downloading" || state == "unpacking" || state == "verifying"
}

// drawLayer draws what there is room for: the id and the state, the numbers, a bar.
func drawLayer(l imageservice.LayerProgress, width int) string {
	line := fmt.Sprintf("%.12s  %-11s", strings.TrimPrefix(l.Digest, "sha256:"), l.State)
	if !isActive(l.State) && l.State != "done" {
		return clip(strings.TrimRight(line, " "), width)
	}
	numbers := fmt.Sprintf("%8s of %s", cli.HumanSize(uint64(max(0, l.Done))), cli.HumanSize(uint64(max(0, l.Total))))
	bar := min(40, width-1-len(line)-4-22)
	switch {
	case l.State == "done":
		return clip(strings.TrimRight(line, " "), width)
	case bar >= 8:
		full := 0
		if l.Total > 0 {
			full = int(int64(bar) * min(l.Done, l.Total) / l.Total)
		}
		cells := strings.Repeat("=", full) + strings.Repeat(" ", bar-full)
		if full > 0 && full < bar {
			cells = cells[:full-1] + ">" + cells[full:]
		}
		return clip(line+" ["+cells+"] "+numbers, width)
	}
	return clip(line+" "+strings.TrimLeft(numbers, " "), width)
}

// clip keeps a line off the last column, where terminals wrap.
func clip(s string, width int) string {
	if n := max(0, width-1); len(s) > n {
		return s[:n]
	}
	return s
}

// changes are lines about the layers whose state is another than the one that was told last.
func changes(layers []imageservice.LayerProgress, told map[string]string) []string {
	var out []string
	for _, l := range layers {
		if told[l.Digest] == l.State || l.State == "waiting" {
			continue
		}
		told[l.Digest] = l.State
		line := fmt.Sprintf("layer %.12s: %s", strings.TrimPrefix(l.Digest, "sha256:"), l.State)
		if l.State == "downloading" {
			line += ", " + cli.HumanSize(uint64(max(0, l.Total)))
		}
		out = append(out, line)
	}
	return out
}
