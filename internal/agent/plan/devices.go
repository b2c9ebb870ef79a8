package plan

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	v1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// Device is a device that a container has been granted, as it is now.
type Device struct {
	// Resource is the extended resource, ID the device's name in it.
	Resource, ID string
	Health       v1.ResourceHealthStatus
	// Message tells of a device that is not healthy; it may be empty.
	Message string
	// Since is when it was first seen not to be healthy, without a break since.
	Since time.Time
	// Awaited: how it is is not known yet after a start of the node. What was told of it last holds meanwhile.
	Awaited bool
}

// Reasons of the events about granted devices.
const (
	ReasonDeviceUnhealthy = "DeviceUnhealthy"
	// ReasonDeviceUnknown: nobody knows the device any more.
	ReasonDeviceUnknown = "DeviceUnknown"
	// ReasonDeviceHealthy: the device has recovered.
	ReasonDeviceHealthy = "DeviceHealthy"
	// ReasonUnhealthyDevices is that of a pod that fails because it wants to when a device of it is not healthy.
	ReasonUnhealthyDevices = "UnhealthyDevices"
)

// UnhealthyDevicesAnnotation is the pod's annotation that says what becomes of it when a device of it is not healthy any more. With the value
// "fail" the pod fails at once, with "fail-after=DURATION" (as Go writes them: 30s, 5m) when that has lasted so long; otherwise it goes on.
const UnhealthyDevicesAnnotation = "monopod.dev/unhealthy-devices"

// patience is how long a pod goes on with a device that is not healthy; false: for ever.
func patience(pod *v1.Pod) (time.Duration, bool) {
	policy := pod.Annotations[UnhealthyDevicesAnnotation]
	if policy == "fail" {
		return 0, true
	}
	after, ok := strings.CutPrefix(policy, "fail-after=")
	if !ok {
		return 0, false
	}
	d, err := time.ParseDuration(after)
	return d, err == nil
}

// allocatedResources tells the health of a container's devices (KEP-4680). What was told last stays when the devices have been given back, so
// that a pod's end can be understood from its status. Of healthy devices nothing is told before there is a sandbox: that would be a write of its own.
func (in *Input) allocatedResources(a *assessment, f *fate) (all []v1.ResourceStatus) {
	has, known := in.Devices[f.spec.Name]
	if !known {
		if f.prior != nil {
			return f.prior.AllocatedResourcesStatus
		}
		return nil
	}
	told := f.prior != nil && len(f.prior.AllocatedResourcesStatus) > 0
	if !told && a.sandbox == nil && !slices.ContainsFunc(has, func(d Device) bool { return d.Health != v1.ResourceHealthStatusHealthy }) {
		return nil
	}
	for _, d := range has {
		h, told := d.health(), true
		if d.Awaited {
			h, told = toldLast(f.prior, d)
		}
		if !told {
			continue
		}
		i := slices.IndexFunc(all, func(r v1.ResourceStatus) bool { return r.Name == v1.ResourceName(d.Resource) })
		if i < 0 {
			i, all = len(all), append(all, v1.ResourceStatus{Name: v1.ResourceName(d.Resource)})
		}
		all[i].Resources = append(all[i].Resources, h)
	}
	return all
}

// health is what a status tells of a device.
func (d Device) health() v1.ResourceHealth {
	h := v1.ResourceHealth{ResourceID: v1.ResourceID(d.ID), Health: d.Health}
	if d.Message != "" {
		message := shortened(d.Message)
		h.Message = &message
	}
	return h
}

// toldLast is what a container's status has told of a device.
func toldLast(st *v1.ContainerStatus, d Device) (h v1.ResourceHealth, told bool) {
	if st == nil {
		return h, false
	}
	for _, r := range st.AllocatedResourcesStatus {
		for _, h := range r.Resources {
			if r.Name == v1.ResourceName(d.Resource) && h.ResourceID == v1.ResourceID(d.ID) {
				return h, true
			}
		}
	}
	return h, false
}

// shortened is a text of at most as many bytes as the API allows.
func shortened(text string) string {
	const dots = "..."
	if len(text) <= v1.ResourceHealthMessageMaxLength {
		return text
	}
	end := v1.ResourceHealthMessageMaxLength - len(dots)
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + dots
}

// Event is something to be told of a pod.
type Event struct{ Type, Reason, Message string }

// DeviceEvents are the events that follow from a change of the health that a status tells, or of its reason: one for all devices of a resource to which
// the same has happened. A device of which nothing was told before counts as having been healthy.
func DeviceEvents(old, now *v1.PodStatus) []Event {
	type told struct {
		health  v1.ResourceHealthStatus
		message string
	}
	was := map[device]told{}
	for _, g := range granted(old) {
		was[g.device] = told{g.Health, g.message()}
	}
	var changes []change
	for _, g := range granted(now) {
		before, ok := was[g.device]
		if !ok {
			before.health = v1.ResourceHealthStatusHealthy
		}
		if g.Health == before.health && (g.Health == v1.ResourceHealthStatusHealthy || g.message() == before.message) {
			continue
		}
		same := func(c change) bool {
			return c.resource == g.resource && c.health == g.Health && c.message == g.message()
		}
		i := slices.IndexFunc(changes, same)
		if i < 0 {
			i, changes = len(changes), append(changes, change{resource: g.resource, health: g.Health, message: g.message()})
		}
		changes[i].ids = append(changes[i].ids, string(g.id))
		for _, c := range g.containers {
			if !slices.Contains(changes[i].containers, c) {
				changes[i].containers = append(changes[i].containers, c)
			}
		}
	}
	var events []Event
	for _, c := range changes {
		events = append(events, c.event())
	}
	return events
}

// device names a device of a pod.
type device struct {
	resource v1.ResourceName
	id       v1.ResourceID
}

// grantedDevice is a device with the containers that have it: an init container hands its own down.
type grantedDevice struct {
	device
	v1.ResourceHealth
	containers []string
}

func (g *grantedDevice) message() string {
	if g.Message == nil {
		return ""
	}
	return *g.Message
}

// granted are the devices that a status tells of, each once.
func granted(st *v1.PodStatus) (all []grantedDevice) {
	at := map[device]int{}
	for _, c := range slices.Concat(st.InitContainerStatuses, st.ContainerStatuses) {
		for _, r := range c.AllocatedResourcesStatus {
			for _, h := range r.Resources {
				d := device{r.Name, h.ResourceID}
				i, ok := at[d]
				if !ok {
					i = len(all)
					at[d] = i
					all = append(all, grantedDevice{device: d, ResourceHealth: h})
				}
				all[i].containers = append(all[i].containers, c.Name)
			}
		}
	}
	return all
}

// change is what has happened to devices of a resource.
type change struct {
	resource        v1.ResourceName
	health          v1.ResourceHealthStatus
	message         string
	ids, containers []string
}

func (c change) event() Event {
	e := Event{Type: v1.EventTypeWarning, Reason: ReasonDeviceUnhealthy}
	state := "not healthy any more"
	switch c.health {
	case v1.ResourceHealthStatusHealthy:
		e.Type, e.Reason, state = v1.EventTypeNormal, ReasonDeviceHealthy, "healthy again"
	case v1.ResourceHealthStatusUnknown:
		e.Reason, state = ReasonDeviceUnknown, "not known any more"
	}
	e.Message = shortened(sentence(string(c.resource), c.ids, c.containers, state, c.message))
	return e
}

// sentence tells the state of devices.
func sentence(resource string, ids, containers []string, state, why string) string {
	const most = 8
	if more := len(ids) - most; more > 0 {
		ids = append(slices.Clone(ids[:most]), fmt.Sprintf("and %d more", more))
	}
	noun, verb, of := "device", "is", "container"
	if len(ids) > 1 {
		noun, verb = "devices", "are"
	}
	if len(containers) > 1 {
		of = "containers"
	}
	text := fmt.Sprintf("%s %s of %s, granted to %s %s, %s %s", noun, strings.Join(ids, ", "), resource, of, strings.Join(containers, ", "), verb, state)
	if why != "" {
		text += ": " + why
	}
	return text
}

// FailedByDevices says why a pod is to fail that wants to when a device of it is not healthy any more; nil: it goes on, and is to be looked
// at again at wake, unless that is zero. The devices of init containers that have done their work count only if others have them.
func FailedByDevices(in *Input) (why *Verdict, wake time.Time) {
	limit, wants := patience(in.Pod)
	if over := in.Prior.Phase == v1.PodSucceeded || in.Prior.Phase == v1.PodFailed; over || !wants || in.terminating() {
		return nil, time.Time{}
	}
	done := map[string]bool{}
	for _, c := range in.Prior.InitContainerStatuses {
		done[c.Name] = c.State.Terminated != nil && c.State.Terminated.ExitCode == 0
	}
	for _, c := range pods.Containers(&in.Pod.Spec) {
		for _, d := range in.Devices[c.Name] {
			if done[c.Name] || d.Awaited || d.Health == v1.ResourceHealthStatusHealthy {
				continue
			}
			if at := d.Since.Add(limit); in.Now.Before(at) {
				if wake.IsZero() || at.Before(wake) {
					wake = at
				}
				continue
			}
			state := "not healthy any more"
			if d.Health == v1.ResourceHealthStatusUnknown {
				state = "not known any more"
			}
			message := sentence(d.Resource, []string{d.ID}, []string{c.Name}, state, d.Message)
			return Rejected(ReasonUnhealthyDevices, shortened(message)), time.Time{}
		}
	}
	return nil, wake
}
