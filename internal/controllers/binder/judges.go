package binder

import (
	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods/allocated"
)

// judge is about one of the things that a pod needs of a node. It is asked once for a pod, with what there is to know of all nodes, and what it returns is asked of
// each node. nil: the pod needs nothing of the kind. Its reasons are kube-scheduler's.
type judge func(known *survey) verdict

// verdict tells why a pod cannot run on a node; nil: it can.
type verdict func(at place) []lack

// judges are all of them, each in a file of its own. As with kube-scheduler the first that has something against a node speaks, since a node that is cordoned need
// not be told that it is also short of memory. What the node has for the pod comes last: who is kept from it by others does not wait for its devices.
var judges = []judge{
	byNode(nodeIsReady),
	byNode(nodeIsSchedulable),
	byNode(taintsAreTolerated),
	byNode(selectorMatches),
	portsAreFree,
	volumesAreReachable,
	spreadsAreKept,
	companyIsRight,
	resourcesAreThere,
}

// lack is one reason why a pod cannot run on a node now.
type lack struct {
	why string
	// devices: it is for want of devices, for which pods stand in line.
	devices bool
	// behind is the pod that stands before it in line, where that is all.
	behind *corev1.Pod
	// everywhere: it is none of the node's, and it is told once for all of them.
	everywhere bool
}

// lacking is a single reason; empty: none.
func lacking(why string) []lack {
	if why == "" {
		return nil
	}
	return []lack{{why: why}}
}

// byNode is a judge who looks at nothing but the pod and the node itself.
func byNode(why func(*corev1.Pod, place) string) judge {
	return func(known *survey) verdict {
		return func(at place) []lack { return lacking(why(known.pod, at)) }
	}
}

// survey is what there is to know of all places together before a pod is fitted to one of them.
type survey struct {
	in       cluster
	pod      *corev1.Pod
	company  company
	claims   *claims
	verdicts []verdict
	// obstacle is why the pod can run nowhere, whatever nodes there are; empty: nothing.
	obstacle string
}

func (c cluster) survey(pod *corev1.Pod) *survey {
	known := &survey{in: c, pod: pod, company: c.company(pod)}
	known.claims, known.obstacle = c.claims(pod)
	for _, ask := range judges {
		if v := ask(known); v != nil {
			known.verdicts = append(known.verdicts, v)
		}
	}
	return known
}

// fit tells why the pod cannot run on a node; nil says that it can.
func (known *survey) fit(at place) []lack {
	if known.obstacle != "" {
		return []lack{{why: known.obstacle, everywhere: true}}
	}
	for _, why := range known.verdicts {
		if lacks := why(at); lacks != nil {
			return lacks
		}
	}
	return nil
}

// resourcesAreThere is the judge of what a node has for a pod.
func resourcesAreThere(known *survey) verdict {
	wanted := allocated.Of(known.pod).Requests()
	return func(at place) []lack { return resourcesSuffice(wanted, at) }
}
