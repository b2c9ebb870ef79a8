package pod

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var now = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

func waiting(reason string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
}

func running() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
}

func ended(reason string, code, signal int32) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: reason, ExitCode: code, Signal: signal}}
}

type container struct {
	sidecar  bool
	started  bool
	state    corev1.ContainerState
	ready    bool
	restarts int32
	last     time.Duration // since the last restart; 0: none
}

func statuses(list []container) (specs []corev1.Container, result []corev1.ContainerStatus) {
	for i, c := range list {
		s := corev1.ContainerStatus{Name: fmt.Sprint("c", i), State: c.state, Ready: c.ready, RestartCount: c.restarts, Started: &c.started}
		if c.last > 0 {
			s.LastTerminationState.Terminated = &corev1.ContainerStateTerminated{FinishedAt: ago(c.last)}
		}
		spec := corev1.Container{Name: s.Name}
		if c.sidecar {
			spec.RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
		}
		specs, result = append(specs, spec), append(result, s)
	}
	return specs, result
}

func TestPodRow(t *testing.T) {
	for _, tc := range []struct {
		name       string
		phase      corev1.PodPhase
		reason     string
		deleted    bool
		gated      bool
		conditions []corev1.PodConditionType // those that are true
		init, main []container
		want       string // READY STATUS RESTARTS
	}{
		{name: "nobody looked at it", phase: corev1.PodPending, main: []container{{}, {}}, want: "0/2 Pending 0"},
		{name: "creating", phase: corev1.PodPending, main: []container{{state: waiting("ContainerCreating")}}, want: "0/1 ContainerCreating 0"},
		{name: "running", phase: corev1.PodRunning, main: []container{{state: running(), ready: true}}, want: "1/1 Running 0"},
		{name: "one of two ready", phase: corev1.PodRunning, main: []container{{state: running(), ready: true}, {state: running()}}, want: "1/2 Running 0"},
		{name: "back-off", phase: corev1.PodRunning, main: []container{{state: waiting("CrashLoopBackOff"), restarts: 3, last: 5 * time.Second}},
			want: "0/1 CrashLoopBackOff 3 (5s ago)"},
		{name: "the first container speaks", phase: corev1.PodRunning,
			main: []container{{state: waiting("ErrImagePull")}, {state: waiting("CrashLoopBackOff"), restarts: 1}}, want: "0/2 ErrImagePull 1"},
		{name: "restarts add up, the last counts", phase: corev1.PodRunning,
			main: []container{{state: running(), ready: true, restarts: 1, last: time.Hour}, {state: running(), ready: true, restarts: 2, last: time.Minute}},
			want: "2/2 Running 3 (60s ago)"},
		{name: "error", phase: corev1.PodFailed, main: []container{{state: ended("Error", 7, 0)}}, want: "0/1 Error 0"},
		{name: "exit code without reason", phase: corev1.PodFailed, main: []container{{state: ended("", 7, 0)}}, want: "0/1 ExitCode:7 0"},
		{name: "signal without reason", phase: corev1.PodFailed, main: []container{{state: ended("", 137, 9)}}, want: "0/1 Signal:9 0"},
		{name: "completed", phase: corev1.PodSucceeded, main: []container{{state: ended("Completed", 0, 0)}}, want: "0/1 Completed 0"},
		{name: "one completed, one at work", phase: corev1.PodRunning,
			main: []container{{state: ended("Completed", 0, 0)}, {state: running(), ready: true}}, want: "1/2 NotReady 0"},
		{name: "one completed, the pod ready", phase: corev1.PodRunning, conditions: []corev1.PodConditionType{corev1.PodReady},
			main: []container{{state: ended("Completed", 0, 0)}, {state: running(), ready: true}}, want: "1/2 Running 0"},
		{name: "one completed, one failed", phase: corev1.PodFailed,
			main: []container{{state: ended("Completed", 0, 0)}, {state: ended("Error", 1, 0)}}, want: "0/2 Error 0"},
		{name: "one completed, one failed, one at work", phase: corev1.PodRunning,
			main: []container{{state: ended("Completed", 0, 0)}, {state: ended("OOMKilled", 137, 9)}, {state: running(), ready: true}}, want: "1/3 OOMKilled 0"},
		{name: "restarts of one that is done", phase: corev1.PodSucceeded, main: []container{{state: ended("Completed", 0, 0), restarts: 3, last: 10 * time.Second}},
			want: "0/1 Completed 3 (10s ago)"},
		{name: "reason of the pod", phase: corev1.PodFailed, reason: "Evicted", main: []container{{}}, want: "0/1 Evicted 0"},
		{name: "gated", phase: corev1.PodPending, gated: true, main: []container{{}}, want: "0/1 SchedulingGated 0"},
		{name: "terminating", phase: corev1.PodRunning, deleted: true, main: []container{{state: running(), ready: true}}, want: "1/1 Terminating 0"},
		{name: "deleted when it had ended", phase: corev1.PodSucceeded, deleted: true, main: []container{{state: ended("Completed", 0, 0)}}, want: "0/1 Completed 0"},
		{name: "node lost", phase: corev1.PodRunning, reason: "NodeLost", deleted: true, main: []container{{}}, want: "0/1 Unknown 0"},

		{name: "first init container", phase: corev1.PodPending, init: []container{{state: running()}, {state: waiting("PodInitializing")}},
			main: []container{{state: waiting("PodInitializing")}}, want: "0/1 Init:0/2 0"},
		{name: "second init container", phase: corev1.PodPending, init: []container{{state: ended("Completed", 0, 0)}, {state: running()}},
			main: []container{{state: waiting("PodInitializing")}}, want: "0/1 Init:1/2 0"},
		{name: "failed init container", phase: corev1.PodPending, init: []container{{state: ended("Error", 1, 0), restarts: 2, last: time.Minute}},
			main: []container{{state: waiting("PodInitializing")}}, want: "0/1 Init:Error 2 (60s ago)"},
		{name: "init container without reason", phase: corev1.PodPending, init: []container{{state: ended("", 2, 0)}}, main: []container{{}}, want: "0/1 Init:ExitCode:2 0"},
		{name: "init container in back-off", phase: corev1.PodPending, init: []container{{state: waiting("CrashLoopBackOff"), restarts: 4}}, main: []container{{}}, want: "0/1 Init:CrashLoopBackOff 4"},
		{name: "initialized", phase: corev1.PodPending, init: []container{{state: ended("Completed", 0, 0), restarts: 2}},
			main: []container{{state: waiting("PodInitializing")}}, want: "0/1 PodInitializing 0"},

		{name: "sidecar that starts up", phase: corev1.PodPending, init: []container{{sidecar: true, state: running()}, {state: waiting("PodInitializing")}},
			main: []container{{state: waiting("PodInitializing")}}, want: "0/2 Init:0/2 0"},
		{name: "sidecar, then init container", phase: corev1.PodPending, init: []container{{sidecar: true, started: true, ready: true, state: running()}, {state: running()}},
			main: []container{{state: waiting("PodInitializing")}}, want: "1/2 Init:1/2 0"},
		{name: "sidecar in back-off", phase: corev1.PodPending, init: []container{{sidecar: true, state: waiting("CrashLoopBackOff"), restarts: 2}}, main: []container{{}},
			want: "0/2 Init:CrashLoopBackOff 2"},
		{name: "sidecars beside the containers", phase: corev1.PodRunning, conditions: []corev1.PodConditionType{corev1.PodInitialized, corev1.PodReady},
			init: []container{{sidecar: true, started: true, ready: true, state: running(), restarts: 2, last: time.Minute}, {state: ended("Completed", 0, 0), restarts: 5}},
			main: []container{{state: running(), ready: true, restarts: 1}}, want: "2/2 Running 3 (60s ago)"},
		{name: "sidecar that is not ready", phase: corev1.PodRunning, conditions: []corev1.PodConditionType{corev1.PodInitialized},
			init: []container{{sidecar: true, started: true, state: running()}}, main: []container{{state: running(), ready: true}}, want: "1/2 Running 0"},
		{name: "sidecar that failed later", phase: corev1.PodRunning, conditions: []corev1.PodConditionType{corev1.PodInitialized},
			init: []container{{state: ended("Completed", 0, 0), restarts: 5}, {sidecar: true, state: ended("Error", 1, 0), restarts: 1}}, main: []container{{state: running(), ready: true}}, want: "1/2 Init:Error 1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			pod := &corev1.Pod{Status: corev1.PodStatus{Phase: tc.phase, Reason: tc.reason}}
			pod.Spec.Containers, pod.Status.ContainerStatuses = statuses(tc.main)
			pod.Spec.InitContainers, pod.Status.InitContainerStatuses = statuses(tc.init)
			for _, c := range tc.conditions {
				pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{Type: c, Status: corev1.ConditionTrue})
			}
			if tc.gated {
				pod.Status.Conditions = append(pod.Status.Conditions, corev1.PodCondition{
					Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: corev1.PodReasonSchedulingGated})
			}
			if tc.deleted {
				pod.DeletionTimestamp = &metav1.Time{Time: now}
			}
			cells, _ := podRow(pod, now)
			if got := fmt.Sprintf("%v %v %v", cells[1], cells[2], cells[3]); got != tc.want {
				t.Errorf("READY STATUS RESTARTS = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestPodRowSaysThatItHasEnded(t *testing.T) {
	for phase, want := range map[corev1.PodPhase]string{corev1.PodSucceeded: "Succeeded", corev1.PodFailed: "Failed", corev1.PodRunning: ""} {
		_, conditions := podRow(&corev1.Pod{Status: corev1.PodStatus{Phase: phase}}, now)
		var got string
		for _, c := range conditions {
			got += c.Reason
		}
		if got != want {
			t.Errorf("phase %s: row conditions %v, want reason %q", phase, conditions, want)
		}
	}
}
