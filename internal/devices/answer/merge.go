package answer

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
// contradict each other (one variable with two values, one path in the container for two things of the host), the error is a *RefusedError that
// names both resources: a container never gets the one in the place of the other.
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
	all    Answer
	places Places
	from   map[string]string // by variable or annotation, the resource that has said it
}

func (m *merging) add(p Part) error {
	for _, name := range p.Answer.CDIDevices {
		if !slices.Contains(m.all.CDIDevices, name) {
			m.all.CDIDevices = append(m.all.CDIDevices, name)
		}
	}
	for _, n := range p.Answer.Nodes {
		switch known, clash := m.places.AddNode(n, p.Resource); {
		case clash != nil:
			return clash.between()
		case !known:
			m.all.Nodes = append(m.all.Nodes, n)
		}
	}
	for _, n := range p.Answer.Mounts {
		switch known, clash := m.places.AddMount(n, p.Resource); {
		case clash != nil:
			return clash.between()
		case !known:
			m.all.Mounts = append(m.all.Mounts, n)
		}
	}
	if err := m.addPairs("variable ", &m.all.Envs, p.Answer.Envs, p.Resource); err != nil {
		return err
	}
	return m.addPairs("annotation ", &m.all.Annotations, p.Answer.Annotations, p.Resource)
}

// between is the error of two resources.
func (c *Clash) between() error {
	return fmt.Errorf("%.256q cannot be %s: by %s it is %s", c.Path, c.New, c.Old.Of, c.Old)
}

func (m *merging) addPairs(kind string, to *map[string]string, from map[string]string, resource string) error {
	for _, k := range slices.Sorted(maps.Keys(from)) {
		v := from[k]
		if *to == nil {
			*to = map[string]string{}
		}
		has, ok := (*to)[k]
		if ok && has != v {
			return fmt.Errorf("%s%s is given by %s as well, in another way", kind, k, m.from[kind+k])
		}
		(*to)[k], m.from[kind+k] = v, resource
	}
	return nil
}
