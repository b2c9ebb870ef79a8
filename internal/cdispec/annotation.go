package cdispec

import (
	"iter"
	"maps"
	"slices"
	"strings"
)

// AnnotationPrefix begins the keys of a container's annotations whose values are lists of CDI devices, with commas.
const AnnotationPrefix = "cdi.k8s.io/"

// Annotated are the devices that a container's annotations ask for: the key of the annotation and a name of its list, by key and then in the
// order of the list. A name is as it stands there, without the space around it; whether it is one ParseName says.
func Annotated(annotations map[string]string) iter.Seq2[string, string] {
	return func(yield func(key, name string) bool) {
		for _, key := range slices.Sorted(maps.Keys(annotations)) {
			if !strings.HasPrefix(key, AnnotationPrefix) {
				continue
			}
			for name := range strings.SplitSeq(annotations[key], ",") {
				if !yield(key, strings.TrimSpace(name)) {
					return
				}
			}
		}
	}
}
