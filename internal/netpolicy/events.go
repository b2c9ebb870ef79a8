package netpolicy

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/record"

	"monopod.dev/monopod/internal/netpolicy/compile"
)

// The reasons of events.
const (
	// NotEnforced: nothing holds back what the policy forbids.
	NotEnforced = "NetworkPolicyNotEnforced"
	// NotUnderstood: a part of the policy lets nothing pass, because it cannot be read.
	NotUnderstood = "NetworkPolicyNotUnderstood"
)

func newRecorder(events record.EventBroadcaster) record.EventRecorder {
	return events.NewRecorder(clientscheme.Scheme, corev1.EventSource{Component: component})
}

// tell says of each policy what is wrong with it, or with this node, once.
func (r *Role) tell(problems []compile.Problem, unable error) {
	if len(problems) == 0 && unable == nil {
		clear(r.told)
		return
	}
	wrong := map[types.UID]string{}
	reason := NotUnderstood
	for _, p := range problems {
		wrong[p.Policy.UID] += p.Text + "; "
	}
	if unable != nil {
		reason = NotEnforced
		for _, p := range r.policies {
			wrong[p.UID] = "this node does not enforce it: " + unable.Error()
		}
	}
	said := map[types.UID]string{}
	for _, p := range r.policies {
		text := wrong[p.UID]
		if text == "" {
			continue
		}
		if said[p.UID] = text; r.told[p.UID] != text {
			r.recorder.Event(p, corev1.EventTypeWarning, reason, text)
		}
	}
	r.told = said
}
