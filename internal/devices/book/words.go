package book

import (
	"fmt"
	"strconv"
	"strings"

	"monopod.dev/monopod/internal/devices/alloc"
	"monopod.dev/monopod/internal/devices/inventory"
)

// shortage explains why there are too few devices.
func shortage(w *World, short *alloc.Shortage, unfit map[Key]string, more string) error {
	if w.Owner(short.Resource) == "" {
		return fmt.Errorf("no device of this resource is defined (looked in %s)%s", strings.Join(w.Places, ", "), Remarks(w, short.Resource))
	}
	told := Faults(w.Of(short.Resource), unfit)
	return fmt.Errorf("%w%s%s%s", short, more, told, remarksBeside(w, short.Resource, told))
}

// mostFaults bounds what is told of a resource's devices: there may be thousands.
const mostFaults = 3

// Faults are what is wrong with devices, in words that follow others; those with the same fault together.
func Faults(devices []inventory.Device, unfit map[Key]string) string {
	var texts []string // what is unfit says itself what it is about
	var kinds []string
	names := map[string][]string{}
	for _, d := range devices {
		if why := unfit[KeyOf(d)]; why != "" {
			texts = append(texts, why)
		} else if d.Unhealthy != "" {
			kind := d.Origin + ": " + d.Unhealthy
			if names[kind] == nil {
				kinds = append(kinds, kind)
			}
			names[kind] = append(names[kind], strconv.Quote(d.Name))
		}
	}
	for _, kind := range kinds {
		noun := "device"
		if len(names[kind]) > 1 {
			noun = "devices"
		}
		texts = append(texts, fmt.Sprintf("%s %s of %s", noun, some(names[kind], ", "), kind))
	}
	if len(texts) == 0 {
		return ""
	}
	return "; " + some(texts, "; ")
}

// some are the first of many words.
func some(words []string, between string) string {
	text := strings.Join(words[:min(len(words), mostFaults)], between)
	if more := len(words) - mostFaults; more > 0 {
		text += fmt.Sprintf("%sand %d more", between, more)
	}
	return text
}

// Remarks are the problems that may be why a resource lacks a device: its own, and those of files whose content is not
// known.
func Remarks(w *World, resource string) string { return remarksBeside(w, resource, "") }

// remarksBeside leaves out what is told already: a plugin that is gone is the fault of each of its devices.
func remarksBeside(w *World, resource, told string) string {
	var text strings.Builder
	for _, p := range w.Problems {
		if (p.Resource == resource || p.Resource == "") && !strings.Contains(told, p.String()) {
			text.WriteString("; " + p.String())
		}
	}
	return text.String()
}

// NodeWords says which hardware device nodes are.
func NodeWords(paths []string) string {
	if len(paths) == 0 {
		return "without device nodes"
	}
	return strings.Join(paths, ", ")
}
