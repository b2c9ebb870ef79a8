package plan

import (
	"slices"
	"strings"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/pods"
	"monopod.dev/monopod/internal/pods/allocated"
)

// Status tells what the pod's status is. Conditions that this agent does not own, and fields that others write, are those
// of in.Prior.
func Status(in Input) v1.PodStatus {
	a := assess(&in)
	st := *in.Prior.DeepCopy()
	st.ObservedGeneration = in.Pod.Generation
	st.StartTime = &metav1.Time{Time: a.startTime}
	if len(in.HostIPs) > 0 {
		st.HostIP, st.HostIPs = in.HostIPs[0], nil
		for _, ip := range in.HostIPs {
			st.HostIPs = append(st.HostIPs, v1.HostIP{IP: ip})
		}
	}
	podIPs(&in, &a, &st)
	st.InitContainerStatuses = statuses(&in, &a, a.init)
	st.ContainerStatuses = statuses(&in, &a, a.main)
	st.EphemeralContainerStatuses = statuses(&in, &a, a.ephemeral)
	phase(&in, &a, &st)
	if in.terminating() && final(st.Phase) {
		settle(&in, &a, &st)
	}
	conditions(&in, &a, &st)
	if st.Phase == v1.PodFailed && a.neverRan() && (!in.terminating() || a.verdict != nil && a.verdict.told && len(in.Prior.ContainerStatuses) == 0) {
		// As of a pod that a kubelet rejects: containers that would be told to wait are taken by programs, kubectl among them, for why the pod is as it is.
		st.InitContainerStatuses, st.ContainerStatuses, st.EphemeralContainerStatuses = nil, nil, nil
	}
	return st
}

// neverRan says that nothing is known of any container of the pod.
func (a *assessment) neverRan() bool {
	made := func(f fate) bool { return f.last != nil }
	return !slices.ContainsFunc(a.init, made) && !slices.ContainsFunc(a.main, made) && !slices.ContainsFunc(a.ephemeral, made)
}

func statuses(in *Input, a *assessment, of []fate) (all []v1.ContainerStatus) {
	for i := range of {
		all = append(all, containerStatus(in, a, &of[i]))
	}
	return all
}

// podIPs sets the addresses. A pod keeps showing the last ones when its sandbox is gone, as long as it may come back.
func podIPs(in *Input, a *assessment, st *v1.PodStatus) {
	if a.sandbox == nil {
		return
	}
	ips := a.sandbox.IPs
	if in.Pod.Spec.HostNetwork {
		ips = in.HostIPs
	}
	if len(ips) == 0 {
		return
	}
	st.PodIP, st.PodIPs = ips[0], nil
	for _, ip := range ips {
		st.PodIPs = append(st.PodIPs, v1.PodIP{IP: ip})
	}
}

// phase derives the phase, and the reason and message of a pod that waits as a whole or has failed as a whole.
func phase(in *Input, a *assessment, st *v1.PodStatus) {
	v := a.verdict
	if v != nil && v.told {
		return
	}
	st.Reason, st.Message = "", ""
	st.Phase = livePhase(in, a)
	if v != nil {
		st.Reason, st.Message = v.Reason, v.Message
		if v.Condition != nil {
			setCondition(in, st, *v.Condition)
		}
	} else if why := a.awaits(in); why != "" && (st.Phase == v1.PodPending || !in.Facts.Has(Granted)) {
		st.Reason, st.Message = ReasonDevicesNotReady, why
	} else if f, failed := in.beforeSandbox(); failed && a.sandbox == nil && !in.terminating() {
		st.Message = f.Message
	}
	if over := v != nil || in.terminating(); !over || in.Observed.anyAlive() || slices.ContainsFunc(keys(in.Ongoing), func(k Key) bool { return k.begins() }) {
		return
	}
	switch {
	case v != nil:
		st.Phase = v.Phase
	case allExitedZero(st):
		st.Phase = v1.PodSucceeded
	default:
		st.Phase = v1.PodFailed
	}
}

// beforeSandbox is why there is no sandbox yet, if something has failed: of volumes the first.
func (in *Input) beforeSandbox() (f Failure, failed bool) {
	for i := range in.Pod.Spec.Volumes {
		if f, failed = in.Failures[Key{Verb: MountVolume, Volume: in.Pod.Spec.Volumes[i].Name}]; failed {
			return f, true
		}
	}
	f, failed = in.Failures[Key{Verb: CreateSandbox}]
	return f, failed
}

// SaidRejected is how the message begins of a pod that a kubelet does not admit.
const SaidRejected = "Pod was rejected: "

// EndEvent is the event that tells why a pod has failed as a whole, as its status says. It is a kubelet's: a deadline is what was asked for, and no
// cause to warn; that it was a rejection the event says by its reason.
func EndEvent(st *v1.PodStatus) (kind, reason, message string) {
	kind = v1.EventTypeWarning
	if st.Reason == ReasonDeadlineExceeded {
		kind = v1.EventTypeNormal
	}
	return kind, st.Reason, strings.TrimPrefix(st.Message, SaidRejected)
}

func (a *assessment) anyDue() bool {
	isDue := func(f fate) bool { return f.state == due }
	return slices.ContainsFunc(a.init, isDue) || slices.ContainsFunc(a.main, isDue)
}

// final says of a phase that it is the last one.
func final(p v1.PodPhase) bool { return p == v1.PodSucceeded || p == v1.PodFailed }

// settle gives an end to each container of a deleted pod that is to have run and has none, as a kubelet does: whoever waits for the pod's end looks at all
// of them. Those that were never due, behind init containers that have not done their work, go on waiting. What the API knows as final is left as it is.
func settle(in *Input, a *assessment, st *v1.PodStatus) {
	end := func(cs *v1.ContainerStatus, f *fate) {
		switch {
		case cs.State.Terminated != nil:
		case f.prior != nil && f.prior.State.Terminated != nil:
			cs.State = f.prior.State
		case a.verdict != nil && a.verdict.told:
		default:
			cs.State = v1.ContainerState{Terminated: &v1.ContainerStateTerminated{
				Reason: ReasonStatusUnknown, Message: "The container could not be located when the pod was terminated", ExitCode: NotLocatedExitCode, ContainerID: cs.ContainerID,
				StartedAt: metav1.NewTime(in.Now), FinishedAt: metav1.NewTime(in.Now), // without times it would show the year 1
			}}
		}
	}
	begun := -1 // the last init container of which there is a sign that it ran
	for i := range st.InitContainerStatuses {
		if c := &st.InitContainerStatuses[i]; c.State.Waiting == nil || c.LastTerminationState.Terminated != nil {
			begun = i
		}
	}
	for i := range begun + 1 {
		end(&st.InitContainerStatuses[i], &a.init[i])
	}
	for i := range st.ContainerStatuses {
		if a.initialized || a.main[i].last != nil {
			end(&st.ContainerStatuses[i], &a.main[i])
		}
	}
}

func allExitedZero(st *v1.PodStatus) bool {
	return !slices.ContainsFunc(st.ContainerStatuses, func(c v1.ContainerStatus) bool {
		return c.State.Terminated == nil || c.State.Terminated.ExitCode != 0
	})
}

func keys(m map[Key]Ongoing) []Key {
	var ks []Key
	for k := range m {
		ks = append(ks, k)
	}
	return ks
}

// livePhase is Pending until each container has been started once, its postStart hook included.
func livePhase(in *Input, a *assessment) v1.PodPhase {
	if !a.initialized {
		return v1.PodPending
	}
	for i := range a.main {
		if c := a.main[i].last; c == nil || c.State == Created && a.main[i].attempt == 0 || c.State == Running && c.Attempt == 0 && in.postStartDue(&a.main[i]) {
			return v1.PodPending
		}
	}
	return v1.PodRunning
}

// containerStatus tells the status of one container.
func containerStatus(in *Input, a *assessment, f *fate) v1.ContainerStatus {
	cs := v1.ContainerStatus{Name: f.spec.Name, Image: f.spec.Image}
	if f.prior != nil {
		cs.RestartCount, cs.ImageID, cs.ContainerID = f.prior.RestartCount, f.prior.ImageID, f.prior.ContainerID
		cs.LastTerminationState = f.prior.LastTerminationState
		cs.User, cs.StopSignal = f.prior.User, f.prior.StopSignal
	}
	if l := f.last; l != nil {
		cs.RestartCount = max(cs.RestartCount, l.Attempt)
		cs.ContainerID = in.fullID(l.ID)
		if l.Image != "" {
			cs.Image = l.Image
		}
		if l.ImageRef != "" {
			cs.ImageID = l.ImageRef
		}
		if l.User != nil {
			cs.User = l.User
		}
		if l.StopSignal != "" {
			cs.StopSignal = &l.StopSignal
		}
		if f.dead != nil {
			cs.LastTerminationState = v1.ContainerState{Terminated: in.terminated(f.dead)}
		}
	}
	cs.AllocatedResourcesStatus = in.allocatedResources(a, f)
	cs.VolumeMounts = volumeMounts(f)
	if f.role != pods.Ephemeral { // they have none
		has := allocated.Of(in.Pod).Container(f.spec.Name)
		cs.Resources, cs.AllocatedResources = has.DeepCopy(), has.Requests.DeepCopy()
	}
	cs.State = in.containerState(a, f, &cs)
	started, ready := in.readiness(f)
	if in.hasToldOfItsEnd(f, &cs) {
		// It runs once more because its sandbox is new. By the API what it told is final.
		cs.State, started = f.prior.State, false
	}
	switch f.role {
	case pods.Ephemeral: // they have neither
		return cs
	case pods.Init:
		ready = f.state == succeeded || !started && cs.State.Terminated != nil && cs.State.Terminated.ExitCode == 0
	}
	cs.Ready, cs.Started = ready, &started
	return cs
}

// hasToldOfItsEnd says of an init container that runs again that the status has told of its end, and that the API takes no other state then.
func (in *Input) hasToldOfItsEnd(f *fate, cs *v1.ContainerStatus) bool {
	if f.role != pods.Init || f.prior == nil || f.prior.State.Terminated == nil || cs.State.Terminated != nil || pods.MayRestartAll(&in.Pod.Spec) {
		return false
	}
	code := f.prior.State.Terminated.ExitCode
	return in.Pod.Spec.RestartPolicy != v1.RestartPolicyAlways && (code == 0 || !pods.Restarts(&in.Pod.Spec, f.spec, code))
}

// volumeMounts tells how the container's volumes are mounted, and what those of images show.
func volumeMounts(f *fate) (all []v1.VolumeMountStatus) {
	for _, m := range f.spec.VolumeMounts {
		st := v1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			mode := v1.RecursiveReadOnlyDisabled
			if f.last != nil && slices.Contains(f.last.Recursive, pods.MountPath(&m)) {
				mode = v1.RecursiveReadOnlyEnabled
			}
			st.RecursiveReadOnly = &mode
		}
		if f.last != nil && f.last.VolumeImages[m.Name] != "" {
			st.VolumeStatus = &v1.VolumeStatus{Image: &v1.ImageVolumeStatus{ImageRef: f.last.VolumeImages[m.Name]}}
		}
		all = append(all, st)
	}
	return all
}

// containerState tells the state; where a dead container waits for its successor, its end moves to the last state.
func (in *Input) containerState(a *assessment, f *fate, cs *v1.ContainerStatus) v1.ContainerState {
	l := f.last
	if l != nil && l.State == Running && !in.postStartDue(f) {
		return v1.ContainerState{Running: &v1.ContainerStateRunning{StartedAt: metav1.NewTime(l.StartedAt)}}
	}
	if l != nil && l.State == Exited {
		reason, message := in.waitingAgain(a, f)
		if reason == "" {
			return v1.ContainerState{Terminated: in.terminated(l)}
		}
		cs.LastTerminationState = v1.ContainerState{Terminated: in.terminated(l)}
		return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}
	}
	reason, message := in.waitingFirst(a, f)
	return v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: reason, Message: message}}
}

// waitingAgain says why a dead container's successor is not there yet; empty: there will be none, or it is not due.
func (in *Input) waitingAgain(a *assessment, f *fate) (reason, message string) {
	if a.verdict != nil || in.terminating() || f.state != due {
		return "", ""
	}
	if !f.notBefore.IsZero() && in.Now.Before(f.notBefore) {
		return ReasonCrashLoopBackOff, crashLoopMessage(in, f)
	}
	if why := in.lacksDevices(a, f); why != "" {
		return ReasonDevicesNotReady, why
	}
	if fail, ok := in.Failures[Key{Verb: StartContainer, ContainerName: f.spec.Name}]; ok {
		return in.failed(f, fail)
	}
	if _, ok := in.Ongoing[Key{Verb: StartContainer, ContainerName: f.spec.Name}]; ok {
		return ReasonContainerCreating, ""
	}
	return "", ""
}

// waitingFirst says why a container has not been started.
func (in *Input) waitingFirst(a *assessment, f *fate) (reason, message string) {
	switch fail, failed := in.Failures[Key{Verb: StartContainer, ContainerName: f.spec.Name}]; {
	case f.last != nil && f.last.State == Unknown:
		return ReasonStatusUnknown, "the runtime cannot tell the state of the container; it will be stopped"
	case a.verdict == nil && in.lacksDevices(a, f) != "":
		return ReasonDevicesNotReady, in.lacksDevices(a, f)
	case failed && a.sandbox != nil:
		return in.failed(f, fail)
	case len(a.init) > 0: // as a kubelet says of all containers of such a pod
		return ReasonPodInitializing, ""
	default:
		return ReasonContainerCreating, ""
	}
}

func (in *Input) failed(f *fate, fail Failure) (reason, message string) {
	if fail.Pulls() && !fail.showsAttempt(in.Now) {
		return ReasonImagePullBackOff, BackOffPulling(fail.Image) + ": " + fail.Reason + ": " + fail.Message
	}
	return fail.Reason, fail.Message
}

// BackOffPulling is how a message begins that tells of the wait for another attempt.
func BackOffPulling(image string) string { return "Back-off pulling image " + quoted(image) }

func crashLoopMessage(in *Input, f *fate) string {
	return "back-off " + backoff(f.last.Step).String() + " restarting failed container=" + f.spec.Name +
		" pod=" + in.Pod.Name + "_" + in.Pod.Namespace + "(" + string(in.Pod.UID) + ")"
}

func quoted(s string) string { return `"` + s + `"` }

func (in *Input) terminated(c *Container) *v1.ContainerStateTerminated {
	t := &v1.ContainerStateTerminated{
		ExitCode: c.ExitCode, Reason: c.Reason, Message: c.Message,
		StartedAt: metav1.NewTime(c.StartedAt), FinishedAt: metav1.NewTime(c.FinishedAt), ContainerID: in.fullID(c.ID),
	}
	if c.lost && c.FinishedAt.IsZero() {
		// When it ended is not known: before this was found out. The next status has it from this one.
		t.FinishedAt = metav1.NewTime(in.Now)
	}
	if c.StartedAt.IsZero() {
		// It never ran: its program could not be executed, or it was stopped before. Runtimes give no start then, and a status without one shows the year 1:
		// the attempt ended when it was made.
		t.StartedAt = t.FinishedAt
	}
	if t.Reason == "" {
		t.Reason = "Completed"
		if c.ExitCode != 0 {
			t.Reason = "Error"
		}
	}
	return t
}

// fullID is the container's ID as statuses have it: the runtime's name, "://", the runtime's ID.
func (in *Input) fullID(id ids.ContainerID) string {
	if id == "" {
		return ""
	}
	return in.RuntimeName + "://" + string(id)
}

func bareID(id string) ids.ContainerID {
	if _, bare, ok := strings.Cut(id, "://"); ok {
		return ids.ContainerID(bare)
	}
	return ids.ContainerID(id)
}

// Merge is the last known status: what this agent computed last (own; nil: nothing yet), with what others have written
// to the API server's status since. A final phase in the API is kept whoever set it.
func Merge(api v1.PodStatus, own *v1.PodStatus) v1.PodStatus {
	if own == nil {
		return *api.DeepCopy()
	}
	st := *own.DeepCopy()
	st.QOSClass, st.NominatedNodeName = api.QOSClass, api.NominatedNodeName
	st.ResourceClaimStatuses, st.ExtendedResourceClaimStatus = api.ResourceClaimStatuses, api.ExtendedResourceClaimStatus
	if api.Phase == v1.PodFailed || api.Phase == v1.PodSucceeded {
		st.Phase, st.Reason, st.Message = api.Phase, api.Reason, api.Message
	}
	st.Conditions = nil
	for _, c := range api.Conditions {
		if !owned(c.Type) {
			st.Conditions = append(st.Conditions, c)
		}
	}
	for _, c := range own.Conditions {
		// DisruptionTarget belongs to whoever disrupts the pod: the agent too.
		if owned(c.Type) || c.Type == v1.DisruptionTarget && pods.Condition(&api, c.Type) == nil {
			st.Conditions = append(st.Conditions, c)
		}
	}
	return st
}

// owned says that a condition is written by the node's agent.
func owned(t v1.PodConditionType) bool {
	switch t {
	case v1.PodReadyToStartContainers, v1.PodInitialized, v1.PodReady, v1.ContainersReady, v1.PodScheduled, v1.AllContainersRestarting, DevicesReady:
		return true
	}
	return false
}
