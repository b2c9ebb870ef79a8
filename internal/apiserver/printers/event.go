package printers

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
)

// Events returns the table of corev1.Event: LAST SEEN TYPE REASON OBJECT MESSAGE, and when wide SUBOBJECT SOURCE FIRST
// SEEN COUNT NAME. Events of events.k8s.io/v1 are stored as core/v1 and so are shown by the same table.
func Events() rest.TableConvertor {
	doc := corev1.Event{}.SwaggerDoc()
	return table[corev1.Event]{
		columns: []metav1.TableColumnDefinition{
			column("Last Seen", "string", doc["lastTimestamp"]),
			column("Type", "string", doc["type"]),
			column("Reason", "string", doc["reason"]),
			column("Object", "string", doc["involvedObject"]),
			wideColumn("Subobject", "string", corev1.ObjectReference{}.SwaggerDoc()["fieldPath"]),
			wideColumn("Source", "string", doc["source"]),
			column("Message", "string", doc["message"]),
			wideColumn("First Seen", "string", doc["firstTimestamp"]),
			wideColumn("Count", "string", doc["count"]),
			withPriority(nameColumn(), 1),
		},
		row: eventRow,
	}
}

func withPriority(c metav1.TableColumnDefinition, priority int32) metav1.TableColumnDefinition {
	c.Priority = priority
	return c
}

func eventRow(e *corev1.Event, now time.Time) ([]any, []metav1.TableRowCondition) {
	seen := observed(e)
	return []any{
		age(seen.last, now),
		e.Type,
		e.Reason,
		strings.ToLower(e.InvolvedObject.Kind) + "/" + e.InvolvedObject.Name,
		e.InvolvedObject.FieldPath,
		eventSource(e),
		strings.TrimSpace(e.Message),
		age(seen.first, now),
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
