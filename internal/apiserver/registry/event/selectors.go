package event

import (
	"cmp"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
)

// selectable returns the fields that a field selector may name, by core/v1's words, with their values in e, beside name and namespace.
func selectable(e *corev1.Event) fields.Set {
	source := cmp.Or(e.Source.Component, e.ReportingController)
	set := fields.Set{
		"involvedObject.kind":            e.InvolvedObject.Kind,
		"involvedObject.namespace":       e.InvolvedObject.Namespace,
		"involvedObject.name":            e.InvolvedObject.Name,
		"involvedObject.uid":             string(e.InvolvedObject.UID),
		"involvedObject.apiVersion":      e.InvolvedObject.APIVersion,
		"involvedObject.resourceVersion": e.InvolvedObject.ResourceVersion,
		"involvedObject.fieldPath":       e.InvolvedObject.FieldPath,
		"reason":                         e.Reason,
		"reportingComponent":             e.ReportingController,
		"source":                         source,
		"type":                           e.Type,
	}
	return set
}

// v1Fields maps the words of events.k8s.io/v1 to those of core/v1, by which events are selected in the store.
func v1Fields() map[string]string {
	return map[string]string{
		"regarding.kind":            "involvedObject.kind",
		"regarding.namespace":       "involvedObject.namespace",
		"regarding.name":            "involvedObject.name",
		"regarding.uid":             "involvedObject.uid",
		"regarding.apiVersion":      "involvedObject.apiVersion",
		"regarding.resourceVersion": "involvedObject.resourceVersion",
		"regarding.fieldPath":       "involvedObject.fieldPath",
		"reportingController":       "reportingComponent",
	}
}

// AddFieldLabelConversions teaches the scheme which fields of events can be selected, in both API groups. In
// events.k8s.io/v1 the words of core/v1 are understood too, since clients use them there.
func AddFieldLabelConversions(scheme *runtime.Scheme) error {
	known, translated := selectable(&corev1.Event{}), v1Fields()
	known["metadata.name"], known["metadata.namespace"] = "", "" // of which the resource itself says the values
	refuse := func(label string) error { return fmt.Errorf("events cannot be selected by the field %q", label) }
	return errors.Join(
		scheme.AddFieldLabelConversionFunc(corev1.SchemeGroupVersion.WithKind("Event"),
			func(label, value string) (string, string, error) {
				if !known.Has(label) {
					return "", "", refuse(label)
				}
				return label, value, nil
			}),
		scheme.AddFieldLabelConversionFunc(eventsv1.SchemeGroupVersion.WithKind("Event"),
			func(label, value string) (string, string, error) {
				label = cmp.Or(translated[label], label)
				if !known.Has(label) {
					return "", "", refuse(label)
				}
				return label, value, nil
			}),
	)
}
