package plan

import (
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// waitsSince is a pod whose status tells that it waits for its devices.
func waitsSince(before time.Duration) option {
	return func(in *Input) {
		in.Prior.Conditions = append(in.Prior.Conditions, v1.PodCondition{Type: DevicesReady, Status: v1.ConditionFalse, Reason: ReasonDevicesNotReady,
			Message: "as before", LastTransitionTime: metav1.NewTime(ago(before))})
	}
}

// hasWaited is a pod whose status tells that it has waited.
func hasWaited(in *Input) {
	in.Prior.Conditions = append(in.Prior.Conditions, v1.PodCondition{Type: DevicesReady, Status: v1.ConditionTrue, LastTransitionTime: metav1.NewTime(ago(time.Hour))})
}

// saidToWait is a container whose status told before that it waits for its devices.
func saidToWait(name string) option {
	return func(in *Input) {
		w := v1.ContainerState{Waiting: &v1.ContainerStateWaiting{Reason: ReasonDevicesNotReady, Message: "as before"}}
		in.Prior.ContainerStatuses = append(in.Prior.ContainerStatuses, v1.ContainerStatus{Name: name, State: w})
	}
}

// sayWait is what a status says of the wait: the condition with the time since its transition, the pod's reason and the first container's.
func sayWait(st v1.PodStatus) string {
	text := "-"
	if i := slices.IndexFunc(st.Conditions, func(c v1.PodCondition) bool { return c.Type == DevicesReady }); i >= 0 {
		c := st.Conditions[i]
		text = string(c.Status) + " " + now.Sub(c.LastTransitionTime.Time).String() + " " + c.Message
	}
	text += " | " + st.Reason + " " + st.Message
	if len(st.ContainerStatuses) == 0 {
		return strings.Join(strings.Fields(text), " ")
	}
	if w := st.ContainerStatuses[0].State.Waiting; w != nil {
		text += " | " + w.Reason + " " + w.Message
	}
	return strings.Join(strings.Fields(text), " ")
}

func TestWaitForDevices(t *testing.T) {
	refused := failure(GrantDevices, "", ReasonDevicesNotReady, 0, 1)
	notStarted := failure(StartContainer, "a", ReasonDevicesNotReady, 0, 1)
	s := sandbox("s", 0, true)
	for name, c := range map[string]struct {
		in   Input
		want string
	}{
		"a pod that never waited":             {given(wantsDevice(true), s), "- | | ContainerCreating"},
		"they are asked for":                  {given(wantsDevice(false)), "- | | ContainerCreating"},
		"it begins to wait":                   {given(wantsDevice(false), refused), "False 0s it failed | DevicesNotReady it failed | DevicesNotReady it failed"},
		"it goes on, with news":               {given(wantsDevice(false), refused, waitsSince(time.Hour)), "False 1h0m0s it failed | DevicesNotReady it failed | DevicesNotReady it failed"},
		"it waits anew":                       {given(wantsDevice(false), refused, hasWaited), "False 0s it failed | DevicesNotReady it failed | DevicesNotReady it failed"},
		"they are asked for again":            {given(wantsDevice(false), waitsSince(time.Hour), ongoing(GrantDevices, "")), "False 1h0m0s as before | DevicesNotReady as before | DevicesNotReady as before"},
		"it has got them":                     {given(wantsDevice(true), waitsSince(time.Hour), saidToWait("a")), "True 0s | | ContainerCreating"},
		"a start without them":                {given(wantsDevice(true), s, notStarted), "False 0s it failed | DevicesNotReady it failed | DevicesNotReady it failed"},
		"that start is tried again":           {given(wantsDevice(true), s, waitsSince(time.Hour), saidToWait("a"), ongoing(StartContainer, "a")), "False 1h0m0s as before | DevicesNotReady as before | DevicesNotReady as before"},
		"by an agent that was started anew":   {given(wantsDevice(false), s, waitsSince(time.Hour), saidToWait("a"), ongoing(GrantDevices, "")), "False 1h0m0s as before | DevicesNotReady as before | DevicesNotReady as before"},
		"it fails for another reason":         {given(wantsDevice(true), s, waitsSince(time.Hour), saidToWait("a"), failure(StartContainer, "a", ReasonCreateError, 0, 1)), "True 0s | | CreateContainerError it failed"},
		"it succeeds":                         {given(wantsDevice(true), s, waitsSince(time.Hour), saidToWait("a"), has("a", 0, "s", Running)), "True 0s |"},
		"another container is not up yet":     {given(mains("a", "b"), wantsDevice(true), s, waitsSince(time.Hour), saidToWait("a"), has("a", 0, "s", Running), ongoing(StartContainer, "b")), "True 0s |"},
		"a restart":                           {given(wantsDevice(true), s, has("a", 0, "s", Exited), failure(StartContainer, "a", ReasonDevicesNotReady, 0, 1)), "False 0s it failed | | DevicesNotReady it failed"},
		"a restart that is tried again":       {given(wantsDevice(true), s, waitsSince(time.Hour), saidToWait("a"), has("a", 0, "s", Exited)), "False 1h0m0s as before | | DevicesNotReady as before"},
		"its turn has not come":               {given(inits("i"), wantsDevice(true), s, has("i", 0, "s", Running), saidToWait("a")), "- | | PodInitializing"},
		"nothing is to be started":            {given(wantsDevice(false), refused, s, has("a", 0, "s", Running)), "- |"},
		"a pod that is deleted":               {given(wantsDevice(false), refused, waitsSince(time.Hour), deleted(time.Second)), "False 1h0m0s as before |"},
		"a pod that has failed for it":        {given(wantsDevice(false), refused, waitsSince(time.Hour), func(in *Input) { in.Verdict = Rejected("DevicesNotReady", "too long") }), "False 1h0m0s as before | DevicesNotReady too long"},
		"other devices than those at a grant": {given(wantsDevice(true), s, hasWaited, notStarted), "False 0s it failed | DevicesNotReady it failed | DevicesNotReady it failed"},
	} {
		if got := sayWait(Status(c.in)); got != strings.Join(strings.Fields(c.want), " ") {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

func TestFailedByDeadline(t *testing.T) {
	within := func(value string) option {
		return func(in *Input) { in.Pod.Annotations = map[string]string{DevicesDeadlineAnnotation: value} }
	}
	const words = "the pod has waited %s for its devices, as long as its annotation monopod.dev/devices-deadline says: it failed"
	after := func(d string) string { return strings.Replace(words, "%s", d, 1) }
	refused := failure(GrantDevices, "", ReasonDevicesNotReady, 0, 1)
	s := sandbox("s", 0, true)
	for name, c := range map[string]struct {
		opts []option
		want string
		wake time.Duration // from now; 0: none
	}{
		"it has no deadline":                {[]option{wantsDevice(false), refused, waitsSince(time.Hour)}, "", 0},
		"one that cannot be read":           {[]option{wantsDevice(false), refused, waitsSince(time.Hour), within("soon")}, "", 0},
		"none above zero":                   {[]option{wantsDevice(false), refused, waitsSince(time.Hour), within("0s")}, "", 0},
		"it does not wait":                  {[]option{wantsDevice(true), within("5m"), waitsSince(time.Hour)}, "", 0},
		"it begins to wait":                 {[]option{wantsDevice(false), refused, within("5m")}, "", 5 * time.Minute},
		"it waits":                          {[]option{wantsDevice(false), refused, waitsSince(4 * time.Minute), within("5m")}, "", time.Minute},
		"it has waited before":              {[]option{wantsDevice(false), refused, hasWaited, within("5m")}, "", 5 * time.Minute},
		"it has waited long enough":         {[]option{wantsDevice(false), refused, waitsSince(5 * time.Minute), within("5m")}, after("5m0s"), 0},
		"longer, while nobody looked":       {[]option{wantsDevice(false), refused, waitsSince(time.Hour), within("5m")}, after("1h0m0s"), 0},
		"for a start":                       {[]option{wantsDevice(true), s, failure(StartContainer, "a", ReasonDevicesNotReady, 0, 1), waitsSince(time.Hour), within("5m")}, after("1h0m0s"), 0},
		"for a restart":                     {[]option{wantsDevice(true), s, has("a", 0, "s", Exited), failure(StartContainer, "a", ReasonDevicesNotReady, 0, 1), waitsSince(time.Minute), within("5m")}, "", 4 * time.Minute},
		"for its image":                     {[]option{wantsDevice(true), s, failure(StartContainer, "a", ReasonErrImagePull, 0, 1), waitsSince(time.Hour), within("5m")}, "", 0},
		"it is being deleted":               {[]option{wantsDevice(false), refused, waitsSince(time.Hour), within("5m"), deleted(0)}, "", 0},
		"it has ended":                      {[]option{wantsDevice(false), refused, waitsSince(time.Hour), within("5m"), func(in *Input) { in.Prior.Phase = v1.PodFailed }}, "", 0},
		"a restarted agent asks for it":     {[]option{wantsDevice(false), waitsSince(time.Minute), within("5m")}, "", 4 * time.Minute},
		"and does so when it is long since": {[]option{wantsDevice(false), waitsSince(time.Hour), within("5m")}, strings.Replace(after("1h0m0s"), "it failed", "as before", 1), 0},
	} {
		in := given(c.opts...)
		got, wake := FailedByDeadline(&in)
		if (got == nil) != (c.want == "") || got != nil && (got.Message != c.want || got.Reason != "DevicesNotReady") {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
		if wake.IsZero() != (c.wake == 0) || c.wake != 0 && !wake.Equal(now.Add(c.wake)) {
			t.Errorf("%s: woken at %s", name, wake)
		}
	}
	// It comes to its end at once.
	in := given(wantsDevice(false), refused, waitsSince(time.Hour), within("5m"))
	in.Verdict, _ = FailedByDeadline(&in)
	if got := said(Plan(in)); got != "Release" {
		t.Errorf("decided %s", got)
	}
	if st := Status(in); st.Phase != v1.PodFailed || st.Reason != "DevicesNotReady" || st.Message != after("1h0m0s") {
		t.Errorf("status %s %s %q", st.Phase, st.Reason, st.Message)
	}
}

func TestCheckDevicesDeadline(t *testing.T) {
	pod := &v1.Pod{}
	if err := CheckDevicesDeadline(pod); err != nil {
		t.Error(err)
	}
	for text, ok := range map[string]bool{"5m": true, "1h30m": true, "200ms": true, "0": false, "-1s": false, "5": false, "": false, "five minutes": false} {
		pod.Annotations = map[string]string{DevicesDeadlineAnnotation: text}
		if err := CheckDevicesDeadline(pod); (err == nil) != ok || err != nil && !strings.Contains(err.Error(), `"`+text+`"`) {
			t.Errorf("%q: %v", text, err)
		}
	}
}
