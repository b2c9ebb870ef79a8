package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "k8s.io/api/core/v1"
)

const (
	healthy   = v1.ResourceHealthStatusHealthy
	unhealthy = v1.ResourceHealthStatusUnhealthy
	unknown   = v1.ResourceHealthStatusUnknown
)

// holds gives a container devices, each as "resource id health message".
func holds(container string, devices ...string) option {
	return func(in *Input) {
		if in.Devices == nil {
			in.Devices = map[string][]Device{}
		}
		for _, text := range devices {
			part := strings.SplitN(text+"   ", " ", 4)
			in.Devices[container] = append(in.Devices[container],
				Device{Resource: part[0], ID: part[1], Health: v1.ResourceHealthStatus(part[2]), Message: strings.TrimSpace(part[3]), Since: ago(time.Minute), Awaited: part[2] == ""})
		}
	}
}

// sayHealth is what a status tells of devices, as text.
func sayHealth(st v1.PodStatus) string {
	var words []string
	for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses) {
		for _, r := range c.AllocatedResourcesStatus {
			for _, h := range r.Resources {
				text := fmt.Sprintf("%s: %s/%s %s", c.Name, r.Name, h.ResourceID, h.Health)
				if h.Message != nil {
					text += " (" + *h.Message + ")"
				}
				words = append(words, text)
			}
		}
	}
	return strings.Join(words, "; ")
}

func TestStatusTellsTheHealthOfDevices(t *testing.T) {
	before := func(in *Input) {
		in.Prior.ContainerStatuses = []v1.ContainerStatus{{Name: "a", AllocatedResourcesStatus: []v1.ResourceStatus{
			{Name: "x/gpu", Resources: []v1.ResourceHealth{{ResourceID: "0", Health: unhealthy}}}}}}
	}
	for name, c := range map[string]struct {
		opts []option
		want string
	}{
		"no devices": {},
		"of every container": {
			[]option{inits("i"), holds("i", "x/gpu 0 Healthy"), holds("a", "x/gpu 0 Healthy", "x/gpu 1 Unhealthy it fell off the bus", "x/nic n Unknown"),
				sandbox("s", 0, true)},
			"i: x/gpu/0 Healthy; a: x/gpu/0 Healthy; a: x/gpu/1 Unhealthy (it fell off the bus); a: x/nic/n Unknown",
		},
		"it follows":                           {[]option{before, holds("a", "x/gpu 0 Healthy")}, "a: x/gpu/0 Healthy"},
		"what was told stays when it is over":  {[]option{before}, "a: x/gpu/0 Unhealthy"},
		"devices of a container that is not":   {[]option{holds("z", "x/gpu 0 Healthy")}, ""},
		"healthy ones before the sandbox":      {[]option{holds("a", "x/gpu 0 Healthy")}, ""},
		"unhealthy ones before the sandbox":    {[]option{holds("a", "x/gpu 0 Healthy", "x/gpu 1 Unhealthy")}, "a: x/gpu/0 Healthy; a: x/gpu/1 Unhealthy"},
		"not known yet after a start":          {[]option{before, holds("a", "x/gpu 0", "x/nic n Healthy")}, "a: x/gpu/0 Unhealthy; a: x/nic/n Healthy"},
		"neither known yet nor told":           {[]option{before, holds("a", "x/gpu 1")}, ""},
		"other devices than those told before": {[]option{before, holds("a", "x/gpu 1 Healthy")}, "a: x/gpu/1 Healthy"},
	} {
		st := Status(given(c.opts...))
		if got := sayHealth(st); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
		for _, cs := range st.ContainerStatuses { // a name has to be unique
			for i, r := range cs.AllocatedResourcesStatus {
				if slices.ContainsFunc(cs.AllocatedResourcesStatus[:i], func(o v1.ResourceStatus) bool { return o.Name == r.Name }) {
					t.Errorf("%s: %s twice", name, r.Name)
				}
			}
		}
	}
}

func TestHealthMessagesAreShortened(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("x", 1024): strings.Repeat("x", 1024),
		strings.Repeat("x", 1025): strings.Repeat("x", 1021) + "...",
		strings.Repeat("ü", 513):  strings.Repeat("ü", 510) + "...",
	} {
		if got := shortened(text); got != want {
			t.Errorf("%q has become %q", text, got)
		}
	}
}

func TestDeviceEvents(t *testing.T) {
	status := func(opts ...option) *v1.PodStatus {
		st := Status(given(append([]option{inits("i"), mains("a", "b"), sandbox("s", 0, true)}, opts...)...))
		return &st
	}
	many := []string{}
	for i := range 10 {
		many = append(many, fmt.Sprintf("x/gpu %d Unhealthy gone", i))
	}
	for name, c := range map[string]struct {
		old, now *v1.PodStatus
		want     string
	}{
		"granted healthy":     {status(), status(holds("a", "x/gpu 0 Healthy")), ""},
		"nothing has changed": {status(holds("a", "x/gpu 0 Unhealthy")), status(holds("a", "x/gpu 0 Unhealthy")), ""},
		"another reason": {
			status(holds("a", "x/gpu 0 Unhealthy its plugin is away")), status(holds("a", "x/gpu 0 Unhealthy it is hot")),
			"Warning DeviceUnhealthy device 0 of x/gpu, granted to container a, is not healthy any more: it is hot",
		},
		"unhealthy": {
			status(holds("a", "x/gpu 0 Healthy")), status(holds("a", "x/gpu 0 Unhealthy it is hot")),
			"Warning DeviceUnhealthy device 0 of x/gpu, granted to container a, is not healthy any more: it is hot",
		},
		"unhealthy from the start": {
			status(), status(holds("a", "x/gpu 0 Unhealthy")),
			"Warning DeviceUnhealthy device 0 of x/gpu, granted to container a, is not healthy any more",
		},
		"unknown": {
			status(holds("a", "x/gpu 0 Unhealthy")), status(holds("a", "x/gpu 0 Unknown it is gone")),
			"Warning DeviceUnknown device 0 of x/gpu, granted to container a, is not known any more: it is gone",
		},
		"recovered": {
			status(holds("a", "x/gpu 0 Unhealthy", "x/gpu 1 Unknown", "x/gpu 2 Healthy")), status(holds("a", "x/gpu 0 Healthy", "x/gpu 1 Healthy", "x/gpu 2 Healthy")),
			"Normal DeviceHealthy devices 0, 1 of x/gpu, granted to container a, are healthy again",
		},
		"one event for those to which the same has happened": {
			status(holds("i", "x/gpu 0 Healthy")),
			status(holds("i", "x/gpu 0 Unhealthy off"), holds("a", "x/gpu 0 Unhealthy off", "x/nic 0 Unhealthy off"), holds("b", "x/gpu 1 Unhealthy off", "x/gpu 2 Unhealthy hot")),
			"Warning DeviceUnhealthy devices 0, 1 of x/gpu, granted to containers i, a, b, are not healthy any more: off; " +
				"Warning DeviceUnhealthy device 0 of x/nic, granted to container a, is not healthy any more: off; " +
				"Warning DeviceUnhealthy device 2 of x/gpu, granted to container b, is not healthy any more: hot",
		},
		"many": {
			status(), status(holds("a", many...)),
			"Warning DeviceUnhealthy devices 0, 1, 2, 3, 4, 5, 6, 7, and 2 more of x/gpu, granted to container a, are not healthy any more: gone",
		},
	} {
		var said []string
		for _, e := range DeviceEvents(c.old, c.now) {
			said = append(said, e.Type+" "+e.Reason+" "+e.Message)
		}
		if got := strings.Join(said, "; "); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", name, got, c.want)
		}
	}
}

func TestFailedByDevices(t *testing.T) {
	wants := func(value string) option {
		return func(in *Input) { in.Pod.Annotations = map[string]string{UnhealthyDevicesAnnotation: value} }
	}
	initEnded := func(code int32) option {
		return func(in *Input) {
			in.Prior.InitContainerStatuses = []v1.ContainerStatus{was("i", 0, wasTerminated(code))}
		}
	}
	over := func(in *Input) { in.Prior.Phase = v1.PodSucceeded }
	broken := holds("a", "x/gpu 0 Healthy", "x/gpu 1 Unhealthy it is hot")
	const hot = "device 1 of x/gpu, granted to container a, is not healthy any more: it is hot"
	for name, c := range map[string]struct {
		opts []option
		want string
	}{
		"it does not want to":           {[]option{broken}, ""},
		"it wants something else":       {[]option{broken, wants("ignore")}, ""},
		"all are healthy":               {[]option{holds("a", "x/gpu 0 Healthy"), wants("fail")}, ""},
		"no devices":                    {[]option{wants("fail")}, ""},
		"unhealthy":                     {[]option{broken, wants("fail")}, hot},
		"for long enough":               {[]option{broken, wants("fail-after=1m")}, hot},
		"for no time that can be read":  {[]option{broken, wants("fail-after=soon")}, ""},
		"unknown":                       {[]option{holds("a", "x/gpu 0 Unknown"), wants("fail")}, "device 0 of x/gpu, granted to container a, is not known any more"},
		"it has ended":                  {[]option{broken, wants("fail"), over}, ""},
		"it is being deleted":           {[]option{broken, wants("fail"), deleted(0)}, ""},
		"of an init container":          {[]option{inits("i"), holds("i", "x/gpu 0 Unknown"), wants("fail")}, "device 0 of x/gpu, granted to container i, is not known any more"},
		"of one that has done its work": {[]option{inits("i"), holds("i", "x/gpu 0 Unknown"), initEnded(0), wants("fail")}, ""},
		"of one that has failed":        {[]option{inits("i"), holds("i", "x/gpu 0 Unknown"), initEnded(1), wants("fail")}, "device 0 of x/gpu, granted to container i, is not known any more"},
		"not known yet":                 {[]option{holds("a", "x/gpu 0"), wants("fail")}, ""},
		"handed down":                   {[]option{inits("i"), holds("i", "x/gpu 1 Unhealthy"), initEnded(0), broken, wants("fail")}, hot},
	} {
		in := given(c.opts...)
		got, wake := FailedByDevices(&in)
		if !wake.IsZero() {
			t.Errorf("%s: woken at %s", name, wake)
		}
		if (got == nil) != (c.want == "") || got != nil && (got.Message != c.want || got.Reason != "UnhealthyDevices") {
			t.Errorf("%s: %+v, want %q", name, got, c.want)
		}
	}
	// It is looked at again when its time has come.
	in := given(broken, holds("b", "x/gpu 2 Unknown"), mains("a", "b"), wants("fail-after=90s"))
	in.Devices["b"][0].Since = ago(time.Second)
	if got, wake := FailedByDevices(&in); got != nil || !wake.Equal(now.Add(30*time.Second)) {
		t.Errorf("%+v, woken at %s", got, wake)
	}
	// The pod is stopped, and has failed when nothing of it runs.
	in = given(broken, wants("fail"), sandbox("s", 0, true), has("a", 0, "s", Running))
	in.Verdict, _ = FailedByDevices(&in)
	if got := said(Plan(in)); got != "StopContainer a0 within 30s" {
		t.Errorf("decided %s", got)
	}
	if st := Status(in); st.Phase != v1.PodRunning || st.Reason != "UnhealthyDevices" || st.Message != hot {
		t.Errorf("status %s %s %q", st.Phase, st.Reason, st.Message)
	}
	in = given(broken, wants("fail"), sandbox("s", 0, true), has("a", 0, "s", Exited))
	in.Verdict, _ = FailedByDevices(&in)
	if st := Status(in); st.Phase != v1.PodFailed {
		t.Errorf("status %s", st.Phase)
	}
}
