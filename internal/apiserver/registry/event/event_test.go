package event

import (
	"context"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"sigs.k8s.io/randfill"

	"monopod.dev/monopod/internal/apiserver/scheme"
)

// TestConversionLosesNothing fills every field of one form, reads it through the other and back.
func TestConversionLosesNothing(t *testing.T) {
	fill := randfill.NewWithSeed(1).NilChance(0).NumElements(1, 3).Funcs(
		func(m *metav1.MicroTime, c randfill.Continue) { *m = metav1.NewMicroTime(time.Unix(c.Int63n(1e9), 0)) },
		func(m *metav1.Time, c randfill.Continue) { *m = metav1.NewTime(time.Unix(c.Int63n(1e9), 0)) },
		func(m *metav1.TypeMeta, _ randfill.Continue) { *m = metav1.TypeMeta{} },
		func(m *metav1.FieldsV1, _ randfill.Continue) {},
	)
	for range 100 {
		var core, back corev1.Event
		fill.Fill(&core)
		if back = *FromV1(ToV1(&core)); !reflect.DeepEqual(core, back) {
			t.Fatalf("core/v1 through events.k8s.io/v1: %#v, want %#v", back, core)
		}
		var v1 eventsv1.Event
		fill.Fill(&v1)
		if again := *ToV1(FromV1(&v1)); !reflect.DeepEqual(v1, again) {
			t.Fatalf("events.k8s.io/v1 through core/v1: %#v, want %#v", again, v1)
		}
	}
}

// TestReadCrosswise writes events as clients of one API group do and reads them as clients of the other, through the
// codecs that the server uses.
func TestReadCrosswise(t *testing.T) {
	set, err := scheme.New(AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	happened := metav1.NewMicroTime(time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC))
	core := &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Namespace: "ns", Name: "e"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "p"},
		Reason:         "Started", Message: "it runs", Count: 2, Type: "Normal", EventTime: happened,
		Source: corev1.EventSource{Component: "agent", Host: "n"}, ReportingController: "agent",
		Series: &corev1.EventSeries{Count: 2, LastObservedTime: happened},
	}
	v1 := ToV1(core)
	v1.TypeMeta = metav1.TypeMeta{APIVersion: "events.k8s.io/v1", Kind: "Event"}
	for _, media := range set.Codecs.SupportedMediaTypes() {
		write := func(obj runtime.Object) []byte {
			raw, err := runtime.Encode(media.Serializer, obj)
			if err != nil {
				t.Fatal(err)
			}
			return raw
		}
		for name, sent := range map[string]struct {
			obj      runtime.Object
			internal runtime.GroupVersioner
		}{
			"core/v1": {core, internal("")}, "events.k8s.io/v1": {v1, internal(eventsv1.GroupName)},
		} {
			obj, err := runtime.Decode(set.Codecs.DecoderToVersion(media.Serializer, sent.internal), write(sent.obj))
			if err != nil {
				t.Fatalf("%s, sent as %s: %v", media.MediaType, name, err)
			}
			stored, ok := obj.(*corev1.Event)
			if !ok {
				t.Fatalf("%s, sent as %s: in memory it is a %T", media.MediaType, name, obj)
			}
			for _, answer := range []struct {
				version runtime.GroupVersioner
				want    runtime.Object
			}{{corev1.SchemeGroupVersion, core}, {eventsv1.SchemeGroupVersion, v1}} {
				raw, err := runtime.Encode(set.Codecs.EncoderForVersion(media.Serializer, answer.version), stored)
				if err != nil {
					t.Fatal(err)
				}
				if want := write(answer.want); string(raw) != string(want) {
					t.Errorf("%s, sent as %s, read as %v:\n%s\nwant:\n%s", media.MediaType, name, answer.version, raw, want)
				}
			}
		}
	}
}

func internal(group string) schema.GroupVersion {
	return schema.GroupVersion{Group: group, Version: runtime.APIVersionInternal}
}

func TestListsAreConverted(t *testing.T) {
	set, err := scheme.New(AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	list := &corev1.EventList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []corev1.Event{{Message: "a"}, {Message: "b"}}}
	obj, err := set.Scheme.ConvertToVersion(list, eventsv1.SchemeGroupVersion)
	if err != nil {
		t.Fatal(err)
	}
	got, ok := obj.(*eventsv1.EventList)
	if !ok || got.ResourceVersion != "7" || len(got.Items) != 2 || got.Items[1].Note != "b" {
		t.Fatalf("list as events.k8s.io/v1: %#v", obj)
	}
	var back corev1.EventList
	if err := set.Scheme.Convert(got, &back, nil); err != nil || back.Items[0].Message != "a" {
		t.Errorf("and back: %#v, %v", back, err)
	}
}

func TestFieldSelectors(t *testing.T) {
	set, err := scheme.New(AddToScheme)
	if err != nil {
		t.Fatal(err)
	}
	core, v1 := corev1.SchemeGroupVersion.WithKind("Event"), eventsv1.SchemeGroupVersion.WithKind("Event")
	for _, tc := range []struct {
		label, core, v1 string // what the label becomes; empty: refused
	}{
		{"involvedObject.name", "involvedObject.name", "involvedObject.name"},
		{"reason", "reason", "reason"},
		{"metadata.name", "metadata.name", "metadata.name"},
		{"regarding.name", "", "involvedObject.name"},
		{"reportingController", "", "reportingComponent"},
		{"message", "", ""},
	} {
		if got, _, err := set.Scheme.ConvertFieldLabel(core, tc.label, "x"); got != tc.core || (err != nil) != (tc.core == "") {
			t.Errorf("core/v1 %s: %q, %v, want %q", tc.label, got, err, tc.core)
		}
		if got, _, err := set.Scheme.ConvertFieldLabel(v1, tc.label, "x"); got != tc.v1 || (err != nil) != (tc.v1 == "") {
			t.Errorf("events.k8s.io/v1 %s: %q, %v, want %q", tc.label, got, err, tc.v1)
		}
	}
	fields := selectable(&corev1.Event{ReportingController: "me", InvolvedObject: corev1.ObjectReference{UID: "u"}})
	if fields["source"] != "me" || fields["involvedObject.uid"] != "u" {
		t.Errorf("fields %v", fields)
	}
}

func summary(errs field.ErrorList) []string {
	var list []string
	for _, err := range errs {
		list = append(list, err.Field+": "+string(err.Type))
	}
	slices.Sort(list)
	return list
}

func request(group string) context.Context {
	return genericrequest.WithRequestInfo(context.Background(), &genericrequest.RequestInfo{APIGroup: group, APIVersion: "v1"})
}

func strictEvent() *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Namespace: "ns", Name: "e", ResourceVersion: "1"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "p"},
		EventTime:      metav1.NewMicroTime(time.Unix(1, 2000)), Type: "Normal", Reason: "Started", Action: "Starting",
		ReportingController: "monopod.dev/agent", ReportingInstance: "agent-n", Message: "it runs",
	}
}

func TestValidation(t *testing.T) {
	loose := func(e *corev1.Event) {
		e.EventTime, e.Type, e.Action, e.ReportingController, e.ReportingInstance = metav1.MicroTime{}, "", "", "", ""
	}
	for name, tc := range map[string]struct {
		change func(*corev1.Event)
		core   []string
		v1     []string
	}{
		"complete": {func(*corev1.Event) {}, nil, nil},
		"loose":    {loose, nil, []string{"action: FieldValueRequired", "eventTime: FieldValueRequired", "reportingController: FieldValueRequired", "reportingInstance: FieldValueRequired", "type: FieldValueNotSupported"}},
		"with a time, and nothing beside": {func(e *corev1.Event) { e.Reason, e.Action, e.ReportingController, e.ReportingInstance = "", "", "", "" },
			[]string{"action: FieldValueRequired", "reason: FieldValueRequired", "reportingComponent: FieldValueRequired", "reportingInstance: FieldValueRequired"},
			[]string{"action: FieldValueRequired", "reason: FieldValueRequired", "reportingController: FieldValueRequired", "reportingInstance: FieldValueRequired"}},
		"with a time, and too much": {func(e *corev1.Event) {
			e.Reason, e.Action, e.ReportingInstance, e.Message = strings.Repeat("r", 129), strings.Repeat("a", 129), strings.Repeat("i", 129), strings.Repeat("m", 1025)
			e.ReportingController = "no name"
		},
			[]string{"action: FieldValueTooLong", "message: FieldValueTooLong", "reason: FieldValueTooLong", "reportingComponent: FieldValueInvalid", "reportingInstance: FieldValueTooLong"},
			[]string{"action: FieldValueTooLong", "note: FieldValueTooLong", "reason: FieldValueTooLong", "reportingController: FieldValueInvalid", "reportingInstance: FieldValueTooLong"}},
		"other namespace": {func(e *corev1.Event) { e.InvolvedObject.Namespace = "else" },
			[]string{"involvedObject.namespace: FieldValueInvalid"}, []string{"involvedObject.namespace: FieldValueInvalid"}},
		"of a node, in default":  {func(e *corev1.Event) { e.InvolvedObject.Namespace, e.Namespace = "", "default" }, nil, nil},
		"of a node, elsewhere":   {func(e *corev1.Event) { e.InvolvedObject.Namespace = "" }, []string{"involvedObject.namespace: FieldValueInvalid"}, []string{"involvedObject.namespace: FieldValueInvalid"}},
		"series of one":          {func(e *corev1.Event) { e.Series = &corev1.EventSeries{Count: 1, LastObservedTime: e.EventTime} }, nil, []string{"series.count: FieldValueInvalid"}},
		"deprecated count":       {func(e *corev1.Event) { e.Count = 1 }, nil, []string{"count: FieldValueForbidden"}},
		"a name that is no name": {func(e *corev1.Event) { e.Name = "A B" }, []string{"metadata.name: FieldValueInvalid"}, []string{"metadata.name: FieldValueInvalid"}},
	} {
		t.Run(name, func(t *testing.T) {
			e := strictEvent()
			tc.change(e)
			if got := summary((strategy{}).Validate(request(""), e)); !slices.Equal(got, tc.core) {
				t.Errorf("core/v1: %v, want %v", got, tc.core)
			}
			if got := summary((strategy{}).Validate(request(eventsv1.GroupName), e)); !slices.Equal(got, tc.v1) {
				t.Errorf("events.k8s.io/v1: %v, want %v", got, tc.v1)
			}
		})
	}
}

func TestUpdateValidation(t *testing.T) {
	for name, tc := range map[string]struct {
		change   func(*corev1.Event)
		core, v1 []string
	}{
		"the series goes on": {func(e *corev1.Event) { e.Series = &corev1.EventSeries{Count: 2, LastObservedTime: e.EventTime} }, nil, nil},
		"the message":        {func(e *corev1.Event) { e.Message = "it ran" }, nil, []string{"message: FieldValueForbidden"}},
		"who reports":        {func(e *corev1.Event) { e.ReportingInstance = "" }, []string{"reportingInstance: FieldValueRequired"}, []string{"reportingInstance: FieldValueForbidden"}},
		"the time":           {func(e *corev1.Event) { e.EventTime = metav1.NewMicroTime(time.Unix(5, 0)) }, nil, []string{"eventTime: FieldValueForbidden"}},
	} {
		t.Run(name, func(t *testing.T) {
			old, e := strictEvent(), strictEvent()
			tc.change(e)
			if got := summary((strategy{}).ValidateUpdate(request(""), e, old)); !slices.Equal(got, tc.core) {
				t.Errorf("core/v1: %v, want %v", got, tc.core)
			}
			if got := summary((strategy{}).ValidateUpdate(request(eventsv1.GroupName), e, old)); !slices.Equal(got, tc.v1) {
				t.Errorf("events.k8s.io/v1: %v, want %v", got, tc.v1)
			}
		})
	}
}
