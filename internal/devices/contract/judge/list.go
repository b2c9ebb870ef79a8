package judge

import (
	"fmt"
	"slices"
	"time"

	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	longestID     = 63
	mostNUMA      = 1024    // more than Linux has (CONFIG_NODES_SHIFT is 10 at most)
	kubeletsLimit = 4 << 20 // gRPC's limit of a message that is received, which kubelets leave as it is
)

// List is the list of devices that the plugin told.
type List struct {
	// Call is how the first message came.
	Call
	Devices []*v1beta1.Device
	// Bytes is the size of the message.
	Bytes int
	// HostNUMA are the NUMA nodes of this host; none: it is not known.
	HostNUMA []int
}

// Listed judges a list.
func Listed(resource string, l List) []Check {
	if l.Failed() {
		return []Check{check(Fail, "list/first", resource, "ListAndWatch %s", l.Call)}
	}
	return append([]Check{listed(resource, l)}, contents(resource, l)...)
}

// contents are the checks of what a list has in it, whichever it is of those that a plugin sends.
func contents(resource string, l List) []Check {
	return []Check{ids(resource, l.Devices), health(resource, l.Devices), topology(resource, l), size(resource, l)}
}

func listed(resource string, l List) Check {
	healthy := 0
	for _, d := range l.Devices {
		if d.GetHealth() == v1beta1.Healthy {
			healthy++
		}
	}
	switch {
	case len(l.Devices) == 0:
		return check(Warn, "list/first", resource, "the list is empty: there is nothing to grant, and most of the contract cannot be tried")
	case healthy == 0:
		return check(Warn, "list/first", resource, "%s, none of them healthy: there is nothing to grant, and most of the contract cannot be tried", count(len(l.Devices), "device"))
	}
	return check(OK, "list/first", resource, "%s, %d of them healthy, after %s", count(len(l.Devices), "device"), healthy, Time(l.Took))
}

func ids(resource string, devices []*v1beta1.Device) Check {
	const name = "list/ids"
	var empty, twice, long []string
	seen := make(map[string]bool, len(devices))
	for i, d := range devices {
		id := d.GetID()
		switch {
		case id == "":
			empty = append(empty, fmt.Sprintf("number %d of the list", i))
		case seen[id]:
			twice = append(twice, brief(id))
		case len(id) > longestID:
			long = append(long, fmt.Sprintf("%s of %d", brief(id), len(id)))
		}
		seen[id] = true
	}
	switch {
	case len(empty) > 0:
		return check(Fail, name, resource, "devices without an ID: %s", some(empty))
	case len(twice) > 0:
		return check(Fail, name, resource, "an ID is in the list more than once, and only the first counts: %s", some(twice))
	case len(long) > 0:
		return check(Fail, name, resource, "IDs are longer than %d characters: %s", longestID, some(long))
	}
	return check(OK, name, resource, "%s: %s", count(len(devices), "ID"), some(quoted(devices)))
}

func quoted(devices []*v1beta1.Device) []string {
	var all []string
	for _, d := range devices {
		all = append(all, brief(d.GetID()))
	}
	return all
}

func health(resource string, devices []*v1beta1.Device) Check {
	const name = "list/health"
	var other, sick []string
	for _, d := range devices {
		switch d.GetHealth() {
		case v1beta1.Healthy:
		case v1beta1.Unhealthy:
			sick = append(sick, brief(d.GetID()))
		default:
			other = append(other, fmt.Sprintf("%s: %s", brief(d.GetID()), brief(d.GetHealth())))
		}
	}
	switch {
	case len(other) > 0:
		return check(Fail, name, resource, "words that are neither %q nor %q, and count as unhealthy: %s", v1beta1.Healthy, v1beta1.Unhealthy, some(other))
	case len(sick) > 0:
		return check(OK, name, resource, "%s unhealthy: %s", count(len(sick), "device"), some(sick))
	}
	return check(OK, name, resource, "all healthy")
}

func topology(resource string, l List) Check {
	const name = "list/topology"
	var negative, absurd, absent []string
	told := 0
	for _, d := range l.Devices {
		for _, n := range d.GetTopology().GetNodes() {
			told++
			node := fmt.Sprintf("%s: %d", brief(d.GetID()), n.GetID())
			switch {
			case n.GetID() < 0:
				negative = append(negative, node)
			case n.GetID() >= mostNUMA:
				absurd = append(absurd, node)
			case len(l.HostNUMA) > 0 && !slices.Contains(l.HostNUMA, int(n.GetID())):
				absent = append(absent, node)
			}
		}
	}
	switch {
	case len(absurd) > 0:
		return check(Fail, name, resource, "NUMA nodes that no machine has: %s", some(absurd))
	case len(negative) > 0:
		return check(Warn, name, resource, "negative NUMA nodes, which older kubelets take for real ones: %s", some(negative))
	case len(absent) > 0:
		return check(Warn, name, resource, "NUMA nodes that this host does not have (it has %v): %s", l.HostNUMA, some(absent))
	case told == 0:
		return check(OK, name, resource, "none is told")
	}
	return check(OK, name, resource, "told, and on this host")
}

func size(resource string, l List) Check {
	const name = "list/size"
	if l.Bytes > kubeletsLimit {
		return check(Warn, name, resource, "%s in one message of %d bytes: kubelets take %d", count(len(l.Devices), "device"), l.Bytes, kubeletsLimit)
	}
	each := 0
	if len(l.Devices) > 0 {
		each = l.Bytes / len(l.Devices)
	}
	return check(OK, name, resource, "%d bytes, %d for a device", l.Bytes, each)
}

// Again is what a second ListAndWatch told, after the connection of the first was closed.
type Again struct {
	Call
	Before, After []*v1beta1.Device
}

// ListedAgain judges the second list, under the name of one of the checks that are about it.
func ListedAgain(name, resource string, a Again) Check {
	if a.Failed() {
		return check(Fail, name, resource, "ListAndWatch on a new connection %s", a.Call)
	}
	before, after := idsOf(a.Before), idsOf(a.After)
	gone, come := without(before, after), without(after, before)
	switch {
	case len(gone) > 0 && len(come) > 0:
		return check(Fail, name, resource, "other IDs than before: %s have gone, %s have come: containers hold devices that nobody has", some(gone), some(come))
	case len(gone)+len(come) > 0:
		return check(Warn, name, resource, "other devices than before: gone %s; come %s", orNone(gone), orNone(come))
	}
	for i, c := range contents(resource, List{Devices: a.After}) {
		if c.bad() && c.Verdict != contents(resource, List{Devices: a.Before})[i].Verdict {
			return check(c.Verdict, name, resource, "this list is worse than the one before (as %s): %s", c.Name, c.Found)
		}
	}
	return check(OK, name, resource, "the same %s, after %s", count(len(after), "device"), Time(a.Took))
}

// without are those of a sorted list that another one lacks, quoted.
func without(list, other []string) (all []string) {
	for _, id := range list {
		if _, has := slices.BinarySearch(other, id); !has {
			all = append(all, brief(id))
		}
	}
	return all
}

func orNone(list []string) string {
	if len(list) == 0 {
		return "none"
	}
	return some(list)
}

func idsOf(devices []*v1beta1.Device) []string {
	all := make([]string, len(devices))
	for i, d := range devices {
		all[i] = d.GetID()
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// Stream is what a stream of devices was like while the plugin was tried.
type Stream struct {
	Open  time.Duration
	Lists int
	// Ended is how it ended; empty: it is open.
	Ended string
}

// Streamed judges the stream.
func Streamed(resource string, s Stream) Check {
	const name = "list/stream"
	perSecond := float64(s.Lists-1) / max(s.Open.Seconds(), 1)
	switch {
	case s.Ended != "":
		return check(Fail, name, resource, "the stream ended after %s: %s; without it all devices are unhealthy", Time(s.Open), s.Ended)
	case perSecond > 10:
		return check(Warn, name, resource, "%d lists in %s", s.Lists, Time(s.Open))
	}
	return check(OK, name, resource, "open for %s, %s", Time(s.Open), count(s.Lists, "list"))
}
