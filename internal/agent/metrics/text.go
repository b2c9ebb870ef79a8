// Package metrics says what the agent's metrics are called, and writes them as Prometheus reads them: names, labels and meanings are a kubelet's and cAdvisor's.
//
// What is written of pods and containers (Resource, CAdvisor, Probes) is a pure function of what was collected; nothing is remembered of a container that has
// gone. What the agent counts of itself is in a registry of its own (Agent), beside the process's.
package metrics

import (
	"bytes"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ContentType is that of the text format, version 0.0.4.
const ContentType = "text/plain; version=0.0.4; charset=utf-8"

// kind is the type of a family.
type kind string

const (
	counter kind = "counter"
	gauge   kind = "gauge"
	// histogram is a family of rows with other names than its own: see histogram.
	histogram kind = "histogram"
)

// text collects families in the order in which they are described.
type text struct {
	order []string
	by    map[string]*family
}

type family struct {
	kind kind
	help string
	keys []string
	rows bytes.Buffer
	n    int
}

func newText() *text { return &text{by: map[string]*family{}} }

// describe makes a family known, with the names of its labels. A family without a row is not written.
func (t *text) describe(name string, kind kind, help string, keys ...string) {
	if t.by[name] == nil {
		t.order = append(t.order, name)
		t.by[name] = &family{kind: kind, help: help, keys: keys}
	}
}

// add adds a row. The zero time is none: now. Labels without a value are left out, which is the same to a reader. A row of an unknown family, or of other labels than
// the family's, is left out.
func (t *text) add(name string, at time.Time, value float64, labels ...string) {
	t.row(name, "", at, value, labels...)
}

// histogram adds the rows of one histogram: how many were within each bound, all of them, and their sum. The family has the label le as its last one.
func (t *text) histogram(name string, bounds []float64, within []uint64, all uint64, sum float64, labels ...string) {
	for i, b := range bounds {
		t.row(name, "_bucket", time.Time{}, float64(within[i]), append(slices.Clip(labels), strconv.FormatFloat(b, 'g', -1, 64))...)
	}
	t.row(name, "_bucket", time.Time{}, float64(all), append(slices.Clip(labels), "+Inf")...)
	t.row(name, "_sum", time.Time{}, sum, append(slices.Clip(labels), "")...)
	t.row(name, "_count", time.Time{}, float64(all), append(slices.Clip(labels), "")...)
}

// row adds a row to a family, by the family's name and what of the row's own is added to it.
func (t *text) row(name, more string, at time.Time, value float64, labels ...string) {
	f := t.by[name]
	if f == nil || len(labels) != len(f.keys) {
		return
	}
	w := &f.rows
	w.WriteString(name)
	w.WriteString(more)
	separator := byte('{')
	for i, l := range labels {
		if l == "" {
			continue
		}
		w.WriteByte(separator)
		separator = ','
		w.WriteString(f.keys[i])
		w.WriteString(`="`)
		escape(w, l)
		w.WriteByte('"')
	}
	if separator == ',' {
		w.WriteByte('}')
	}
	w.WriteByte(' ')
	w.Write(strconv.AppendFloat(w.AvailableBuffer(), value, 'g', -1, 64))
	if !at.IsZero() {
		w.WriteByte(' ')
		w.Write(strconv.AppendInt(w.AvailableBuffer(), at.UnixMilli(), 10))
	}
	w.WriteByte('\n')
	f.n++
}

var labelEscapes = strings.NewReplacer("\\", `\\`, "\n", `\n`, `"`, `\"`)

func escape(w *bytes.Buffer, s string) {
	if !strings.ContainsAny(s, "\\\n\"") {
		w.WriteString(s)
		return
	}
	w.WriteString(labelEscapes.Replace(s))
}

var helpEscapes = strings.NewReplacer("\\", `\\`, "\n", `\n`)

// bytes writes all families, by their names.
func (t *text) bytes() []byte {
	var out bytes.Buffer
	for _, name := range slices.Sorted(slices.Values(t.order)) {
		f := t.by[name]
		if f.n == 0 {
			continue
		}
		out.WriteString("# HELP " + name + " " + helpEscapes.Replace(f.help) + "\n# TYPE " + name + " " + string(f.kind) + "\n")
		out.Write(f.rows.Bytes())
	}
	return out.Bytes()
}

// seconds are those of so many nanoseconds.
func seconds(nanos uint64) float64 { return float64(nanos) / float64(time.Second) }

// sinceEpoch is a time in seconds since 1970, to the millisecond.
func sinceEpoch(at time.Time) float64 { return math.Round(float64(at.UnixMicro())/1e3) / 1e3 }
