package worker

import (
	"errors"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/agent/act"
	"monopod.dev/monopod/internal/agent/cri"
	"monopod.dev/monopod/internal/agent/plan"
	"monopod.dev/monopod/internal/pods"
)

// retries are the failures of actions that have not succeeded since, by which it is known when each is tried again. They are the loop's own.
type retries struct {
	failures map[plan.Key]plan.Failure
	// pulls are the last failures to pull, by image.
	pulls map[string]plan.Failure
	// changed is when a change of objects was noted last that the pod refers to.
	changed time.Time
	// runtime is the runtime that was seen last.
	runtime cri.Generation
}

func newRetries() retries {
	return retries{failures: map[plan.Key]plan.Failure{}, pulls: map[string]plan.Failure{}}
}

// succeeded forgets what went before.
func (r *retries) succeeded(op *operation) {
	delete(r.failures, op.action.Key())
	r.havePulled(op, "")
}

// failed notes a failure.
func (r *retries) failed(op *operation, err error) plan.Failure {
	f := plan.Failure{Message: err.Error(), At: time.Now(), Count: 1}
	var why *act.Failed
	if errors.As(err, &why) {
		f.Reason, f.Image, f.Fault, f.Lasts = why.Reason, why.Image, why.Fault, why.Lasts
	}
	r.havePulled(op, f.Image)
	if f.Lasts && op.begun.Before(r.changed) {
		// What it lacked may have come since it looked, and nobody tells of that again.
		f.Lasts = false
	}
	key := op.action.Key()
	if f.Pulls() {
		f.At, f.Count = r.pullFailed(op, f)
	} else {
		f = f.After(r.failures[key])
	}
	r.failures[key] = f
	return f
}

// pullFailed counts the failures of an image in this pod, whichever container wanted it. Of pulls side by side the first one to
// fail counts, so that all of them are tried again together.
func (r *retries) pullFailed(op *operation, f plan.Failure) (at time.Time, count int) {
	last := r.pulls[f.Image]
	if last.Count > 0 && last.At.After(op.begun) {
		return last.At, last.Count
	}
	f.Count = last.Count + 1
	r.pulls[f.Image] = f
	return f.At, f.Count
}

// havePulled lets the back-off of images begin anew that a container has got. failed is the one that it has not got; those after
// that were not asked for.
func (r *retries) havePulled(op *operation, failed string) {
	if op.action.Verb != plan.StartContainer {
		return
	}
	_, c := pods.ContainerNamed(&op.pod.Spec, op.action.ContainerName)
	if c == nil {
		return
	}
	for _, ref := range act.ImageRefs(op.pod, c) {
		if ref == failed {
			return
		}
		delete(r.pulls, ref)
	}
}

// noteRuntime lets what waited for another runtime be tried again at once when there is one.
func (r *retries) noteRuntime(now cri.Generation) {
	if now == r.runtime {
		return
	}
	r.runtime = now
	for k, f := range r.failures {
		if k.Verb == plan.StartContainer && f.Reason == plan.ReasonDevicesNotReady {
			delete(r.failures, k)
		}
	}
}

// noteChanges lets what waited for devices or objects be tried again at once.
func (r *retries) noteChanges(wish *wish) {
	if wish.objects {
		r.changed = time.Now()
	}
	if wish.devices {
		delete(r.failures, plan.Key{Verb: plan.GrantDevices})
	}
	for k, f := range r.failures {
		// Also a container whose devices are on record, and were not to be found when it was made: its runtime says so in words of its own.
		waits := wish.devices && (f.Reason == plan.ReasonDevicesNotReady || k.Verb == plan.StartContainer && !f.Pulls() && asksForDevices(wish.pod, k.ContainerName))
		waits = waits || k.Verb == plan.StartContainer && f.Image != "" && !stillWants(wish.pod, k.ContainerName, f.Image)
		waits = waits || wish.objects && (f.Reason == plan.ReasonCreateConfigError || f.Reason == plan.ReasonFailedVolumes || f.Pulls() && len(wish.pod.Spec.ImagePullSecrets) > 0)
		if waits {
			delete(r.failures, k)
		}
	}
}

// stillWants says that a container needs an image; its own may be changed in the specification.
func stillWants(pod *v1.Pod, containerName, image string) bool {
	_, c := pods.ContainerNamed(&pod.Spec, containerName)
	return c != nil && slices.Contains(act.ImageRefs(pod, c), image)
}
