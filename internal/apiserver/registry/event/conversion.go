package event

import (
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/conversion"
	"k8s.io/apimachinery/pkg/runtime"
)

// The correspondence of the two forms. What has another name in events.k8s.io/v1:
//
//	core/v1               events.k8s.io/v1
//	involvedObject        regarding
//	message               note
//	reportingComponent    reportingController
//	source                deprecatedSource
//	firstTimestamp        deprecatedFirstTimestamp
//	lastTimestamp         deprecatedLastTimestamp
//	count                 deprecatedCount
//
// metadata, eventTime, series, reportingInstance, action, reason, related and type are the same in both.

// ToV1 returns e in the form of events.k8s.io/v1. The result shares memory with e.
func ToV1(e *corev1.Event) *eventsv1.Event {
	return &eventsv1.Event{
		ObjectMeta:               e.ObjectMeta,
		EventTime:                e.EventTime,
		Series:                   seriesToV1(e.Series),
		ReportingController:      e.ReportingController,
		ReportingInstance:        e.ReportingInstance,
		Action:                   e.Action,
		Reason:                   e.Reason,
		Regarding:                e.InvolvedObject,
		Related:                  e.Related,
		Note:                     e.Message,
		Type:                     e.Type,
		DeprecatedSource:         e.Source,
		DeprecatedFirstTimestamp: e.FirstTimestamp,
		DeprecatedLastTimestamp:  e.LastTimestamp,
		DeprecatedCount:          e.Count,
	}
}

// FromV1 returns e in the form of core/v1. The result shares memory with e.
func FromV1(e *eventsv1.Event) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:          e.ObjectMeta,
		InvolvedObject:      e.Regarding,
		Reason:              e.Reason,
		Message:             e.Note,
		Source:              e.DeprecatedSource,
		FirstTimestamp:      e.DeprecatedFirstTimestamp,
		LastTimestamp:       e.DeprecatedLastTimestamp,
		Count:               e.DeprecatedCount,
		Type:                e.Type,
		EventTime:           e.EventTime,
		Series:              seriesFromV1(e.Series),
		Action:              e.Action,
		Related:             e.Related,
		ReportingController: e.ReportingController,
		ReportingInstance:   e.ReportingInstance,
	}
}

func seriesToV1(s *corev1.EventSeries) *eventsv1.EventSeries {
	if s == nil {
		return nil
	}
	return &eventsv1.EventSeries{Count: s.Count, LastObservedTime: s.LastObservedTime}
}

func seriesFromV1(s *eventsv1.EventSeries) *corev1.EventSeries {
	if s == nil {
		return nil
	}
	return &corev1.EventSeries{Count: s.Count, LastObservedTime: s.LastObservedTime}
}

// AddConversions registers the conversion between the two forms, for single events and for lists, with a scheme that
// knows core/v1's types as the internal ones of both API groups.
func AddConversions(scheme *runtime.Scheme) error {
	for _, c := range []struct {
		from, to any
		convert  conversion.ConversionFunc
	}{
		{(*corev1.Event)(nil), (*eventsv1.Event)(nil), func(in, out any, _ conversion.Scope) error {
			*out.(*eventsv1.Event) = *ToV1(in.(*corev1.Event))
			return nil
		}},
		{(*eventsv1.Event)(nil), (*corev1.Event)(nil), func(in, out any, _ conversion.Scope) error {
			*out.(*corev1.Event) = *FromV1(in.(*eventsv1.Event))
			return nil
		}},
		{(*corev1.EventList)(nil), (*eventsv1.EventList)(nil), func(in, out any, _ conversion.Scope) error {
			from, to := in.(*corev1.EventList), out.(*eventsv1.EventList)
			to.ListMeta, to.Items = from.ListMeta, make([]eventsv1.Event, len(from.Items))
			for i := range from.Items {
				to.Items[i] = *ToV1(&from.Items[i])
			}
			return nil
		}},
		{(*eventsv1.EventList)(nil), (*corev1.EventList)(nil), func(in, out any, _ conversion.Scope) error {
			from, to := in.(*eventsv1.EventList), out.(*corev1.EventList)
			to.ListMeta, to.Items = from.ListMeta, make([]corev1.Event, len(from.Items))
			for i := range from.Items {
				to.Items[i] = *FromV1(&from.Items[i])
			}
			return nil
		}},
	} {
		if err := scheme.AddConversionFunc(c.from, c.to, c.convert); err != nil {
			return err
		}
	}
	return nil
}
