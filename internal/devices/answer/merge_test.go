package answer

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

func node(host, container, permissions string) Answer {
	return Answer{Nodes: []Node{{HostPath: host, ContainerPath: container, Permissions: permissions}}}
}

func mount(host, container string, readOnly bool) Answer {
	return Answer{Mounts: []Mount{{HostPath: host, ContainerPath: container, ReadOnly: readOnly}}}
}

func env(name, value string) Answer { return Answer{Envs: map[string]string{name: value}} }

func annotation(key, value string) Answer { return Answer{Annotations: map[string]string{key: value}} }

func cdi(names ...string) Answer { return Answer{CDIDevices: names} }

// What resources say in the same way is given once, and everything else of them all.
func TestMerge(t *testing.T) {
	for name, c := range map[string]struct {
		one, two Answer
		want     Answer
	}{
		"nothing":          {Answer{}, Answer{}, Answer{}},
		"CDI":              {cdi("v/c=b", "v/c=a"), cdi("v/c=c", "v/c=b"), cdi("v/c=b", "v/c=a", "v/c=c")},
		"the same node":    {node("/dev/x", "/dev/y", "rw"), node("/dev/x", "/dev/y", "rw"), node("/dev/x", "/dev/y", "rw")},
		"as it is cleaned": {node("/dev/x", "/dev/y", "rw"), node("/dev//x", "/dev/./y/", "rw"), node("/dev/x", "/dev/y", "rw")},
		"one node at two places": {node("/dev/x", "/dev/y", "rw"), node("/dev/x", "/dev/z", "rw"),
			Answer{Nodes: []Node{{"/dev/x", "/dev/y", "rw"}, {"/dev/x", "/dev/z", "rw"}}}},
		"the same mount":        {mount("/lib", "/l", true), mount("/lib/", "/l/", true), mount("/lib", "/l", true)},
		"one mount in another":  {mount("/lib", "/l", true), mount("/x", "/l/x", true), Answer{Mounts: []Mount{{"/lib", "/l", true}, {"/x", "/l/x", true}}}},
		"a mount of the node":   {node("/dev/x", "/dev/y", "rw"), mount("/dev/x", "/dev/y", false), Answer{Nodes: []Node{{"/dev/x", "/dev/y", "rw"}}, Mounts: []Mount{{"/dev/x", "/dev/y", false}}}},
		"the same variable":     {env("A", "1"), env("A", "1"), env("A", "1")},
		"two variables":         {env("A", "1"), env("B", "2"), Answer{Envs: map[string]string{"A": "1", "B": "2"}}},
		"the same annotation":   {annotation("v/a", "1"), annotation("v/a", "1"), annotation("v/a", "1")},
		"two lists of CDI":      {annotation("cdi.k8s.io/a", "v/c=1"), annotation("cdi.k8s.io/b", "v/c=1"), Answer{Annotations: map[string]string{"cdi.k8s.io/a": "v/c=1", "cdi.k8s.io/b": "v/c=1"}}},
		"a variable, annotated": {env("A", "1"), annotation("A", "2"), Answer{Envs: map[string]string{"A": "1"}, Annotations: map[string]string{"A": "2"}}},
	} {
		if got, err := Merge([]Part{{"a/a", c.one}, {"b/b", c.two}}); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %v, want %+v", name, got, err, c.want)
		}
	}
}

// What contradicts is refused, whichever comes first; the error says what it is and which resource has the other.
func TestMergeOverwritesNothing(t *testing.T) {
	for name, c := range map[string]struct {
		one, two Answer
		want     string
	}{
		"two nodes":               {node("/dev/x", "/dev/y", "rw"), node("/dev/z", "/dev/y", "rw"), `"/dev/y" cannot be the device node "/dev/z" (rw): by a/a it is the device node "/dev/x" (rw)`},
		"other permissions":       {node("/dev/x", "/dev/y", "rw"), node("/dev/x", "/dev/y", "r"), `"/dev/y" cannot be the device node "/dev/x" (r): by a/a it is the device node "/dev/x" (rw)`},
		"two nodes, not cleaned":  {node("/dev/x", "/dev/y", "rw"), node("/dev/z", "/dev/a/../y", "rw"), `"/dev/a/../y" cannot be the device node "/dev/z"`},
		"two mounts":              {mount("/one", "/y", false), mount("/two", "/y", false), `"/y" cannot be a mount of "/two" (rw): by a/a it is a mount of "/one" (rw)`},
		"two mounts, not cleaned": {mount("/one", "/y", false), mount("/two", "/y/", false), `"/y/" cannot be a mount of "/two" (rw): by a/a it is a mount of "/one" (rw)`},
		"read-only":               {mount("/one", "/y", false), mount("/one", "/y", true), `"/y" cannot be a mount of "/one" (ro): by a/a it is a mount of "/one" (rw)`},
		"a mount over a node":     {node("/dev/x", "/dev/y", "rw"), mount("/lib", "/dev/y", false), `"/dev/y" cannot be a mount of "/lib" (rw): by a/a it is the device node "/dev/x" (rw)`},
		"a node over a mount":     {mount("/lib", "/dev/y/", false), node("/dev/x", "/dev/y", "rw"), `"/dev/y" cannot be the device node "/dev/x" (rw): by a/a it is a mount of "/lib" (rw)`},
		"a variable":              {env("A", "1"), env("A", "2"), "variable A is given by a/a as well, in another way"},
		"an annotation":           {annotation("v/a", "1"), annotation("v/a", "2"), "annotation v/a is given by a/a as well, in another way"},
	} {
		for _, parts := range [][]Part{{{"a/a", c.one}, {"b/b", c.two}}, {{"a/a", c.one}, {"other/x", Answer{}}, {"b/b", c.two}}} {
			got, err := Merge(parts)
			var refused *RefusedError
			if !errors.As(err, &refused) || refused.Resource != "b/b" || !strings.HasPrefix(err.Error(), "b/b is refused: "+c.want) {
				t.Errorf("%s: %+v, %v, want %s", name, got, err, c.want)
			}
		}
		if _, err := Merge([]Part{{"b/b", c.two}, {"a/a", c.one}}); err == nil || !strings.Contains(err.Error(), "b/b") || !strings.HasPrefix(err.Error(), "a/a is refused: ") {
			t.Errorf("%s, the other way round: %v", name, err)
		}
	}
	// The same node again, mounted as well, says nothing of a third thing.
	if _, err := Merge([]Part{{"a/a", node("/dev/x", "/y", "rw")}, {"b/b", mount("/dev/x", "/y", false)}, {"c/c", mount("/dev/x", "/y", true)}}); err == nil || !strings.Contains(err.Error(), "by b/b it is") {
		t.Errorf("a third one: %v", err)
	}
}
