package judge

import (
	"fmt"
	"maps"
	"slices"
	"time"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

// Allocation is one Allocate.
type Allocation struct {
	// What was asked for, for messages: "2 devices".
	What string
	// Containers is the number of container_requests.
	Containers int
	Call
	Response *v1beta1.AllocateResponse
	// Unusable is why the node does not take the answer; empty: it does.
	Unusable string
}

// Allocated judges allocations of one kind, all of which must succeed.
func Allocated(name, resource string, all []Allocation, note string) Check {
	var failed []string
	hung := false
	slowest := time.Duration(0)
	for _, a := range all {
		slowest = max(slowest, a.Took)
		if a.Failed() {
			hung = hung || a.Hung
			failed = append(failed, fmt.Sprintf("Allocate of %s %s", a.What, a.Call))
		}
	}
	switch {
	case hung:
		c := check(Fail, name, resource, "%s", some(failed))
		c.Remedy = "answer within seconds: Monopod's node gives up after 30 s, and a kubelet waits for ever, with all pods that want the resource; what takes long belongs into PreStartContainer"
		return c
	case len(failed) > 0:
		return check(Fail, name, resource, "%s", some(failed))
	case len(all) == 1:
		return check(OK, name, resource, "%s%s: answered after %s", all[0].What, note, Time(slowest))
	}
	return check(OK, name, resource, "%d allocations%s: answered, the slowest after %s", len(all), note, Time(slowest))
}

// Same judges two answers to one request.
func Same(resource string, first, second Allocation) Check {
	const name = "allocate/same"
	if second.Failed() {
		return check(Fail, name, resource, "the second Allocate of %s %s", second.What, second.Call)
	}
	one, two := first.Response.GetContainerResponses(), second.Response.GetContainerResponses()
	if len(one) != len(two) {
		return check(Fail, name, resource, "container_responses has %s, and then %d", count(len(one), "entry"), len(two))
	}
	var hard, soft []string
	for i := range one {
		differ := func(list *[]string, field string, a, b []string) {
			if !slices.Equal(a, b) {
				*list = append(*list, fmt.Sprintf("%s: %v, and then %v", field, a, b))
			}
		}
		differ(&hard, "devices", nodes(one[i]), nodes(two[i]))
		differ(&hard, "cdi_devices", cdiNames(one[i]), cdiNames(two[i]))
		differ(&soft, "mounts", mounts(one[i]), mounts(two[i]))
		differ(&soft, "envs", pairs(one[i].GetEnvs()), pairs(two[i].GetEnvs()))
		differ(&soft, "annotations", pairs(one[i].GetAnnotations()), pairs(two[i].GetAnnotations()))
	}
	switch {
	case len(hard) > 0:
		return check(Fail, name, resource, "the same devices are other hardware the second time: %s", some(hard))
	case len(soft) > 0:
		return check(Warn, name, resource, "the second answer is another one: %s", some(soft))
	}
	return check(OK, name, resource, "the second answer is the same")
}

func nodes(r *v1beta1.ContainerAllocateResponse) (all []string) {
	for _, d := range r.GetDevices() {
		all = append(all, fmt.Sprintf("%s as %s (%s)", d.GetHostPath(), d.GetContainerPath(), d.GetPermissions()))
	}
	slices.Sort(all)
	return all
}

func mounts(r *v1beta1.ContainerAllocateResponse) (all []string) {
	for _, m := range r.GetMounts() {
		all = append(all, fmt.Sprintf("%s at %s (read-only: %t)", m.GetHostPath(), m.GetContainerPath(), m.GetReadOnly()))
	}
	slices.Sort(all)
	return all
}

func cdiNames(r *v1beta1.ContainerAllocateResponse) (all []string) {
	for _, d := range r.GetCdiDevices() {
		all = append(all, d.GetName())
	}
	slices.Sort(all)
	return all
}

func pairs(m map[string]string) (all []string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		all = append(all, k+"="+m[k])
	}
	return all
}

// Containers judges an Allocate for two containers, which no node sends today.
func Containers(resource string, a Allocation) Check {
	const name = "allocate/containers"
	if a.Failed() {
		return check(Warn, name, resource, "Allocate of %s %s", a.What, a.Call)
	}
	if got := len(a.Response.GetContainerResponses()); got != a.Containers {
		return check(Warn, name, resource, "%s for %s", count(got, "response"), count(a.Containers, "request"))
	}
	return check(OK, name, resource, "%s for %s", count(a.Containers, "response"), count(a.Containers, "request"))
}

// Odd is a request that makes no sense.
type Odd struct {
	What string
	Call
	// Harm is what the plugin was like afterwards; empty: as before.
	Harm string
}

// OddRequests judges requests that make no sense: the plugin must live on. refuse says that an error is the only right answer.
func OddRequests(name, resource string, all []Odd, refuse bool) Check {
	var harm, hung, taken, refused []string
	for _, o := range all {
		switch {
		case o.Harm != "":
			harm = append(harm, fmt.Sprintf("%s: %s", o.What, o.Harm))
		case o.Hung:
			hung = append(hung, fmt.Sprintf("%s %s", o.What, o.Call))
		case o.Failed():
			refused = append(refused, o.What)
		default:
			taken = append(taken, o.What)
		}
	}
	switch {
	case len(harm) > 0:
		return check(Fail, name, resource, "%s", some(harm))
	case len(hung) > 0:
		return check(Fail, name, resource, "%s", some(hung))
	case refuse && len(taken) > 0:
		return check(Warn, name, resource, "%s: answered as if there was such a device", some(taken))
	case len(refused) == len(all) && len(all) == 1:
		return check(OK, name, resource, "%s: refused: %s", all[0].What, all[0].Error)
	}
	return check(OK, name, resource, "%d of %d refused, the others answered; the plugin lives on", len(refused), len(all))
}
