// Package lint finds all that is wrong with a CDI spec file, each with its place: what somebody who writes one wants to know at once.
//
// It guarantees that it finds an error exactly where package cdispec, and so the node, refuses the file; only how many are told, and where they
// are, is its own. Warnings are about files that the node takes: what is not there on this host, and what other runtimes refuse.
package lint

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"monopod.dev/monopod/internal/cdispec"
)

// Fault is one thing that is wrong, or odd.
type Fault struct {
	// Line and Column begin at 1; 0: it is about the whole file.
	Line   int `json:"line,omitempty"`
	Column int `json:"column,omitempty"`
	// Warning: the node takes the file all the same.
	Warning bool `json:"warning,omitempty"`
	// Where is what it is about, such as `device "w0"` or "containerEdits".
	Where   string `json:"where,omitempty"`
	Message string `json:"message"`
}

// Result is what is found in a file.
type Result struct {
	// Kind and Devices are what the file defines, as far as it can be read.
	Kind    string   `json:"kind,omitempty"`
	Devices []string `json:"devices"`
	// Faults are in the order of the file.
	Faults []Fault `json:"faults"`
}

// OK says that the node takes the file.
func (r Result) OK() bool {
	return !slices.ContainsFunc(r.Faults, func(f Fault) bool { return !f.Warning })
}

// Check looks at the content of a file, and compares it with the host. name is the file's; runtimes go by its ending.
func Check(name string, data []byte, host cdispec.Host) Result {
	l := &linter{host: host, result: Result{Devices: []string{}, Faults: []Fault{}}}
	if ext := filepath.Ext(name); ext != ".json" && ext != ".yaml" {
		l.add(nil, true, "", "runtimes read only files whose names end with .json or .yaml, and not this one")
	}
	l.read(data)
	// The last word is the node's own.
	if _, err := cdispec.Parse(data); (err == nil) != l.result.OK() {
		if err != nil {
			l.add(nil, false, "", err.Error())
		} else {
			for i := range l.result.Faults {
				l.result.Faults[i].Warning = true
			}
		}
	}
	slices.SortStableFunc(l.result.Faults, func(a, b Fault) int { return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column)) })
	return l.result
}

// linter looks at one file.
type linter struct {
	host    cdispec.Host
	result  Result
	version string // that the file says, if it is one
	looked  int    // pieces that were looked at
}

// The bounds of what is looked at and told: a file of some kilobytes can stand for millions of pieces by its anchors.
const (
	maxFaults = 1000
	maxPieces = 200_000
)

func (l *linter) add(at *yaml.Node, warning bool, where, message string) {
	f := Fault{Warning: warning, Where: where, Message: message}
	if at != nil {
		f.Line, f.Column = at.Line, at.Column
	}
	if len(l.result.Faults) < maxFaults && !slices.Contains(l.result.Faults, f) {
		l.result.Faults = append(l.result.Faults, f)
	}
}

// more says that there is room for another piece.
func (l *linter) more() bool {
	l.looked++
	return l.looked <= maxPieces
}

func (l *linter) fault(at *yaml.Node, where string, err error) {
	if err != nil {
		l.add(at, false, where, err.Error())
	}
}

// read finds the document, and what is wrong with its syntax.
func (l *linter) read(data []byte) {
	defer func() { // outside bytes must not do that to us, whatever the parser thinks of them
		if fault := recover(); fault != nil {
			l.add(nil, false, "", fmt.Sprintf("it cannot be parsed: %v", fault))
		}
	}()
	dec := yaml.NewDecoder(bytes.NewReader(data))
	var doc yaml.Node
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		l.add(nil, false, "", "there is nothing in it")
		return
	case err != nil:
		l.syntax(data, err)
		return
	}
	if err := dec.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		l.add(nil, true, "", "only the first document of the file is read")
	}
	l.spec(resolve(&doc))
}

// syntax tells where the text is no YAML. The parser has no type for that: what it says begins with the line.
func (l *linter) syntax(data []byte, err error) {
	at := &yaml.Node{}
	if first := bytes.TrimLeft(data, " \t\r\n"); len(first) > 0 && first[0] == '{' { // somebody has written JSON, and is told in JSON's words
		var any any
		wrong := (*json.SyntaxError)(nil)
		if errors.As(json.Unmarshal(data, &any), &wrong) {
			before := data[:min(int64(len(data)), max(0, wrong.Offset-1))]
			at.Line = bytes.Count(before, []byte("\n")) + 1
			at.Column = len(before) - bytes.LastIndexByte(before, '\n')
			l.add(at, false, "", "no JSON: "+wrong.Error())
			return
		}
	}
	if n, _ := fmt.Sscanf(err.Error(), "yaml: line %d:", &at.Line); n == 0 {
		at = nil
	}
	l.fault(at, "", err)
}

// spec looks at the whole.
func (l *linter) spec(root *yaml.Node) {
	all := l.fields(root, "", "cdiVersion", "kind", "annotations", "devices", "containerEdits")
	if all == nil {
		return
	}
	version := all.text(l, "cdiVersion", "")
	if err := specs.ValidateVersion(&specs.Spec{Version: version}); err != nil {
		l.add(all.at("cdiVersion", root), false, "", fmt.Sprintf("cdiVersion: %v; use 0.3.0 to %s", err, specs.CurrentVersion))
	} else {
		l.version = version
	}
	l.result.Kind = all.text(l, "kind", "")
	l.kind(all.at("kind", root))
	l.annotations(all["annotations"], "annotations", "")
	l.edits(all["containerEdits"].value, "containerEdits")
	devices := l.list(all["devices"].value, "devices")
	if len(devices) == 0 {
		l.add(all.at("devices", root), false, "", "there are no devices: a spec defines at least one")
	}
	first := map[string]int{}
	for i, n := range devices {
		if !l.more() {
			break
		}
		l.device(i, resolve(n), first)
	}
}

func (l *linter) kind(at *yaml.Node) {
	if err := cdispec.CheckKind(l.result.Kind); err != nil {
		l.fault(at, "", err)
		return
	}
	l.needs(at, "", "a dot in the kind's name", specs.Spec{Kind: l.result.Kind})
	if why := othersRefuse(l.result.Kind); why != "" {
		l.add(at, true, "", why)
	}
}

// device looks at one device. first has the lines of the names that came before.
func (l *linter) device(i int, n *yaml.Node, first map[string]int) {
	where := fmt.Sprintf("devices[%d]", i)
	all := l.fields(n, where, "name", "annotations", "containerEdits")
	if all == nil {
		return
	}
	name := all.text(l, "name", where)
	at := all.at("name", n)
	if name != "" {
		where = fmt.Sprintf("device %q", name)
	}
	if err := checkDeviceName(name); err != nil {
		l.fault(at, where, err)
	} else {
		l.needs(at, where, "a device's name that begins with a digit", specs.Spec{Devices: []specs.Device{{Name: name}}})
	}
	if line, ok := first[name]; ok && name != "" {
		l.add(at, false, where, fmt.Sprintf("there are several of this name: the first is in line %d", line))
	} else {
		first[name] = at.Line
		l.result.Devices = append(l.result.Devices, name)
	}
	l.annotations(all["annotations"], "annotations", where)
	if empty := l.edits(all["containerEdits"].value, where); empty {
		l.add(n, true, where, "it has no containerEdits: other runtimes refuse the file")
	}
}

// annotations are a map of texts.
func (l *linter) annotations(f field, key, where string) {
	if f.value == nil {
		return
	}
	var as map[string]string
	if l.decode(f.value, where, &as) && len(as) > 0 {
		l.needs(f.key, where, key, specs.Spec{Annotations: as})
	}
}

// needs tells that a piece is of a later version than the file says it is of. l.version is empty where that is not known.
func (l *linter) needs(at *yaml.Node, where, what string, piece specs.Spec) {
	piece.Version = l.version
	if l.version == "" || specs.ValidateVersion(&piece) == nil {
		return
	}
	least, err := specs.MinimumRequiredVersion(&piece)
	if err != nil {
		return // Check has the last word
	}
	l.add(at, false, where, fmt.Sprintf("%s needs cdiVersion %s at least, the file says %s", what, least, l.version))
}
