package event

import (
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Limits of events.k8s.io/v1, in bytes.
const (
	maxReportingInstance = 128
	maxAction            = 128
	maxReason            = 128
	maxNote              = 1024
)

// validateCreate tells what is wrong with a new event. strict adds the rules of events.k8s.io/v1. Fields are named by
// core/v1's words where the two differ, because that is the form in memory.
func validateCreate(e *corev1.Event, strict bool) field.ErrorList {
	errs := apivalidation.ValidateObjectMeta(&e.ObjectMeta, true, apivalidation.NameIsDNSSubdomain, field.NewPath("metadata"))
	errs = append(errs, validateNamespace(e)...)
	if !strict {
		return append(errs, validateTimed(e)...)
	}
	if e.EventTime.IsZero() {
		errs = append(errs, field.Required(field.NewPath("eventTime"), ""))
	}
	errs = append(errs, validateType(e)...)
	errs = append(errs, validateSeries(e.Series)...)
	errs = append(errs, validateReport(e, "reportingController", "note")...)
	for _, old := range []struct {
		name string
		set  bool
	}{
		{"firstTimestamp", !e.FirstTimestamp.IsZero()}, {"lastTimestamp", !e.LastTimestamp.IsZero()},
		{"count", e.Count != 0}, {"source", e.Source != corev1.EventSource{}},
	} {
		if old.set {
			errs = append(errs, field.Forbidden(field.NewPath(old.name), "needs to be unset in a new event of events.k8s.io/v1"))
		}
	}
	return errs
}

// validateUpdate tells what is wrong with a change of an event. In events.k8s.io/v1 only the series goes on; all that
// tells what happened stays.
func validateUpdate(e, old *corev1.Event, strict bool) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaUpdate(&e.ObjectMeta, &old.ObjectMeta, field.NewPath("metadata"))
	errs = append(errs, validateNamespace(e)...)
	if !strict {
		return append(errs, validateTimed(e)...)
	}
	errs = append(errs, validateSeries(e.Series)...)
	for _, f := range []struct {
		name       string
		value, old any
	}{
		{"eventTime", e.EventTime, old.EventTime},
		{"involvedObject", e.InvolvedObject, old.InvolvedObject},
		{"reason", e.Reason, old.Reason},
		{"message", e.Message, old.Message},
		{"source", e.Source, old.Source},
		{"firstTimestamp", e.FirstTimestamp, old.FirstTimestamp},
		{"lastTimestamp", e.LastTimestamp, old.LastTimestamp},
		{"count", e.Count, old.Count},
		{"type", e.Type, old.Type},
		{"action", e.Action, old.Action},
		{"related", e.Related, old.Related},
		{"reportingController", e.ReportingController, old.ReportingController},
		{"reportingInstance", e.ReportingInstance, old.ReportingInstance},
	} {
		if !apiequality.Semantic.DeepEqual(f.value, f.old) {
			errs = append(errs, immutable(f.name))
		}
	}
	return errs
}

// validateNamespace requires that an event is where its object is. Events of objects without a namespace are in default,
// or in kube-system where the system's own components put theirs.
func validateNamespace(e *corev1.Event) field.ErrorList {
	at := field.NewPath("involvedObject", "namespace")
	involved := e.InvolvedObject.Namespace
	switch {
	case involved == e.Namespace:
		return nil
	case involved == "" && (e.Namespace == metav1.NamespaceDefault || e.Namespace == metav1.NamespaceSystem):
		return nil
	default:
		return field.ErrorList{field.Invalid(at, involved, fmt.Sprintf("does not match event.namespace %q", e.Namespace))}
	}
}

// validateTimed: an event of core/v1 with an eventTime is of the newer form, whatever group it comes by, and says who reports what was done. Those without
// one say what they like.
func validateTimed(e *corev1.Event) field.ErrorList {
	if e.EventTime.IsZero() {
		return nil
	}
	return validateReport(e, "reportingComponent", "message")
}

// validateReport requires that an event says who reports what was done and why. The controller and the note have a name in each group.
func validateReport(e *corev1.Event, controllerName, noteName string) field.ErrorList {
	errs := required(e.ReportingInstance, maxReportingInstance, field.NewPath("reportingInstance"))
	errs = append(errs, required(e.Action, maxAction, field.NewPath("action"))...)
	errs = append(errs, required(e.Reason, maxReason, field.NewPath("reason"))...)
	if at := field.NewPath(controllerName); e.ReportingController == "" {
		errs = append(errs, field.Required(at, ""))
	} else {
		for _, msg := range validation.IsQualifiedName(e.ReportingController) {
			errs = append(errs, field.Invalid(at, e.ReportingController, msg))
		}
	}
	if len(e.Message) > maxNote {
		errs = append(errs, field.TooLong(field.NewPath(noteName), "", maxNote))
	}
	return errs
}

func validateType(e *corev1.Event) field.ErrorList {
	types := []string{corev1.EventTypeNormal, corev1.EventTypeWarning}
	if slices.Contains(types, e.Type) {
		return nil
	}
	return field.ErrorList{field.NotSupported(field.NewPath("type"), e.Type, types)}
}

func validateSeries(s *corev1.EventSeries) field.ErrorList {
	if s == nil {
		return nil
	}
	var errs field.ErrorList
	at := field.NewPath("series")
	if s.Count < 2 {
		errs = append(errs, field.Invalid(at.Child("count"), s.Count, "should be at least 2"))
	}
	if s.LastObservedTime.IsZero() {
		errs = append(errs, field.Required(at.Child("lastObservedTime"), ""))
	}
	return errs
}

func required(value string, limit int, at *field.Path) field.ErrorList {
	switch {
	case value == "":
		return field.ErrorList{field.Required(at, "")}
	case len(value) > limit:
		return field.ErrorList{field.TooLong(at, "", limit)}
	default:
		return nil
	}
}

func immutable(name string) *field.Error {
	return field.Forbidden(field.NewPath(name), apivalidation.FieldImmutableErrorMsg)
}
