package worker

import (
	"errors"
	"log/slog"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/agent/act"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/agent/volumes"
)

// pulling is a worker of a pod with containers a and b of one image and c of another, all of them with an image volume.
func pulling() (*Worker, *v1.Pod) {
	pod := &v1.Pod{}
	pod.Spec.Volumes = []v1.Volume{{Name: "v", VolumeSource: v1.VolumeSource{Image: &v1.ImageVolumeSource{Reference: "volume"}}}}
	for name, image := range map[string]string{"a": "same", "b": "same", "c": "other"} {
		pod.Spec.Containers = append(pod.Spec.Containers, v1.Container{
			Name: name, Image: image, VolumeMounts: []v1.VolumeMount{{Name: "v", MountPath: "/v"}, {Name: "v", MountPath: "/w"}},
		})
	}
	return &Worker{
		cfg:   Config{Files: volumes.New(volumes.Config{})},
		stale: map[string]bool{},
		log:   slog.New(slog.DiscardHandler), ongoing: map[plan.Key]*operation{}, retries: newRetries(), facts: plan.Facts{},
	}, pod
}

// begun is an attempt to start a container.
func (w *Worker) begun(pod *v1.Pod, container string) *operation {
	op := &operation{action: plan.Action{Verb: plan.StartContainer, ContainerName: container}, pod: pod, begun: time.Now()}
	w.ongoing[op.action.Key()] = op
	return op
}

func (w *Worker) failure(container string) plan.Failure {
	return w.retries.failures[plan.Key{Verb: plan.StartContainer, ContainerName: container}]
}

func TestBackOffOfPulls(t *testing.T) {
	w, pod := pulling()
	broken := errors.New("it is broken")
	fail := func(op *operation, image, reason string) {
		w.finished(result{op: op, err: &act.Failed{Reason: reason, Image: image, Err: broken}})
	}
	expect := func(container string, count int) {
		t.Helper()
		if f := w.failure(container); f.Count != count {
			t.Errorf("%s has failed %d times, want %d", container, f.Count, count)
		}
	}
	// Side by side: one failure of the image, and one time at which it is tried again.
	a, b, c := w.begun(pod, "a"), w.begun(pod, "b"), w.begun(pod, "c")
	fail(a, "same", plan.ReasonErrImagePull)
	fail(b, "same", plan.ReasonErrImagePull)
	fail(c, "other", plan.ReasonRegistryUnavailable)
	expect("a", 1)
	expect("b", 1)
	expect("c", 1)
	if fa, fb := w.failure("a"), w.failure("b"); !fa.RetryAt().Equal(fb.RetryAt()) || fa.RetryAt().Sub(fa.At) != 10*time.Second {
		t.Errorf("tried again at %s and %s", fa.RetryAt(), fb.RetryAt())
	}
	// One after the other it counts, whichever container it was for.
	fail(w.begun(pod, "a"), "same", plan.ReasonErrImagePull)
	fail(w.begun(pod, "b"), "same", plan.ReasonErrImagePull)
	expect("b", 3)
	if f := w.failure("b"); f.RetryAt().Sub(f.At) != 40*time.Second {
		t.Errorf("the third failure is waited for %s", f.RetryAt().Sub(f.At))
	}
	expect("c", 1)
	// A container that has got its image, and then failed for another reason, begins anew with both.
	w.finished(result{op: w.begun(pod, "a"), err: &act.Failed{Reason: plan.ReasonCreateError, Err: broken}})
	expect("a", 1)
	w.finished(result{op: w.begun(pod, "a"), err: &act.Failed{Reason: plan.ReasonCreateError, Err: broken}})
	expect("a", 2)
	fail(w.begun(pod, "b"), "same", plan.ReasonErrImagePull)
	expect("b", 1)
	// Its own image was had, when that of its volume was not.
	fail(w.begun(pod, "c"), "volume", plan.ReasonErrImagePull)
	fail(w.begun(pod, "c"), "volume", plan.ReasonErrImagePull)
	expect("c", 2)
	fail(w.begun(pod, "c"), "other", plan.ReasonErrImagePull)
	expect("c", 1)
	w.finished(result{op: w.begun(pod, "c")})
	if len(w.retries.pulls) != 1 || w.retries.pulls["same"].Count != 1 {
		t.Errorf("after a success: %+v", w.retries.pulls)
	}
}

// TestChangedImageIsNotWaitedFor: the wait is for the image that failed.
func TestChangedImageIsNotWaitedFor(t *testing.T) {
	w, pod := pulling()
	w.finished(result{op: w.begun(pod, "a"), err: &act.Failed{Reason: plan.ReasonErrImagePull, Image: "same", Err: errors.New("no")}})
	w.finished(result{op: w.begun(pod, "b"), err: &act.Failed{Reason: plan.ReasonErrImageNeverPull, Image: "volume", Err: errors.New("no")}})
	w.retries.noteChanges(&wish{pod: pod})
	if len(w.retries.failures) != 2 {
		t.Errorf("nothing has changed: %v", w.retries.failures)
	}
	changed := pod.DeepCopy()
	for i := range changed.Spec.Containers {
		changed.Spec.Containers[i].Image = "new"
	}
	w.retries.noteChanges(&wish{pod: changed})
	if w.failure("a").Count != 0 || w.failure("b").Count != 1 {
		t.Errorf("after a change of the images: %v", w.retries.failures)
	}
}

// TestActed: whoever wants to know what a worker does is told, also of what has failed.
func TestActed(t *testing.T) {
	w, pod := pulling()
	w.uid, w.results, w.cfg.Actions = "u", make(chan result), act.New(&act.Tell{}, act.Parts{})
	told := make(chan types.UID, 1)
	w.cfg.Acted = func(uid types.UID) { told <- uid }
	w.begin(t.Context(), pod, &plan.Action{Verb: "Nothing"})
	if r := <-w.results; r.err == nil {
		t.Error("an action that there is not has succeeded")
	}
	if uid := <-told; uid != "u" {
		t.Errorf("told of %s", uid)
	}
}

// TestAChangeOutlivesALookThatFails: a ConfigMap changes while the runtime cannot be asked.
func TestAChangeOutlivesALookThatFails(t *testing.T) {
	w, pod := pulling()
	pod.Spec.Volumes = append(pod.Spec.Volumes, v1.Volume{Name: "cm", VolumeSource: v1.VolumeSource{ConfigMap: &v1.ConfigMapVolumeSource{}}})
	w.pod, w.wake = pod, make(chan struct{}, 1)
	w.objectsChanged()
	w.wished() // nothing could be seen, and it is looked again
	w.wished()
	if !w.stale["cm"] || len(w.stale) != 1 {
		t.Errorf("the change is forgotten, and the volumes stay as they are: %v", w.stale)
	}
}

// TestAMissingObject: a container whose ConfigMap is missing waits until that comes; if it came while the container was being made, it is tried again at once.
func TestAMissingObject(t *testing.T) {
	w, pod := pulling()
	w.pod, w.wake = pod, make(chan struct{}, 1)
	missing := &act.Failed{Reason: plan.ReasonCreateConfigError, Lasts: true, Err: errors.New("there is no such ConfigMap")}
	w.finished(result{op: w.begun(pod, "a"), err: missing})
	if f := w.failure("a"); f.RetryAt().Sub(f.At) != 10*time.Second {
		t.Errorf("it is tried again after %s", f.RetryAt().Sub(f.At))
	}
	w.objectsChanged()
	w.wished()
	if f := w.failure("a"); f.Count != 0 {
		t.Errorf("it waits on: %+v", f)
	}
	op := w.begun(pod, "a")
	op.begun = op.begun.Add(-time.Second)
	w.objectsChanged()
	w.wished()
	w.finished(result{op: op, err: missing})
	if f := w.failure("a"); f.RetryAt().Sub(f.At) >= time.Second {
		t.Errorf("it came meanwhile, and is looked for after %s", f.RetryAt().Sub(f.At))
	}
}

// TestOneLookForVolumes: the runtime is asked once for all volumes that are made side by side, and for one that fails at once.
func TestOneLookForVolumes(t *testing.T) {
	w, pod := pulling()
	w.results = make(chan result)
	mounting := func(name string) *operation {
		op := &operation{action: plan.Action{Verb: plan.MountVolume, Volume: name}, pod: pod, begun: time.Now()}
		w.ongoing[op.action.Key()] = op
		return op
	}
	a, b, c := mounting("a"), mounting("b"), mounting("c")
	if w.ended(result{op: a}) {
		t.Error("it is looked while others are being made")
	}
	if !w.ended(result{op: b, err: errors.New("it is broken")}) {
		t.Error("nobody looks at one that has failed")
	}
	if !w.ended(result{op: c}) {
		t.Error("nobody looks when all are there")
	}
	mounting("d")
	if !w.ended(result{op: w.begun(pod, "a")}) {
		t.Error("nobody looks at what else has ended")
	}
}
