package job

import (
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// A pod is made firstDelay after one has failed, and after times that double with each that has failed since the last success, up to longestDelay.
const (
	firstDelay   = 10 * time.Second
	longestDelay = 10 * time.Minute
	// mostFailures is how many failures make the longest delay.
	mostFailures = 7
)

// Failures are when the pods of a job have failed since the last of them succeeded. It is read from the pods, and kept for those that have gone.
type Failures struct {
	success time.Time
	at      map[types.UID]time.Time
}

// with are the failures that the pods of a job add to. Pods that were taken off a job before they ended, as by its suspension, are none.
func (f Failures) with(j *batchv1.Job, all []*corev1.Pod) Failures {
	now := Failures{success: f.success, at: map[types.UID]time.Time{}}
	for uid, at := range f.at {
		now.at[uid] = at
	}
	for _, pod := range all {
		if !tracked(pod) && pod.DeletionTimestamp != nil || !validIndex(j, pod) {
			continue
		}
		switch at := finished(pod); {
		case pod.Status.Phase == corev1.PodSucceeded:
			if at.After(now.success) {
				now.success = at
			}
		case failed(j, pod):
			if _, seen := now.at[pod.UID]; !seen || pod.Status.Phase == corev1.PodFailed {
				now.at[pod.UID] = at
			}
		}
	}
	newest := make([]types.UID, 0, len(now.at))
	for uid, at := range now.at {
		if at.After(now.success) {
			newest = append(newest, uid)
		} else {
			delete(now.at, uid)
		}
	}
	slices.SortFunc(newest, func(a, b types.UID) int { return now.at[b].Compare(now.at[a]) })
	for _, uid := range newest[min(len(newest), mostFailures):] {
		delete(now.at, uid)
	}
	return now
}

// delay is how long no new pod is made.
func (f Failures) delay(now time.Time) time.Duration {
	var last time.Time
	for _, at := range f.at {
		if at.After(last) {
			last = at
		}
	}
	return delay(int64(len(f.at)), last, now)
}

func delay(failures int64, last, now time.Time) time.Duration {
	if failures == 0 {
		return 0
	}
	d := min(firstDelay<<(min(failures, mostFailures)-1), longestDelay)
	return min(d, max(0, d-now.Sub(last)))
}
