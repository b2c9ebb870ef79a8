package netpolicy

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/containerd/errdefs"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/kit/ids"
)

// Endpoint is a sandbox on the node's network.
type Endpoint struct {
	SandboxID ids.SandboxID
	// Namespace, Name and UID are those of its pod; empty where nobody remembers them.
	Namespace, Name string
	UID             types.UID
	Addresses       []netip.Addr
}

// How long a sandbox waits for what is to hold for its traffic, and for the API to tell of its pod: the watch of the agent may be ahead of this one, but not by
// much.
const (
	settleTime = 10 * time.Second
	podTime    = 2 * time.Second
)

// Connecting is told of a sandbox as soon as its addresses are known. It does not wait; what it returns does, until the policies that select the pod hold. Of a
// pod that the API does not tell of it waits no more than a moment: nothing passes from and to its address then, until the API does.
//
// Errors: Unavailable (it is not known in time which policies there are, or they cannot be enforced in time).
func (r *Role) Connecting(e Endpoint) (settled func(context.Context) error) {
	r.mu.Lock()
	before := r.facts.endpoints[e.SandboxID]
	news := before == nil || !slices.Equal(before.Addresses, e.Addresses) || before.UID != e.UID
	if news {
		r.facts.connect(e)
	}
	idle := r.facts.policiesKnown && len(r.facts.policies) == 0
	r.mu.Unlock()
	if !idle && news {
		r.poke()
	}
	return func(ctx context.Context) error { return r.wait(ctx, e) }
}

// Disconnected is told that the addresses of sandboxes are nobody's any more.
func (r *Role) Disconnected(gone ...ids.SandboxID) {
	r.mu.Lock()
	for _, id := range gone {
		r.facts.disconnect(id)
	}
	idle := r.facts.policiesKnown && len(r.facts.policies) == 0
	r.mu.Unlock()
	if !idle {
		r.poke()
	}
}

// wait returns when what is to hold for a sandbox does.
func (r *Role) wait(ctx context.Context, e Endpoint) error {
	var limit, unknown <-chan time.Time
	for {
		r.mu.Lock()
		done, changed := r.holds(e), r.changed
		r.mu.Unlock()
		if done {
			return nil
		}
		if limit == nil { // most never come here
			limit, unknown = time.After(settleTime), time.After(podTime)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		case <-unknown:
			unknown = nil
			if r.unknown(e) {
				r.log.WarnContext(ctx, "the API knows no such pod, so nothing but the node reaches it, nor it anything, until it does, because there are network policies",
					"pod", e.Namespace+"/"+e.Name, "uid", e.UID, "sandbox", e.SandboxID)
				return nil
			}
		case <-limit:
			return fmt.Errorf("pod %s/%s: %w: %w", e.Namespace, e.Name, errNotYet, errdefs.ErrUnavailable)
		}
	}
}

// holds says whether there is nothing to wait for. It is called with the lock held.
func (r *Role) holds(e Endpoint) bool {
	if r.facts.policiesKnown && len(r.facts.policies) == 0 || r.unable != nil {
		return true
	}
	of := r.facts.endpoints[e.SandboxID]
	return of != nil && of.settled
}

// unknown says that the rules hold, and that the API does not tell of the pod.
func (r *Role) unknown(e Endpoint) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.facts.podsKnow || !r.enforced {
		return false
	}
	return r.facts.pods[e.UID] == nil && r.facts.mirrors[e.static()] == ""
}
