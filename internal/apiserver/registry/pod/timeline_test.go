package pod

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/kit/podstarts"
)

// TestTimeline: it is remembered when a pod's request came, when the pod was stored, and when it was bound; not of what was only tried.
func TestTimeline(t *testing.T) {
	f := newFixture(t)
	line := podstarts.New(podstarts.Config{})
	f.Pod.BeginCreate, f.Binding.timeline = noteCreate(line), line
	came := time.Now().Add(-time.Second)
	f.ctx = genericrequest.WithReceivedTimestamp(f.ctx, came)

	dry := []string{metav1.DryRunAll}
	tried := validPod()
	tried.Name = "tried"
	f.must(f.Pod.Create(f.ctx, tried, rest.ValidateAllObjectFunc, &metav1.CreateOptions{DryRun: dry}))
	pod := f.create("p")
	if err := f.bind("p", "n", nil, &metav1.CreateOptions{DryRun: dry}); err != nil {
		t.Fatal(err)
	}
	got, _ := line.Pod("default", "p")
	if got.UID != string(pod.UID) || len(got.Steps) != 2 {
		t.Fatalf("made: %+v", got)
	}
	again := validPod()
	again.Name = "p"
	if _, err := f.Pod.Create(f.ctx, again, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err == nil {
		t.Fatal("made twice")
	}
	if err := f.bind("p", "n", nil, nil); err != nil {
		t.Fatal(err)
	}
	got, _ = line.Pod("default", "p")
	if len(got.Steps) != 3 {
		t.Fatalf("bound: %+v", got)
	}
	steps := map[string]podstarts.Step{}
	for _, s := range got.Steps {
		steps[s.Name] = s
	}
	post, store, bind := steps[podstarts.Post], steps[podstarts.Store], steps[podstarts.Bind]
	if !post.Begin.Equal(came) || !store.Begin.Equal(post.End) || store.End.Before(store.Begin) || !bind.Begin.Equal(came) || bind.End.Before(store.End) {
		t.Errorf("%+v", got.Steps)
	}
	// An apply makes a pod that is not there.
	applied := validPod()
	applied.Name = "applied"
	if _, made, err := f.Pod.Update(f.ctx, "applied", rest.DefaultUpdatedObjectInfo(applied), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc, true,
		&metav1.UpdateOptions{}); err != nil || !made {
		t.Fatal(made, err)
	}
	if _, known := line.Pod("default", "applied"); !known {
		t.Error("nothing is remembered of a pod that was applied")
	}
	if _, known := line.Pod("default", "tried"); known {
		t.Error("a dry run is remembered")
	}
}
