package scheme

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// addFieldLabels names the fields that a field selector may use, beside metadata.name and metadata.namespace, which
// every kind has. What the selector then compares is in the resource's own strategy (its SelectableFields).
func addFieldLabels(s *runtime.Scheme) error {
	core := corev1.SchemeGroupVersion
	for gvk, fields := range map[schema.GroupVersionKind]map[string]string{
		core.WithKind("Pod"): same(
			"spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
			"status.phase", "status.podIP", "status.podIPs", "status.nominatedNodeName",
		),
		core.WithKind("Node"):      same("spec.unschedulable"),
		core.WithKind("Namespace"): same("status.phase"),
		core.WithKind("Secret"):    same("type"),
		core.WithKind("Event"): same(
			"involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
			"involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath",
			"reason", "reportingComponent", "source", "type",
		),
		eventsv1.SchemeGroupVersion.WithKind("Event"): {
			"regarding.kind":            "involvedObject.kind",
			"regarding.namespace":       "involvedObject.namespace",
			"regarding.name":            "involvedObject.name",
			"regarding.uid":             "involvedObject.uid",
			"regarding.apiVersion":      "involvedObject.apiVersion",
			"regarding.resourceVersion": "involvedObject.resourceVersion",
			"regarding.fieldPath":       "involvedObject.fieldPath",
			"reportingController":       "reportingComponent",
			"reason":                    "reason",
			"type":                      "type",
		},
	} {
		fields["metadata.name"], fields["metadata.namespace"] = "metadata.name", "metadata.namespace"
		if err := s.AddFieldLabelConversionFunc(gvk, translate(gvk, fields)); err != nil {
			return err
		}
	}
	return nil
}

// same is for fields that the selector and the stored object name alike.
func same(fields ...string) map[string]string {
	m := map[string]string{}
	for _, f := range fields {
		m[f] = f
	}
	return m
}

// translate makes a conversion from the fields of a version to the stored object's; it refuses every other by name.
func translate(gvk schema.GroupVersionKind, fields map[string]string) runtime.FieldLabelConversionFunc {
	return func(label, value string) (string, string, error) {
		if stored, ok := fields[label]; ok {
			return stored, value, nil
		}
		return "", "", fmt.Errorf("%q is not a field that %s can be selected by: use one of %q",
			label, gvk.Kind, slices.Sorted(maps.Keys(fields)))
	}
}
