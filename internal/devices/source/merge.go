package source

import (
	"fmt"
	"maps"
	"slices"
)

// Part is the answer about one resource.
type Part struct {
	Resource string
	Answer   Answer
}

// Merge makes one answer of those of all resources of a container. What two of them say in the same way is given once; where they
// contradict each other (one variable with two values, one path in the container for two of the host), the error is a *RefusedError that names
// both resources: a container never gets the one in the place of the other.
func Merge(parts []Part) (Answer, error) {
	m := merging{from: map[string]string{}}
	for _, p := range parts {
		if err := m.add(p); err != nil {
			return Answer{}, &RefusedError{p.Resource, err}
		}
	}
	return m.all, nil
}

type merging struct {
	all  Answer
	from map[string]string // by what it is, the resource that has said it
}

// clash is the error of two that contradict each other.
func (m *merging) clash(what string) error {
	return fmt.Errorf("%s is given by %s as well, in another way", what, m.from[what])
}

func (m *merging) add(p Part) error {
	for _, name := range p.Answer.CDIDevices {
		if !slices.Contains(m.all.CDIDevices, name) {
			m.all.CDIDevices = append(m.all.CDIDevices, name)
		}
	}
	for _, n := range p.Answer.Nodes {
		what := "device node " + n.ContainerPath
		switch i := slices.IndexFunc(m.all.Nodes, func(o Node) bool { return o.ContainerPath == n.ContainerPath }); {
		case i < 0:
			m.all.Nodes, m.from[what] = append(m.all.Nodes, n), p.Resource
		case m.all.Nodes[i] != n:
			return m.clash(what)
		}
	}
	for _, n := range p.Answer.Mounts {
		what := "mount " + n.ContainerPath
		switch i := slices.IndexFunc(m.all.Mounts, func(o Mount) bool { return o.ContainerPath == n.ContainerPath }); {
		case i < 0:
			m.all.Mounts, m.from[what] = append(m.all.Mounts, n), p.Resource
		case m.all.Mounts[i] != n:
			return m.clash(what)
		}
	}
	if err := m.addPairs("variable ", &m.all.Envs, p.Answer.Envs, p.Resource); err != nil {
		return err
	}
	return m.addPairs("annotation ", &m.all.Annotations, p.Answer.Annotations, p.Resource)
}

func (m *merging) addPairs(kind string, to *map[string]string, from map[string]string, resource string) error {
	for _, k := range slices.Sorted(maps.Keys(from)) {
		v := from[k]
		if *to == nil {
			*to = map[string]string{}
		}
		has, ok := (*to)[k]
		if ok && has != v {
			return m.clash(kind + k)
		}
		(*to)[k], m.from[kind+k] = v, resource
	}
	return nil
}
