package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/kit/ids"
)

// spec changes a container of the specification.
func spec(name string, change func(*v1.Container)) option {
	return func(in *Input) {
		for _, list := range [][]v1.Container{in.Pod.Spec.InitContainers, in.Pod.Spec.Containers} {
			for i := range list {
				if list[i].Name == name {
					change(&list[i])
				}
			}
		}
	}
}

func sidecars(names ...string) option {
	return func(in *Input) {
		restart := v1.ContainerRestartPolicyAlways
		for _, n := range names {
			in.Pod.Spec.InitContainers = append(in.Pod.Spec.InitContainers, v1.Container{Name: n, Image: "img", RestartPolicy: &restart})
		}
	}
}

func ephemeral(name string) option {
	return func(in *Input) {
		in.Pod.Spec.EphemeralContainers = append(in.Pod.Spec.EphemeralContainers, v1.EphemeralContainer{EphemeralContainerCommon: v1.EphemeralContainerCommon{Name: name}})
	}
}

var hook = &v1.LifecycleHandler{Exec: &v1.ExecAction{Command: []string{"true"}}}

func preStop(name string) option {
	return spec(name, func(c *v1.Container) { c.Lifecycle = &v1.Lifecycle{PreStop: hook} })
}

func postStart(name string) option {
	return spec(name, func(c *v1.Container) { c.Lifecycle = &v1.Lifecycle{PostStart: hook} })
}

func probe(name string, startup, readiness bool) option {
	return spec(name, func(c *v1.Container) {
		if startup {
			c.StartupProbe = &v1.Probe{}
		}
		if readiness {
			c.ReadinessProbe = &v1.Probe{}
		}
	})
}

func probed(id ids.ContainerID, p Probed) option {
	return func(in *Input) {
		if in.Probed == nil {
			in.Probed = map[ids.ContainerID]Probed{}
		}
		in.Probed[id] = p
	}
}

func ownPolicy(name string, p v1.ContainerRestartPolicy, rules ...v1.ContainerRestartRule) option {
	return spec(name, func(c *v1.Container) { c.RestartPolicy, c.RestartPolicyRules = &p, rules })
}

func on(action v1.ContainerRestartRuleAction, codes ...int32) v1.ContainerRestartRule {
	return v1.ContainerRestartRule{Action: action, ExitCodes: &v1.ContainerRestartRuleOnExitCodes{Operator: v1.ContainerRestartRuleOnExitCodesOpIn, Values: codes}}
}

func made(before time.Duration) func(*Container) {
	return func(c *Container) { c.CreatedAt = ago(before) }
}

func preStopping(id ids.ContainerID, left time.Duration) option {
	return func(in *Input) {
		in.Ongoing[Key{Verb: PreStop, ContainerID: id}] = Ongoing{StopBy: now.Add(left)}
		in.Facts[Fact{What: Stopping, ContainerID: id}] = now.Add(left)
	}
}

func TestLifecycle(t *testing.T) {
	up := func(more ...option) Input { return given(append([]option{sandbox("s", 0, true)}, more...)...) }
	grace := 5 * time.Second
	const (
		restart    = v1.ContainerRestartRuleActionRestart
		restartAll = v1.ContainerRestartRuleActionRestartAllContainers
	)
	cases := []struct {
		name   string
		in     Input
		want   string
		status string
	}{
		{"what keeps a volume from being made is told", given(volumes("v"), failure(MountVolume, "v", ReasonFailedVolumes, 0, 1)),
			"wake +50ms", "Pending a#0=ContainerCreating Initialized"},

		// Sidecars.
		{"a sidecar starts in its turn", up(inits("i"), sidecars("s1"), inits("j")), "StartContainer i #0 step 0 in s", ""},
		{"and those after it when it has", up(inits("i"), sidecars("s1"), inits("j"), has("i", 0, "s", Exited), has("s1", 0, "s", Running)), "StartContainer j #0 step 0 in s",
			"Pending i#0=Completed(0) s1#0=running j#0=PodInitializing a#0=PodInitializing PodReadyToStartContainers"},
		{"which its startup probe says", up(sidecars("s1"), probe("s1", true, false), has("s1", 0, "s", Running)), "",
			"Pending s1#0=running a#0=PodInitializing PodReadyToStartContainers"},
		{"not its readiness", up(sidecars("s1"), probe("s1", true, true), has("s1", 0, "s", Running), probed("s10", Probed{Started: Yes, Ready: No})),
			"StartContainer a #0 step 0 in s", "Pending s1#0=running a#0=PodInitializing PodReadyToStartContainers Initialized"},
		{"it is started again while others initialise", up(sidecars("s1"), inits("j"), has("s1", 0, "s", Exited), has("j", 0, "s", Running)), "StartContainer s1 #1 step 1 in s", ""},
		{"and later, whatever the pod's policy", up(policy(never), sidecars("s1"), has("s1", 0, "s", Exited), has("a", 0, "s", Running)), "StartContainer s1 #1 step 1 in s",
			"Running s1#0=Completed(0) a#0=running PodReadyToStartContainers Initialized"},
		{"with back-off", up(policy(never), sidecars("s1"), has("s1", 1, "s", Exited, step(1)), has("a", 0, "s", Running)), "wake +9s", ""},
		{"it does not keep a pod from its end", up(policy(never), sidecars("s1"), has("s1", 0, "s", Running), has("a", 0, "s", Exited)), "StopContainer s10 within 30s",
			"Running s1#0=running a#0=Completed(0) PodReadyToStartContainers Initialized"},
		{"which is as its app containers say", up(policy(never), sidecars("s1"), has("s1", 0, "s", Exited, code(137)), has("a", 0, "s", Exited)), "Release; StopSandbox s",
			"Succeeded s1#0=Error(137) a#0=Completed(0) PodReadyToStartContainers Initialized"},
		{"sidecars are stopped after the others", up(sidecars("s1", "s2"), has("s1", 0, "s", Running), has("s2", 0, "s", Running), has("a", 0, "s", Running), deleted(20*time.Second)),
			"StopContainer a0 within 20s; wake +20s", ""},
		{"the last one first", up(sidecars("s1", "s2"), has("s1", 0, "s", Running), has("s2", 0, "s", Running), has("a", 0, "s", Exited), deleted(20*time.Second)),
			"StopContainer s20 within 20s; wake +20s", ""},
		{"and all of them when the time is over", up(sidecars("s1", "s2"), has("s1", 0, "s", Running), has("s2", 0, "s", Running), has("a", 0, "s", Running), deleted(0)),
			"StopContainer a0 within 0s; StopContainer s10 within 2s; StopContainer s20 within 2s", ""},

		// Ephemeral containers.
		{"an ephemeral container runs beside the others", up(ephemeral("e"), has("a", 0, "s", Running)), "StartContainer e #0 step 0 in s",
			"Running a#0=running e#0=ContainerCreating PodReadyToStartContainers Initialized ContainersReady Ready"},
		{"beside init containers too", up(inits("i"), ephemeral("e"), has("i", 0, "s", Running)), "StartContainer e #0 step 0 in s", ""},
		{"it is not started again", up(ephemeral("e"), has("e", 0, "s", Exited, code(1)), has("a", 0, "s", Running)), "",
			"Running a#0=running e#0=Error(1) PodReadyToStartContainers Initialized ContainersReady Ready"},
		{"and does not keep a pod from its end", up(policy(never), ephemeral("e"), has("e", 0, "s", Running), has("a", 0, "s", Exited)), "StopContainer e0 within 30s", ""},

		// Policies of containers.
		{"a container's own policy", up(policy(never), ownPolicy("a", v1.ContainerRestartPolicyOnFailure), has("a", 0, "s", Exited, code(1))), "StartContainer a #1 step 1 in s", ""},
		{"that ends it", up(mains("a", "b"), ownPolicy("a", v1.ContainerRestartPolicyNever), has("a", 0, "s", Exited, code(1)), has("b", 0, "s", Running)), "",
			"Running a#0=Error(1) b#0=running PodReadyToStartContainers Initialized"},
		{"a rule comes before it", up(ownPolicy("a", v1.ContainerRestartPolicyNever, on(restart, 42)), has("a", 0, "s", Exited, code(42))), "StartContainer a #1 step 1 in s", ""},
		{"for its codes", up(ownPolicy("a", v1.ContainerRestartPolicyNever, on(restart, 42)), has("a", 0, "s", Exited, code(41))), "Release; StopSandbox s", ""},
		{"all are stopped when a rule says so", up(mains("a", "b"), inits("i"), ownPolicy("a", v1.ContainerRestartPolicyNever, on(restartAll, 42)),
			has("i", 0, "s", Exited), has("a", 0, "s", Exited, code(42)), has("b", 0, "s", Running)), "StopContainer b0 within 30s", ""},
		{"and begin anew", up(mains("a", "b"), inits("i"), ownPolicy("a", v1.ContainerRestartPolicyNever, on(restartAll, 42)),
			has("i", 0, "s", Exited), has("a", 0, "s", Exited, code(42)), has("b", 0, "s", Exited, code(143))), "StartContainer i #1 step 0 in s", ""},
		{"each once", up(mains("a", "b"), inits("i"), ownPolicy("a", v1.ContainerRestartPolicyNever, on(restartAll, 42)),
			has("i", 0, "s", Exited), has("i", 1, "s", Exited, made(time.Millisecond)), has("a", 0, "s", Exited, code(42)), has("b", 0, "s", Exited, code(143))),
			"RemoveContainer i0; StartContainer a #1 step 1 in s; StartContainer b #1 step 0 in s", ""},
		{"until it happens again", up(mains("a", "b"), ownPolicy("a", v1.ContainerRestartPolicyNever, on(restartAll, 42)),
			has("a", 0, "s", Exited, code(42)), has("a", 1, "s", Running, made(time.Millisecond)), has("b", 1, "s", Running, made(time.Millisecond))), "",
			"Running a#1=running<Error(42) b#1=running PodReadyToStartContainers Initialized ContainersReady Ready"},

		// Another specification.
		{"a changed image does not wait for the old one's back-off", up(hash("a", "new"), has("a", 3, "s", Exited, code(1), step(3), hashed("old"))), "StartContainer a #4 step 1 in s", ""},
		{"and does not end a pod that restarts nothing", up(policy(never), hash("a", "new"), has("a", 0, "s", Exited, code(143), hashed("old")), fact(Stopping, "a0", 0)),
			"StartContainer a #1 step 1 in s", ""},
		{"unless it had ended before", up(policy(never), hash("a", "new"), has("a", 0, "s", Exited, code(3), hashed("old"))), "Release; StopSandbox s", ""},

		// postStart.
		{"a hook runs after the start", up(postStart("a"), has("a", 0, "s", Running)), "PostStart a0", "Pending a#0=ContainerCreating PodReadyToStartContainers Initialized"},
		{"those after it wait", up(mains("a", "b"), postStart("a")), "StartContainer a #0 step 0 in s", ""},
		{"until it is done", up(mains("a", "b"), postStart("a"), has("a", 0, "s", Running), ongoing(PostStart, "a0")), "", ""},
		{"then it is running", up(mains("a", "b"), postStart("a"), has("a", 0, "s", Running), fact(PostStarted, "a0", 0)), "StartContainer b #0 step 0 in s",
			"Pending a#0=running b#0=ContainerCreating PodReadyToStartContainers Initialized"},
		{"what was told as running has had it", up(postStart("a"), has("a", 0, "s", Running), prior(v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{was("a", 0, wasRunning())}})), "",
			"Running a#0=running PodReadyToStartContainers Initialized ContainersReady Ready"},
		{"a failed hook ends its container", up(postStart("a"), has("a", 0, "s", Running), failure(PostStart, "a0", ReasonPostStartFailed, time.Minute, 1)), "StopContainer a0 within 30s", ""},

		// preStop.
		{"a hook runs before the stop", up(preStop("a"), has("a", 0, "s", Running), deleted(20*time.Second)), "PreStop a0 within 20s; wake +20s", ""},
		{"which waits for it", up(preStop("a"), has("a", 0, "s", Running), deleted(20*time.Second), preStopping("a0", 20*time.Second)), "wake +20s", ""},
		{"and comes with what is left", up(preStop("a"), has("a", 0, "s", Running), deleted(15*time.Second), fact(PreStopped, "a0", 0)), "StopContainer a0 within 15s", ""},
		{"a shorter time overtakes and runs it once", up(preStop("a"), has("a", 0, "s", Running), deleted(5*time.Second), preStopping("a0", 20*time.Second)), "wake +5s", ""},
		{"when the time is over it is cut", up(preStop("a"), has("a", 0, "s", Running), deleted(0), preStopping("a0", 0)), "StopContainer a0 within 2s; cancel PreStop a0", ""},
		{"one that ran to the end of it leaves two seconds", up(preStop("a"), has("a", 0, "s", Running), deleted(time.Second), fact(PreStopped, "a0", 0)), "StopContainer a0 within 2s", ""},
		{"hooks of sidecars do not wait for their turn", up(sidecars("s1"), preStop("s1"), has("s1", 0, "s", Running), has("a", 0, "s", Running), deleted(20*time.Second)),
			"PreStop s10 within 20s; StopContainer a0 within 20s; wake +20s", ""},

		// Probes.
		{"a container is ready when its probe says so", up(probe("a", false, true), has("a", 0, "s", Running), probed("a0", Probed{Ready: Yes})), "",
			"Running a#0=running PodReadyToStartContainers Initialized ContainersReady Ready"},
		{"not before", up(probe("a", false, true), has("a", 0, "s", Running)), "", "Running a#0=running PodReadyToStartContainers Initialized"},
		{"unless it was before the agent's start", up(probe("a", false, true), has("a", 0, "s", Running),
			prior(v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{func() v1.ContainerStatus { st := was("a", 0, wasRunning()); st.Ready = true; return st }()}})), "",
			"Running a#0=running PodReadyToStartContainers Initialized ContainersReady Ready"},
		{"and as long as it starts up it is not", up(probe("a", true, true), has("a", 0, "s", Running), probed("a0", Probed{Ready: Yes, Started: No})), "",
			"Running a#0=running PodReadyToStartContainers Initialized"},
		{"one whose probe has failed is stopped", up(has("a", 0, "s", Running), probed("a0", Probed{Failed: true})), "StopContainer a0 within 30s", ""},
		{"in the probe's own time", up(has("a", 0, "s", Running), probed("a0", Probed{Failed: true, Grace: &grace})), "StopContainer a0 within 5s", ""},
		{"and goes on being stopped", up(has("a", 0, "s", Running), fact(Stopping, "a0", -3*time.Second)), "StopContainer a0 within 3s", ""},

		// Verdicts.
		{"an eviction has a grace of its own", up(has("a", 0, "s", Running), ends(&Verdict{Phase: v1.PodFailed, Reason: "Evicted", Grace: &grace})), "StopContainer a0 within 5s",
			"Running(Evicted) a#0=running PodReadyToStartContainers Initialized ContainersReady Ready"},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			if got := said(Plan(c.in)); got != c.want {
				t.Errorf("plan\n  %s, want\n  %s", got, c.want)
			}
			if got := sayStatus(Status(c.in)); c.status != "" && got != c.status {
				t.Errorf("status\n  %s, want\n  %s", got, c.status)
			}
		})
	}
}
