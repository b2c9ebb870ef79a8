package scheme

import (
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// SelectableFields makes a Hook that lets field selectors use the given fields of a kind, beside metadata.name and
// metadata.namespace, which every kind has. Any other field is refused by name.
// What the selector then compares is what the resource's strategy says the fields' values are.
func SelectableFields(gvk schema.GroupVersionKind, fields ...string) Hook {
	known := map[string]bool{"metadata.name": true, "metadata.namespace": true}
	for _, f := range fields {
		known[f] = true
	}
	return func(s *runtime.Scheme) error {
		return s.AddFieldLabelConversionFunc(gvk, func(label, value string) (string, string, error) {
			if !known[label] {
				return "", "", fmt.Errorf("%q is not a field that %s can be selected by: use one of %q",
					label, gvk.Kind, slices.Sorted(maps.Keys(known)))
			}
			return label, value, nil
		})
	}
}
