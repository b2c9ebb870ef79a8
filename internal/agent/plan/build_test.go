package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/kit/ids"
)

// now is the time of all cases; facts are given relative to it.
var now = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func ago(d time.Duration) time.Time { return now.Add(-d) }

// option changes an Input.
type option func(*Input)

// given is a pod with one container "a" that is restarted always, its devices granted, nothing observed.
func given(opts ...option) Input {
	in := Input{
		Pod: &v1.Pod{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p", UID: "u", Generation: 3},
			Spec: v1.PodSpec{
				RestartPolicy: v1.RestartPolicyAlways,
				Containers:    []v1.Container{{Name: "a", Image: "img"}},
			},
		},
		Facts: Facts{{What: Granted}: {}}, RuntimeName: "rt", HostIPs: []string{"10.0.0.1"}, Now: now,
		Ongoing: map[Key]Ongoing{}, Failures: map[Key]Failure{}, Hashes: map[string]string{},
	}
	for _, o := range opts {
		o(&in)
	}
	return in
}

func policy(p v1.RestartPolicy) option { return func(in *Input) { in.Pod.Spec.RestartPolicy = p } }

func mains(names ...string) option {
	return func(in *Input) {
		in.Pod.Spec.Containers = nil
		for _, n := range names {
			in.Pod.Spec.Containers = append(in.Pod.Spec.Containers, v1.Container{Name: n, Image: "img"})
		}
	}
}

func inits(names ...string) option {
	return func(in *Input) {
		for _, n := range names {
			in.Pod.Spec.InitContainers = append(in.Pod.Spec.InitContainers, v1.Container{Name: n, Image: "img"})
		}
	}
}

func sandbox(id ids.SandboxID, attempt uint32, ready bool) option {
	return func(in *Input) {
		s := Sandbox{ID: id, Attempt: attempt, Ready: ready, CreatedAt: ago(time.Hour)}
		if ready {
			s.IPs = []string{"10.61.0.5"}
		}
		in.Observed.Sandboxes = append(in.Observed.Sandboxes, s)
	}
}

// has adds a container: "name/attempt" in the sandbox, named by its name and attempt.
func has(name string, attempt int32, sandbox ids.SandboxID, state ContainerState, more ...func(*Container)) option {
	return func(in *Input) {
		c := Container{
			ID: ids.ContainerID(fmt.Sprintf("%s%d", name, attempt)), Name: name, Attempt: attempt, SandboxID: sandbox, State: state,
			CreatedAt: ago(time.Hour), Image: "img",
		}
		if state == Running || state == Exited {
			c.StartedAt = ago(time.Minute)
		}
		if state == Exited {
			c.FinishedAt = ago(time.Second)
		}
		for _, m := range more {
			m(&c)
		}
		in.Observed.Containers = append(in.Observed.Containers, c)
	}
}

func code(n int32) func(*Container) { return func(c *Container) { c.ExitCode = n } }
func step(n int) func(*Container)   { return func(c *Container) { c.Step = n } }
func ran(from, to time.Duration) func(*Container) {
	return func(c *Container) { c.StartedAt, c.FinishedAt = ago(from), ago(to) }
}

func deleted(left time.Duration) option {
	return func(in *Input) {
		t := metav1.NewTime(now.Add(left))
		in.Pod.DeletionTimestamp, in.StopBy = &t, now.Add(left)
	}
}

func gone(in *Input) {
	in.Gone, in.StopBy = true, now.Add(time.Second)
}

// keyOf is the key of an action on what has this name or ID.
func keyOf(v Verb, on string) Key {
	a := Action{Verb: v, Volume: on, ContainerName: on, SandboxID: ids.SandboxID(on), ContainerID: ids.ContainerID(on)}
	return a.Key()
}

func ongoing(v Verb, on string) option {
	return func(in *Input) { in.Ongoing[keyOf(v, on)] = Ongoing{} }
}

// fact is one of a container that was noted so long ago.
func fact(what What, id ids.ContainerID, before time.Duration) option {
	return func(in *Input) { in.Facts[Fact{What: what, ContainerID: id}] = ago(before) }
}

func stopping(id string, left time.Duration) option {
	return func(in *Input) { in.Ongoing[keyOf(StopContainer, id)] = Ongoing{StopBy: now.Add(left)} }
}

func failure(v Verb, on, reason string, before time.Duration, count int) option {
	return func(in *Input) {
		in.Failures[keyOf(v, on)] = Failure{Reason: reason, Message: "it failed", At: ago(before), Count: count}
	}
}

func wantsDevice(granted bool) option {
	return func(in *Input) {
		in.Facts.Set(Granted, granted)
		in.Pod.Spec.Containers[0].Resources.Limits = v1.ResourceList{"example.com/widget": resource.MustParse("1")}
	}
}

// volumes gives the pod volumes that were not made yet.
func volumes(names ...string) option {
	return func(in *Input) {
		for _, n := range names {
			in.Pod.Spec.Volumes = append(in.Pod.Spec.Volumes, v1.Volume{Name: n})
		}
	}
}

// mounted has volumes of the pod be there.
func mounted(names ...string) option {
	return func(in *Input) {
		volumes(names...)(in)
		for _, n := range names {
			in.Facts.note(Fact{What: Mounted, Volume: n})
		}
	}
}

// stale says of volumes that what they show has changed.
func stale(names ...string) option {
	return func(in *Input) {
		in.Stale = map[string]bool{}
		for _, n := range names {
			in.Stale[n] = true
		}
	}
}

func prior(st v1.PodStatus) option { return func(in *Input) { in.Prior = st } }

// was is the status of a container before.
func was(name string, restarts int32, state v1.ContainerState) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, RestartCount: restarts, State: state, ContainerID: fmt.Sprintf("rt://%s%d", name, restarts)}
}

func wasRunning() v1.ContainerState {
	return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(ago(time.Hour))}}
}

func wasTerminated(code int32) v1.ContainerState {
	return v1.ContainerState{Terminated: &v1.ContainerStateTerminated{ExitCode: code, Reason: "Error", ContainerID: "rt://old"}}
}

// said is a decision as text: one action a line, sorted.
func said(res Result) string {
	var lines []string
	for _, a := range res.Actions {
		lines = append(lines, sayAction(a))
	}
	for _, k := range res.Cancel {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("cancel %s %s", k.Verb, k.On())))
	}
	slices.Sort(lines)
	if !res.Wake.IsZero() {
		lines = append(lines, "wake +"+res.Wake.Sub(now).String())
	}
	if res.Done {
		lines = append(lines, "done")
	}
	return strings.Join(lines, "; ")
}

func sayAction(a Action) string { return sayActionAt(a, now) }

func sayActionAt(a Action, now time.Time) string {
	switch a.Verb {
	case CreateSandbox:
		var old []string
		for _, id := range a.Replaces {
			old = append(old, string(id))
		}
		return strings.TrimSpace(fmt.Sprintf("CreateSandbox #%d %s", a.Attempt, strings.Join(old, ",")))
	case StartContainer:
		return fmt.Sprintf("StartContainer %s #%d step %d in %s", a.ContainerName, a.Attempt, a.Step, a.Sandbox.ID)
	case StopContainer, PreStop:
		return fmt.Sprintf("%s %s within %s", a.Verb, a.ContainerID, a.StopBy.Sub(now))
	case MountVolume, UpdateVolume:
		return string(a.Verb) + " " + a.Volume
	case Release:
		if a.Final {
			return "Release all"
		}
	}
	return strings.TrimSpace(fmt.Sprintf("%s %s%s", a.Verb, a.SandboxID, a.ContainerID))
}

// sayStatus is the gist of a status as text.
func sayStatus(st v1.PodStatus) string {
	var b strings.Builder
	b.WriteString(string(st.Phase))
	if st.Reason != "" {
		b.WriteString("(" + st.Reason + ")")
	}
	for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses) {
		fmt.Fprintf(&b, " %s#%d=%s", c.Name, c.RestartCount, sayState(c.State))
		if c.LastTerminationState.Terminated != nil {
			fmt.Fprintf(&b, "<%s", sayState(c.LastTerminationState))
		}
	}
	for _, t := range []v1.PodConditionType{v1.PodReadyToStartContainers, v1.PodInitialized, v1.ContainersReady, v1.PodReady} {
		for _, c := range st.Conditions {
			if c.Type == t && c.Status == v1.ConditionTrue {
				b.WriteString(" " + string(t))
			}
		}
	}
	return b.String()
}

func sayState(s v1.ContainerState) string {
	switch {
	case s.Running != nil:
		return "running"
	case s.Terminated != nil:
		return fmt.Sprintf("%s(%d)", s.Terminated.Reason, s.Terminated.ExitCode)
	case s.Waiting != nil:
		return s.Waiting.Reason
	}
	return "?"
}

func ends(v *Verdict) option { return func(in *Input) { in.Verdict = v } }

// waits is the status of a container that was never made.
func waits(name, why string) v1.ContainerStatus {
	return v1.ContainerStatus{Name: name, State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: why}}}
}
