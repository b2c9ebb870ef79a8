package topology

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// How a pod that is refused is marked: its phase is Failed, with the reason and message that a kubelet gives.
const (
	ReasonAffinity  = "TopologyAffinityError"
	MessageAffinity = "Resources cannot be allocated with Topology locality"
)

// AffinityError is a policy's refusal. It is an errdefs.ErrFailedPrecondition.
type AffinityError struct {
	Policy Policy
	Scope  Scope
	// Wants are the requests that have a preference, in the order in which they were given.
	Wants []Want
}

// Want is what one of the requests could have been met from.
type Want struct {
	Resource string
	Count    int
	// Nodes are the smallest sets of NUMA nodes, by ids, that it could be met from. None: too few devices that know their nodes are free.
	Nodes [][]int
	// Admissible: for this request alone the policy admits them.
	Admissible bool
}

// Reason is ReasonAffinity, of the pod's status.
func (e *AffinityError) Reason() string { return ReasonAffinity }

// Message is MessageAffinity, of the pod's status. Error says more.
func (e *AffinityError) Message() string { return MessageAffinity }

// Unwrap gives the error's class.
func (e *AffinityError) Unwrap() error { return errdefs.ErrFailedPrecondition }

// Error says from where each request could have been met.
func (e *AffinityError) Error() string {
	var wants []string
	for _, w := range e.Wants {
		wants = append(wants, w.String())
	}
	return fmt.Sprintf("topology policy %s finds no NUMA nodes for the devices of this %s: %s (free devices there, or use the policy %s)",
		e.Policy, e.Scope, strings.Join(wants, "; "), BestEffort)
}

// manySets is how many sets of nodes are named.
const manySets = 4

// String is one request in words, as "2 vendor.com/gpu from 0+1 or 2+3".
func (w Want) String() string {
	text := fmt.Sprintf("%d %s ", w.Count, w.Resource)
	if len(w.Nodes) == 0 {
		return text + "from none, for too few that are free know their node"
	}
	var sets []string
	for _, ids := range w.Nodes[:min(len(w.Nodes), manySets)] {
		var words []string
		for _, id := range ids {
			words = append(words, strconv.Itoa(id))
		}
		sets = append(sets, strings.Join(words, "+"))
	}
	if !w.Admissible {
		text += "now only "
	}
	text += "from " + strings.Join(sets, " or ")
	if more := len(w.Nodes) - manySets; more > 0 {
		text += fmt.Sprintf(" or %d more", more)
	}
	return text
}

func (a *Aligner) refusal(all []Hints) *AffinityError {
	e := &AffinityError{Policy: a.policy, Scope: a.scope}
	for _, h := range all {
		w := Want{Resource: h.Resource, Count: h.Count, Admissible: slices.ContainsFunc(h.Sets, a.admissible)}
		sets := make([]Mask, 0, len(h.Sets))
		for _, s := range h.Sets {
			sets = append(sets, s.Mask)
		}
		slices.SortFunc(sets, func(x, y Mask) int { return a.compare(x, y, 0) })
		for _, m := range sets {
			if m.Count() == sets[0].Count() {
				w.Nodes = append(w.Nodes, a.IDs(m))
			}
		}
		e.Wants = append(e.Wants, w)
	}
	return e
}
