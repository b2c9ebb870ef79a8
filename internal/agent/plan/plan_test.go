package plan

import (
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	always    = v1.RestartPolicyAlways
	onFailure = v1.RestartPolicyOnFailure
	never     = v1.RestartPolicyNever
)

func TestPlan(t *testing.T) {
	deadline := func(seconds int64) option {
		return func(in *Input) {
			in.Pod.Spec.ActiveDeadlineSeconds = &seconds
			in.Prior.StartTime = metaTime(ago(time.Minute))
		}
	}
	released := func(in *Input) { in.Facts.Set(Released, true) }
	removed := func(in *Input) { in.Facts.Set(Removed, true) }
	cases := []struct {
		name   string
		in     Input
		want   string
		status string
	}{
		// Coming up.
		{"a new pod gets a sandbox", given(), "CreateSandbox #0", "Pending a#0=ContainerCreating Initialized"},
		{"while the sandbox is made nothing else is done", given(ongoing(CreateSandbox, "")), "",
			"Pending a#0=ContainerCreating Initialized"},
		{"a failed sandbox is tried again after a while", given(failure(CreateSandbox, "", ReasonFailedSandbox, 0, 7)), "wake +3.2s",
			"Pending a#0=ContainerCreating Initialized"},
		{"and when that has passed", given(failure(CreateSandbox, "", ReasonFailedSandbox, 3200*time.Millisecond, 7)), "CreateSandbox #0", ""},
		{"containers start side by side", given(mains("a", "b"), sandbox("s", 0, true)),
			"StartContainer a #0 step 0 in s; StartContainer b #0 step 0 in s",
			"Pending a#0=ContainerCreating b#0=ContainerCreating PodReadyToStartContainers Initialized"},
		{"one that is starting is left alone", given(mains("a", "b"), sandbox("s", 0, true), ongoing(StartContainer, "a")),
			"StartContainer b #0 step 0 in s", ""},
		{"up", given(sandbox("s", 0, true), has("a", 0, "s", Running)), "",
			"Running a#0=running PodReadyToStartContainers Initialized ContainersReady Ready"},
		{"one of two up is still pending", given(mains("a", "b"), sandbox("s", 0, true), has("a", 0, "s", Running)),
			"StartContainer b #0 step 0 in s", "Pending a#0=running b#0=ContainerCreating PodReadyToStartContainers Initialized"},
		{"a container that was only created is made afresh", given(sandbox("s", 0, true), has("a", 0, "s", Created)), "RemoveContainer a0",
			"Pending a#0=ContainerCreating PodReadyToStartContainers Initialized"},
		{"unless it is being started", given(sandbox("s", 0, true), has("a", 0, "s", Created), ongoing(StartContainer, "a")), "", ""},

		// Init containers.
		{"the first init container comes first", given(inits("i", "j"), sandbox("s", 0, true)), "StartContainer i #0 step 0 in s",
			"Pending i#0=PodInitializing j#0=PodInitializing a#0=PodInitializing PodReadyToStartContainers"},
		{"the second after it", given(inits("i", "j"), sandbox("s", 0, true), has("i", 0, "s", Exited)), "StartContainer j #0 step 0 in s",
			"Pending i#0=Completed(0) j#0=PodInitializing a#0=PodInitializing PodReadyToStartContainers"},
		{"a running one is waited for", given(inits("i"), sandbox("s", 0, true), has("i", 0, "s", Running)), "",
			"Pending i#0=running a#0=PodInitializing PodReadyToStartContainers"},
		{"then the others", given(inits("i"), sandbox("s", 0, true), has("i", 0, "s", Exited)), "StartContainer a #0 step 0 in s",
			"Pending i#0=Completed(0) a#0=PodInitializing PodReadyToStartContainers Initialized"},
		{"a failed one is run again", given(inits("i"), sandbox("s", 0, true), has("i", 0, "s", Exited, code(1))),
			"StartContainer i #1 step 1 in s", "Pending i#0=Error(1) a#0=PodInitializing PodReadyToStartContainers"},
		{"with back-off", given(inits("i"), sandbox("s", 0, true), has("i", 1, "s", Exited, code(1), step(1))), "wake +9s",
			"Pending i#1=CrashLoopBackOff<Error(1) a#0=PodInitializing PodReadyToStartContainers"},
		{"and fails the pod where nothing is restarted", given(policy(never), inits("i"), sandbox("s", 0, true), has("i", 0, "s", Exited, code(1))),
			"Release; StopSandbox s", "Failed i#0=Error(1) a#0=PodInitializing PodReadyToStartContainers"},
		{"a removed init container does not run again beside its pod", given(inits("i"), sandbox("s", 0, true), has("a", 0, "s", Running)), "",
			"Running i#0=PodInitializing a#0=running PodReadyToStartContainers Initialized ContainersReady Ready"},
		{"in a new sandbox they run again", given(inits("i"), sandbox("s", 0, false), sandbox("t", 1, true), has("i", 0, "s", Exited), has("a", 0, "s", Exited)),
			"StartContainer i #1 step 0 in t", ""},

		// Restarts.
		{"the first restart is immediate", given(sandbox("s", 0, true), has("a", 0, "s", Exited, code(1))), "StartContainer a #1 step 1 in s",
			"Running a#0=Error(1) PodReadyToStartContainers Initialized"},
		{"the second waits 10 s", given(sandbox("s", 0, true), has("a", 1, "s", Exited, code(1), step(1))), "wake +9s",
			"Running a#1=CrashLoopBackOff<Error(1) PodReadyToStartContainers Initialized"},
		{"the third 20 s", given(sandbox("s", 0, true), has("a", 2, "s", Exited, step(2))), "wake +19s",
			"Running a#2=CrashLoopBackOff<Completed(0) PodReadyToStartContainers Initialized"},
		{"and the waits end at 300 s", given(sandbox("s", 0, true), has("a", 40, "s", Exited, step(40))), "wake +4m59s", ""},
		{"when the wait is over it starts", given(sandbox("s", 0, true), has("a", 2, "s", Exited, step(2), ran(time.Minute, 20*time.Second))),
			"StartContainer a #3 step 3 in s", ""},
		{"ten minutes of running make good", given(sandbox("s", 0, true), has("a", 9, "s", Exited, step(9), ran(11*time.Minute, time.Second))),
			"StartContainer a #10 step 1 in s", "Running a#9=Completed(0) PodReadyToStartContainers Initialized"},
		{"success ends it on failure", given(policy(onFailure), sandbox("s", 0, true), has("a", 0, "s", Exited)), "Release; StopSandbox s",
			"Succeeded a#0=Completed(0) PodReadyToStartContainers Initialized"},
		{"failure does not", given(policy(onFailure), sandbox("s", 0, true), has("a", 0, "s", Exited, code(3))), "StartContainer a #1 step 1 in s", ""},
		{"one that is done waits for the others", given(policy(never), mains("a", "b"), sandbox("s", 0, true), has("a", 0, "s", Exited, code(1)), has("b", 0, "s", Running)),
			"", "Running a#0=Error(1) b#0=running PodReadyToStartContainers Initialized"},
		{"one failure fails the pod", given(policy(never), mains("a", "b"), sandbox("s", 0, true), has("a", 0, "s", Exited, code(1)), has("b", 0, "s", Exited)),
			"Release; StopSandbox s", "Failed a#0=Error(1) b#0=Completed(0) PodReadyToStartContainers Initialized"},
		{"a running one keeps its last death", given(sandbox("s", 0, true), has("a", 0, "s", Exited, code(7)), has("a", 1, "s", Running)), "",
			"Running a#1=running<Error(7) PodReadyToStartContainers Initialized ContainersReady Ready"},
		{"older deaths are removed", given(sandbox("s", 0, true), has("a", 0, "s", Exited), has("a", 1, "s", Exited), has("a", 2, "s", Running)),
			"RemoveContainer a0", ""},
		{"an edited image restarts its container", given(sandbox("s", 0, true), hash("a", "new"), has("a", 0, "s", Running, hashed("old"))),
			"StopContainer a0 within 30s", ""},
		{"one of unknown state is stopped", given(sandbox("s", 0, true), has("a", 0, "s", Unknown)), "StopContainer a0 within 0s",
			"Running a#0=ContainerStatusUnknown PodReadyToStartContainers Initialized"},

		// Images.
		{"the error of a pull is shown", given(sandbox("s", 0, true), failure(StartContainer, "a", ReasonErrImagePull, time.Second, 1)), "wake +4s",
			"Pending a#0=ErrImagePull PodReadyToStartContainers Initialized"},
		{"then the waiting", given(sandbox("s", 0, true), failure(StartContainer, "a", ReasonErrImagePull, 6*time.Second, 1)), "wake +4s",
			"Pending a#0=ImagePullBackOff PodReadyToStartContainers Initialized"},
		{"which doubles", given(sandbox("s", 0, true), failure(StartContainer, "a", ReasonErrImagePull, 0, 4)), "wake +5s", ""},
		{"up to its limit", given(sandbox("s", 0, true), failure(StartContainer, "a", ReasonErrImagePull, time.Minute, 40)), "wake +4m0s", ""},
		{"then it is tried again", given(sandbox("s", 0, true), failure(StartContainer, "a", ReasonErrImagePull, 10*time.Second, 1)),
			"StartContainer a #0 step 0 in s", ""},
		{"an image that must not be pulled", given(sandbox("s", 0, true), failure(StartContainer, "a", ReasonErrImageNeverPull, 0, 1)), "wake +1s",
			"Pending a#0=ErrImageNeverPull PodReadyToStartContainers Initialized"},
		{"a failure to restart", given(sandbox("s", 0, true), has("a", 0, "s", Exited, code(1)), failure(StartContainer, "a", ReasonCreateConfigError, 0, 1)), "wake +50ms",
			"Running a#0=CreateContainerConfigError<Error(1) PodReadyToStartContainers Initialized"},

		// Devices.
		{"devices come first", given(wantsDevice(false)), "GrantDevices", "Pending a#0=ContainerCreating Initialized"},
		{"without them the pod is held", given(wantsDevice(false), failure(GrantDevices, "", ReasonDevicesNotReady, 0, 1)), "wake +30s",
			"Pending(DevicesNotReady) a#0=DevicesNotReady Initialized"},
		{"with them it starts", given(wantsDevice(true)), "CreateSandbox #0", ""},
		{"a restarted agent asks again before it starts anything", given(wantsDevice(false), sandbox("s", 0, true)), "GrantDevices", ""},
		{"and leaves what runs alone", given(wantsDevice(false), sandbox("s", 0, true), has("a", 0, "s", Running), failure(GrantDevices, "", ReasonDevicesNotReady, 0, 1)),
			"wake +30s", "Running a#0=running PodReadyToStartContainers Initialized ContainersReady Ready"},

		// Sandboxes.
		{"a dead sandbox is replaced", given(sandbox("s", 0, false), has("a", 0, "s", Exited, code(255))), "CreateSandbox #1 s",
			"Running a#0=Error(255) Initialized"},
		{"what runs in it is stopped first", given(sandbox("s", 0, false), has("a", 0, "s", Running)), "StopContainer a0 within 30s", ""},
		{"the container follows", given(sandbox("s", 0, false), sandbox("t", 1, true), has("a", 0, "s", Exited)), "StartContainer a #1 step 1 in t", ""},
		{"an old sandbox goes when it holds nothing that is kept", given(sandbox("s", 0, false), sandbox("t", 1, true), has("a", 0, "t", Running)),
			"RemoveSandbox s", ""},
		{"and stays for the log of the last death", given(sandbox("s", 0, false), sandbox("t", 1, true), has("a", 0, "s", Exited), has("a", 1, "t", Running)), "", ""},
		{"of two sandboxes the older is stopped", given(sandbox("s", 0, true), sandbox("t", 1, true), has("a", 0, "t", Running)), "StopSandbox s", ""},
		{"a pod that is done gets no new sandbox", given(policy(never), sandbox("s", 0, false), has("a", 0, "s", Exited, code(1))), "Release",
			"Failed a#0=Error(1) Initialized"},

		// Volumes.
		{"volumes are made side by side, before the sandbox", given(volumes("v", "w")), "MountVolume v; MountVolume w", "Pending a#0=ContainerCreating Initialized"},
		{"one that takes long holds no other", given(volumes("v", "w"), ongoing(MountVolume, "v")), "MountVolume w", ""},
		{"what is there stays, whatever becomes of others", given(mounted("v"), volumes("w", "x"), failure(MountVolume, "w", ReasonFailedVolumes, 0, 3)), "MountVolume x; wake +200ms", ""},
		{"the sandbox comes when all are there", given(mounted("v", "w")), "CreateSandbox #0", ""},
		{"which a running pod's are", given(volumes("v"), sandbox("s", 0, true), has("a", 0, "s", Running)), "", ""},
		{"an end waits for none", given(volumes("v"), ongoing(MountVolume, "v"), deleted(time.Second)), "cancel MountVolume v", ""},
		{"volumes follow what they show", given(mounted("v", "w"), stale("w"), sandbox("s", 0, true), has("a", 0, "s", Running)), "UpdateVolume w", ""},
		{"one after the other", given(mounted("v"), stale("v"), sandbox("s", 0, true), has("a", 0, "s", Running), ongoing(UpdateVolume, "v")), "", ""},
		{"not before they are there", given(mounted("v"), stale("v")), "CreateSandbox #0", ""},
		{"not while they are being made", given(mounted("v"), stale("v"), sandbox("s", 0, true), ongoing(CreateSandbox, ""), has("a", 0, "s", Running)), "", ""},
		{"nor are they made while they are being changed", given(volumes("v", "w"), sandbox("s", 0, false), has("a", 0, "s", Exited), ongoing(UpdateVolume, "v")), "MountVolume w", ""},
		{"an end does not wait for them", given(mounted("v"), stale("v"), sandbox("s", 0, true), ongoing(UpdateVolume, "v"), deleted(time.Second)), "cancel UpdateVolume v", ""},

		// What the runtime has forgotten.
		{"a lost container is restarted, its end unknown", given(sandbox("s", 0, true), prior(v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{was("a", 2, wasRunning())}})),
			"StartContainer a #3 step 1 in s", "Running a#2=ContainerStatusUnknown(255) PodReadyToStartContainers Initialized"},
		{"or fails its pod", given(policy(never), prior(v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{was("a", 0, wasRunning())}})),
			"Release", "Failed a#0=ContainerStatusUnknown(255) Initialized"},
		{"a known end is kept", given(policy(never), prior(v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{was("a", 0, wasTerminated(0))}})),
			"Release", "Succeeded a#0=Error(0) Initialized"},
		{"a waiting one never ran", given(policy(never), sandbox("s", 0, true), prior(v1.PodStatus{ContainerStatuses: []v1.ContainerStatus{{
			Name: "a", State: v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: "ContainerCreating"}}}}})),
			"StartContainer a #0 step 0 in s", "Pending a#0=ContainerCreating PodReadyToStartContainers Initialized"},

		// The end of a pod.
		{"a final phase is never taken back", given(sandbox("s", 0, true), has("a", 0, "s", Running), prior(v1.PodStatus{Phase: v1.PodFailed, Reason: "Evicted"})),
			"StopContainer a0 within 30s", "Failed(Evicted) a#0=running PodReadyToStartContainers Initialized"},
		{"the deadline wakes", given(sandbox("s", 0, true), has("a", 0, "s", Running), deadline(90)), "wake +30s", ""},
		{"and stops", given(sandbox("s", 0, true), has("a", 0, "s", Running), deadline(50)), "StopContainer a0 within 20s",
			"Running(DeadlineExceeded) a#0=running PodReadyToStartContainers Initialized ContainersReady Ready"},
		{"and fails the pod", given(sandbox("s", 0, true), has("a", 0, "s", Exited, code(137)), deadline(50)), "Release; StopSandbox s",
			"Failed(DeadlineExceeded) a#0=Error(137) PodReadyToStartContainers Initialized"},
		{"a pull is cancelled by the deadline", given(sandbox("s", 0, true), ongoing(StartContainer, "a"), deadline(50)), "cancel StartContainer a", ""},
		{"what is never to have its devices fails at once", given(wantsDevice(false), ends(Rejected("UnexpectedAdmissionError", "too old"))), "Release",
			"Failed(UnexpectedAdmissionError) Initialized"},
		{"so does what another pod has", given(ends(Rejected("NodePorts", "taken"))), "Release",
			"Failed(NodePorts) Initialized"},
		{"what it waited for is no longer told", given(ends(Rejected("DevicesNotReady", "too long")), inits("i"), prior(v1.PodStatus{
			InitContainerStatuses: []v1.ContainerStatus{waits("i", "PodInitializing")}, ContainerStatuses: []v1.ContainerStatus{waits("a", "DevicesNotReady")}})), "Release",
			"Failed(DevicesNotReady)"},
		{"nor of a pod that had failed so before", given(prior(v1.PodStatus{Phase: v1.PodFailed, Reason: "NodePorts", ContainerStatuses: []v1.ContainerStatus{waits("a", "ContainerCreating")}})),
			"Release", "Failed(NodePorts) Initialized"},
		{"a deadline before anything ran", given(sandbox("s", 0, true), failure(StartContainer, "a", ReasonErrImagePull, 0, 1), deadline(50)), "Release; StopSandbox s",
			"Failed(DeadlineExceeded) PodReadyToStartContainers Initialized"},
		{"a container that ran is told", given(inits("i"), sandbox("s", 0, true), has("i", 0, "s", Exited, code(1)), deadline(50)), "Release; StopSandbox s",
			"Failed(DeadlineExceeded) i#0=Error(1) a#0=PodInitializing PodReadyToStartContainers"},
		{"after that nothing is done", given(policy(never), sandbox("s", 0, false), has("a", 0, "s", Exited), released), "", ""},

		// Deletion.
		{"containers are stopped with what is left of the grace", given(sandbox("s", 0, true), has("a", 0, "s", Running), deleted(7*time.Second)),
			"StopContainer a0 within 7s", "Running a#0=running PodReadyToStartContainers Initialized ContainersReady Ready"},
		{"one stop is enough", given(sandbox("s", 0, true), has("a", 0, "s", Running), deleted(7*time.Second), stopping("a0", 7*time.Second)), "", ""},
		{"a shorter grace overtakes", given(sandbox("s", 0, true), has("a", 0, "s", Running), deleted(time.Second), stopping("a0", 7*time.Second)),
			"StopContainer a0 within 1s", ""},
		{"a pull is cancelled", given(sandbox("s", 0, true), ongoing(StartContainer, "a"), deleted(30*time.Second)), "cancel StartContainer a", ""},
		{"and a sandbox, and a wait for devices", given(ongoing(CreateSandbox, ""), ongoing(GrantDevices, ""), deleted(30*time.Second)),
			"cancel CreateSandbox; cancel GrantDevices", ""},
		{"a crash loop does not go on", given(sandbox("s", 0, true), has("a", 3, "s", Exited, code(1), step(3)), deleted(30*time.Second)),
			"RemoveSandbox s", "Failed a#3=Error(1) PodReadyToStartContainers Initialized"},
		{"its end is told", given(sandbox("s", 0, true), has("a", 0, "s", Exited), deleted(30*time.Second)), "RemoveSandbox s",
			"Succeeded a#0=Completed(0) PodReadyToStartContainers Initialized"},
		{"a pod that never ran has failed", given(sandbox("s", 0, true), deleted(30*time.Second)), "RemoveSandbox s",
			"Failed a#0=ContainerStatusUnknown(137) PodReadyToStartContainers Initialized"},
		{"a container whose sandbox is lost goes by itself", given(has("a", 0, "x", Exited), deleted(time.Second)), "RemoveContainer a0", ""},
		{"then all is given back", given(deleted(time.Second)), "Release all", ""},
		{"and the logs, when that was done at its end", given(deleted(time.Second), released), "Release all", ""},
		{"then the object goes", given(deleted(time.Second), removed), "DeleteObject", ""},
		{"once", given(deleted(time.Second), removed, func(in *Input) { in.Facts.Set(Deleted, true) }), "", ""},
		{"a finished pod is deleted the same way", given(policy(never), sandbox("s", 0, false), has("a", 0, "s", Exited), deleted(30*time.Second),
			prior(v1.PodStatus{Phase: v1.PodSucceeded})), "RemoveSandbox s", ""},

		// Gone from the API server.
		{"an orphan is stopped", given(sandbox("s", 0, true), has("a", 0, "s", Running), gone), "StopContainer a0 within 1s", ""},
		{"removed", given(sandbox("s", 0, true), has("a", 0, "s", Exited), gone), "RemoveSandbox s", ""},
		{"cleaned up", given(gone), "Release all", ""},
		{"and forgotten", given(gone, removed), "done", ""},
		{"when nothing is under way", given(gone, removed, ongoing(DeleteObject, "")), "", ""},
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

// TestPlanIsStable: a decision that is repeated with its actions under way asks for nothing more.
func TestPlanIsStable(t *testing.T) {
	in := given(mains("a", "b"), sandbox("s", 0, true), has("a", 0, "s", Exited), has("b", 0, "s", Unknown))
	res := Plan(in)
	if len(res.Actions) != 2 {
		t.Fatalf("plan: %s", said(res))
	}
	for _, a := range res.Actions {
		in.Ongoing[a.Key()] = Ongoing{StopBy: a.StopBy}
	}
	if again := said(Plan(in)); again != "" {
		t.Errorf("asked again for %s", again)
	}
}
