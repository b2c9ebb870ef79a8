package plan

import "time"

const (
	// backoffFirst doubles with each restart up to backoffMax; a container that ran for backoffReset starts afresh.
	backoffFirst = 10 * time.Second
	backoffMax   = 300 * time.Second
	backoffReset = 10 * time.Minute

	// retryFirst doubles with each failure in a row up to retryMax. Most of what fails once succeeds when it is tried again at once: another change
	// of the same thing was under way, the runtime was being restarted.
	retryFirst = 50 * time.Millisecond
	retryMax   = time.Minute

	// imageFirst is the first wait after failures about images that are no pulls; it doubles up to retryMax.
	imageFirst = time.Second

	// lastingFirst is the first wait after a failure that lasts, which is tried again for the case that nobody tells of the change; it doubles up to retryMax.
	lastingFirst = 10 * time.Second

	// devicesRetry is how often devices are asked for again when nothing tells that they have changed.
	devicesRetry = 30 * time.Second

	// attemptShown is how long the error of an image pull is shown before the status says that it is backing off.
	attemptShown = 5 * time.Second
)

// restart says with which step, and when at the earliest, the successor of a dead container is started. The step is
// written to each container when it is made, so the back-off goes on after a restart of the agent. The first restart is
// immediate.
func restart(c *Container) (step int, notBefore time.Time) {
	if !c.StartedAt.IsZero() && c.FinishedAt.Sub(c.StartedAt) >= backoffReset {
		return 1, c.FinishedAt
	}
	return c.Step + 1, c.FinishedAt.Add(backoff(c.Step))
}

// backoff is the wait before the restart of a container that was born with the given step.
func backoff(step int) time.Duration {
	if step <= 0 {
		return 0
	}
	return doubled(backoffFirst, step-1, backoffMax)
}

func doubled(d time.Duration, times int, limit time.Duration) time.Duration {
	for ; times > 0 && d < limit; times-- {
		d *= 2
	}
	return min(d, limit)
}

// Waiting reasons of failed actions.
const (
	ReasonErrImagePull     = "ErrImagePull"
	ReasonImagePullBackOff = "ImagePullBackOff"
	// ReasonRegistryUnavailable and ReasonSignatureFailed are what CRI has runtimes say of a failed pull (k8s.io/cri-api, pkg/errors).
	ReasonRegistryUnavailable = "RegistryUnavailable"
	ReasonSignatureFailed     = "SignatureValidationFailed"
	ReasonErrImageNeverPull   = "ErrImageNeverPull"
	ReasonInvalidImageName    = "InvalidImageName"
	ReasonImageInspect        = "ImageInspectError"
	ReasonCreateConfigError   = "CreateContainerConfigError"
	ReasonCreateError         = "CreateContainerError"
	ReasonRunError            = "RunContainerError"
	ReasonCrashLoopBackOff    = "CrashLoopBackOff"
	ReasonContainerCreating   = "ContainerCreating"
	ReasonPodInitializing     = "PodInitializing"
	ReasonFailedSandbox       = "FailedCreatePodSandBox"
	ReasonFailedVolumes       = "FailedMount"
)

// rule says how long to wait after a failure: first, which doubles with each one in a row up to limit.
type rule struct{ first, limit time.Duration }

func (f Failure) rule() rule {
	switch {
	case f.Pulls():
		return rule{backoffFirst, backoffMax}
	case f.Reason == ReasonDevicesNotReady && !f.Fault:
		return rule{devicesRetry, devicesRetry}
	case f.Lasts:
		return rule{lastingFirst, retryMax}
	case f.Reason == ReasonErrImageNeverPull, f.Reason == ReasonInvalidImageName, f.Reason == ReasonImageInspect:
		return rule{imageFirst, retryMax}
	}
	return rule{retryFirst, retryMax}
}

// RetryAt is when the action may be tried again.
func (f Failure) RetryAt() time.Time {
	r := f.rule()
	return f.At.Add(doubled(r.first, f.Count-1, r.limit))
}

// After is the failure as the next one of its action in a row after last. It counts from 1 where another rule holds for how long it is waited for: the
// action got further than the last time, or less far.
func (f Failure) After(last Failure) Failure {
	f.Count = 1
	if f.rule() == last.rule() {
		f.Count += last.Count
	}
	return f
}

// Pulls says that it is the failure of a pull. They are counted, and waited for, by image.
func (f Failure) Pulls() bool {
	return f.Reason == ReasonErrImagePull || f.Reason == ReasonRegistryUnavailable || f.Reason == ReasonSignatureFailed
}

// showsAttempt says that the error of the last attempt is shown rather than the waiting for the next one.
func (f Failure) showsAttempt(now time.Time) bool {
	return f.Pulls() && now.Before(f.At.Add(attemptShown))
}
