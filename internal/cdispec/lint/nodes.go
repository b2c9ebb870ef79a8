package lint

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// resolve follows aliases, and goes from a document to what is in it.
func resolve(n *yaml.Node) *yaml.Node {
	for range 32 { // an alias of itself has no end
		switch {
		case n == nil:
			return nil
		case n.Kind == yaml.AliasNode:
			n = n.Alias
		case n.Kind == yaml.DocumentNode && len(n.Content) > 0:
			n = n.Content[0]
		default:
			return n
		}
	}
	return n
}

func isNull(n *yaml.Node) bool {
	return n == nil || n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null"
}

// field is a key of a mapping, and its value; both nil: it is not there.
type field struct{ key, value *yaml.Node }

type fields map[string]field

// at is where a field is, or where it should be.
func (f fields) at(name string, in *yaml.Node) *yaml.Node {
	if has := f[name]; has.key != nil {
		return has.value
	}
	return in
}

// text is the value of a field that is a text; what is none is told.
func (f fields) text(l *linter, name, where string) (s string) {
	if has := f[name]; has.value != nil {
		l.decode(has.value, where, &s)
	}
	return s
}

// fields are those of a mapping that may have these; others are told. nil: it is no mapping.
func (l *linter) fields(n *yaml.Node, where string, known ...string) fields {
	if isNull(n) || n.Kind != yaml.MappingNode {
		l.add(n, false, where, "it must have fields: "+strings.Join(known, ", "))
		return nil
	}
	all := fields{}
	l.collect(all, n, where, known, 0)
	return all
}

// collect adds a mapping's fields, and those that are merged into it, which its own go before.
func (l *linter) collect(all fields, n *yaml.Node, where string, known []string, depth int) {
	if !l.more() {
		return
	}
	var merged []*yaml.Node
	own := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := n.Content[i], resolve(n.Content[i+1])
		if key.ShortTag() == "!!merge" {
			merged = append(merged, value)
			continue
		}
		key = resolve(key)
		if line, twice := own[key.Value]; twice {
			l.add(key, false, where, fmt.Sprintf("field %s is there twice: first in line %d", key.Value, line))
			continue
		}
		own[key.Value] = key.Line
		if !slices.Contains(known, key.Value) {
			l.add(key, false, where, fmt.Sprintf("there is no field %q here; there are %s", key.Value, strings.Join(known, ", ")))
			continue
		}
		if _, ok := all[key.Value]; !ok {
			all[key.Value] = field{key, value}
		}
	}
	for _, m := range merged {
		switch {
		case m == nil || depth > 4:
		case m.Kind == yaml.MappingNode:
			l.collect(all, m, where, known, depth+1)
		case m.Kind == yaml.SequenceNode:
			for _, one := range m.Content {
				if one = resolve(one); one != nil && one.Kind == yaml.MappingNode {
					l.collect(all, one, where, known, depth+1)
				}
			}
		}
	}
}

// list are the entries of a sequence; what is none is told.
func (l *linter) list(n *yaml.Node, where string) []*yaml.Node {
	if isNull(n) {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		l.add(n, false, where, "it must be a list")
		return nil
	}
	return n.Content
}

// decode reads a value into what it must be; each thing that does not fit is told with its own line.
func (l *linter) decode(n *yaml.Node, where string, to any) bool {
	err := n.Decode(to)
	if err == nil {
		return true
	}
	wrong := (*yaml.TypeError)(nil)
	if !errors.As(err, &wrong) {
		l.fault(n, where, err)
		return false
	}
	for _, text := range wrong.Errors { // the type has no more than texts, which begin with the line
		at := *n
		if rest, ok := strings.CutPrefix(text, "line "); ok {
			if count, _ := fmt.Sscanf(rest, "%d: ", &at.Line); count == 1 {
				_, text, _ = strings.Cut(rest, ": ")
				if at.Line != n.Line {
					at.Column = 0
				}
			}
		}
		l.add(&at, false, where, text)
	}
	return false
}
