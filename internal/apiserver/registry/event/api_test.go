package event_test

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/apiserver/registry/event"
	"monopod.dev/monopod/test/apitest"
)

const timeout = 20 * time.Second

// TestWrittenInOneGroupAndReadInTheOther is what makes the two API groups one resource: create, get, list, watch, update
// and delete, each through the one and seen through the other.
func TestWrittenInOneGroupAndReadInTheOther(t *testing.T) {
	client := apitest.Start(t).Client
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	core, v1 := client.CoreV1().Events("default"), client.EventsV1().Events("default")

	old, err := core.Create(ctx, &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "old"},
		InvolvedObject: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "p"},
		Reason:         "Started", Message: "it runs", Type: "Normal", Count: 3,
		FirstTimestamp: metav1.Unix(1, 0), LastTimestamp: metav1.Unix(2, 0), Source: corev1.EventSource{Component: "agent"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	seen, err := v1.Get(ctx, "old", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if want := event.ToV1(old); seen.Note != "it runs" || seen.DeprecatedCount != 3 || !apiequality.Semantic.DeepEqual(seen.Regarding, want.Regarding) {
		t.Errorf("core/v1's event in events.k8s.io/v1: %+v", seen)
	}

	if _, err := v1.Create(ctx, &eventsv1.Event{ObjectMeta: metav1.ObjectMeta{Name: "loose"}}, metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("an incomplete event in events.k8s.io/v1: %v, want invalid", err)
	}
	watcher, err := core.Watch(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=q", ResourceVersion: old.ResourceVersion})
	if err != nil {
		t.Fatal(err)
	}
	defer watcher.Stop()
	made, err := v1.Create(ctx, &eventsv1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: "new"},
		EventTime:  metav1.NewMicroTime(time.Unix(5, 6000)), ReportingController: "monopod.dev/test", ReportingInstance: "t-1",
		Action: "Testing", Reason: "Tested", Type: "Normal", Note: "it works",
		Regarding: corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "q"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	change := <-watcher.ResultChan()
	got, ok := change.Object.(*corev1.Event)
	if !ok || got.Message != "it works" || got.InvolvedObject.Name != "q" || !got.EventTime.Equal(&made.EventTime) {
		t.Errorf("events.k8s.io/v1's event in core/v1: %+v", change)
	}
	list, err := v1.List(ctx, metav1.ListOptions{FieldSelector: "regarding.name=q"})
	if err != nil || len(list.Items) != 1 || list.Items[0].Name != "new" {
		t.Errorf("selected in events.k8s.io/v1: %+v, %v", list, err)
	}

	made.Series = &eventsv1.EventSeries{Count: 2, LastObservedTime: made.EventTime}
	if _, err := v1.Update(ctx, made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if got, err := core.Get(ctx, "new", metav1.GetOptions{}); err != nil || got.Series == nil || got.Series.Count != 2 {
		t.Errorf("the series in core/v1: %+v, %v", got, err)
	}
	if err := core.Delete(ctx, "new", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := v1.Get(ctx, "new", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("after it was deleted in core/v1: %v, want not found", err)
	}
}
