package event

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/apiserver/resource"
)

// columns are those of core/v1's events. Events of events.k8s.io/v1 are stored as such and so are shown by the same table.
func columns() []resource.Column[*corev1.Event] {
	doc := corev1.Event{}.SwaggerDoc()
	return []resource.Column[*corev1.Event]{
		{Name: "Last Seen", Doc: doc["lastTimestamp"]},
		{Name: "Type", Doc: doc["type"]},
		{Name: "Reason", Doc: doc["reason"]},
		{Name: "Object", Doc: doc["involvedObject"]},
		{Name: "Subobject", Doc: corev1.ObjectReference{}.SwaggerDoc()["fieldPath"], Wide: true},
		{Name: "Source", Doc: doc["source"], Wide: true},
		{Name: "Message", Doc: doc["message"]},
		{Name: "First Seen", Doc: doc["firstTimestamp"], Wide: true},
		{Name: "Count", Doc: doc["count"], Wide: true},
		{Name: "Name", Wide: true},
	}
}

func eventRow(e *corev1.Event, now time.Time) ([]any, []metav1.TableRowCondition) {
	seen := observed(e)
	return []any{
		resource.Age(seen.last, now),
		e.Type,
		e.Reason,
		strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name,
		e.InvolvedObject.FieldPath,
		eventSource(e),
		strings.TrimSpace(e.Message),
		resource.Age(seen.first, now),
		int64(seen.count),
		e.Name,
	}, nil
}

type observation struct {
	first, last time.Time
	count       int32
}

// observed tells when and how often an event happened. Clients of core/v1 say it in firstTimestamp, lastTimestamp and
// count, clients of events.k8s.io/v1 in eventTime and series; either half may be empty.
func observed(e *corev1.Event) observation {
	o := observation{first: e.FirstTimestamp.Time, last: e.LastTimestamp.Time, count: e.Count}
	if o.first.IsZero() {
		o.first = e.EventTime.Time
	}
	if e.Series != nil {
		o.last, o.count = e.Series.LastObservedTime.Time, e.Series.Count
	}
	if o.last.IsZero() {
		o.last = o.first
	}
	if o.count == 0 {
		o.count = 1
	}
	return o
}

func eventSource(e *corev1.Event) string {
	component, host := e.Source.Component, e.Source.Host
	if component == "" {
		component, host = e.ReportingController, e.ReportingInstance
	}
	if host == "" {
		return component
	}
	return fmt.Sprintf("%s, %s", component, host)
}
