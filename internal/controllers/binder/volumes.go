package binder

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/component-helpers/storage/ephemeral"
	helpers "k8s.io/component-helpers/storage/volume"

	"monopod.dev/monopod/internal/controllers/binder/errand"
	"monopod.dev/monopod/internal/pods"
)

// storage is what is known of claims and volumes. Nothing of what it returns may be changed; nil: there is none.
type storage interface {
	Claim(name types.NamespacedName) *corev1.PersistentVolumeClaim
	Volume(name string) *corev1.PersistentVolume
	Class(name string) *storagev1.StorageClass
	// offers are the volumes of a class that a claim may get: those that are free, and those that are kept for it.
	offers(class string, claim *corev1.PersistentVolumeClaim) []*corev1.PersistentVolume
	// used says whether a pod that has its place has the claim.
	used(claim types.NamespacedName) bool
}

// claims is what the claims of a pod have to do with its node.
type claims struct {
	storage storage
	// bound are the volumes of those that have one; lost: one of these is not there.
	bound []*corev1.PersistentVolume
	lost  bool
	zones []zone
	// late are those that get a volume when the pod gets its node, the smallest first.
	late []late
	// taken: another pod has one that is for one pod alone.
	taken bool
	// refused is what a provisioner has against making one of them; empty: nothing.
	refused string
}

// late is a claim whose volume depends on the node of its first pod.
type late struct {
	*corev1.PersistentVolumeClaim
	// node is the one for which its volume is being made; empty: that has not been said. A node that there no longer is does not count: nobody would make it.
	node string
}

// zone is a label of a volume that a node must have with one of some values, if it has any of the kind.
type zone struct {
	keys   []string
	values []string
}

// claims looks at a pod's claims; nil: it has none. obstacle is why it can run nowhere for the sake of them, in the words of kube-scheduler; empty: nothing.
func (c cluster) claims(pod *corev1.Pod) (of *claims, obstacle string) {
	names := pods.Claims(pod)
	if len(names) == 0 {
		return nil, ""
	}
	of = &claims{storage: c.storage}
	some := make([]*corev1.PersistentVolumeClaim, len(names))
	for i, name := range names {
		if some[i] = c.storage.Claim(name.NamespacedName); some[i] == nil && !name.Own { // before anything is said of others
			return of, fmt.Sprintf("persistentvolumeclaim %q not found", name.Name)
		}
	}
	for i, name := range names {
		if why := unready(pod, some[i], name); why != "" {
			return of, why
		}
	}
	return of, of.sort(c, names, some)
}

// unready is why a claim is none that a pod can run with, now or ever.
func unready(pod *corev1.Pod, claim *corev1.PersistentVolumeClaim, name pods.ClaimName) string {
	switch {
	case claim == nil:
		return fmt.Sprintf("waiting for ephemeral volume controller to create the persistentvolumeclaim %q", name.Name)
	case claim.Status.Phase == corev1.ClaimLost:
		return fmt.Sprintf("persistentvolumeclaim %q bound to non-existent persistentvolume %q", claim.Name, claim.Spec.VolumeName)
	case claim.DeletionTimestamp != nil:
		return fmt.Sprintf("persistentvolumeclaim %q is being deleted", claim.Name)
	case name.Own:
		if err := ephemeral.VolumeIsForPod(pod, claim); err != nil {
			return err.Error()
		}
	}
	return ""
}

// sort tells claims that have a volume from those that get one later. obstacle: there are others.
func (of *claims) sort(c cluster, names []pods.ClaimName, some []*corev1.PersistentVolumeClaim) (obstacle string) {
	for i, claim := range some {
		if !of.taken && slices.Contains(claim.Spec.AccessModes, corev1.ReadWriteOncePod) {
			of.taken = of.storage.used(names[i].NamespacedName)
		}
		switch {
		case errand.IsBound(claim):
			v := of.storage.Volume(claim.Spec.VolumeName)
			switch {
			case v != nil:
				of.bound = append(of.bound, v)
				of.zones = append(of.zones, zonesOf(v)...)
			case names[i].Own:
				of.lost = true
			case obstacle == "":
				obstacle = fmt.Sprintf("persistentvolume %q not found", claim.Spec.VolumeName)
			}
		case of.waits(claim):
			node := claim.Annotations[helpers.AnnSelectedNode]
			if !slices.ContainsFunc(c.places, func(at place) bool { return at.node.Name == node }) {
				node = ""
			}
			of.late = append(of.late, late{claim, node})
			if node != "" { // who makes it there has said so, and makes it when that has become possible
				of.refused = cmp.Or(of.refused, errand.Refusal(claim))
			}
		default:
			of.refused = cmp.Or(of.refused, errand.Refusal(claim))
			obstacle = "pod has unbound immediate PersistentVolumeClaims"
		}
	}
	slices.SortStableFunc(of.late, func(a, b late) int {
		x, y := a.Spec.Resources.Requests[corev1.ResourceStorage], b.Spec.Resources.Requests[corev1.ResourceStorage]
		return x.Cmp(y)
	})
	return cmp.Or(of.refused, obstacle)
}

// waits says whether a claim gets its volume only when a pod that has it gets its node.
func (of *claims) waits(claim *corev1.PersistentVolumeClaim) bool {
	name := helpers.GetPersistentVolumeClaimClass(claim)
	if name == "" || claim.Spec.VolumeName != "" {
		return false
	}
	class := of.storage.Class(name)
	return class != nil && class.VolumeBindingMode != nil && *class.VolumeBindingMode == storagev1.VolumeBindingWaitForFirstConsumer
}

// The labels of zones and regions, each with the one by which nodes are also known.
var topologies = [][]string{
	{corev1.LabelFailureDomainBetaZone, corev1.LabelTopologyZone},
	{corev1.LabelFailureDomainBetaRegion, corev1.LabelTopologyRegion},
	{corev1.LabelTopologyZone},
	{corev1.LabelTopologyRegion},
}

// zonesOf are those that a volume's labels say. Several values of one are written with two low lines between them.
func zonesOf(v *corev1.PersistentVolume) (all []zone) {
	if len(v.Labels) == 0 {
		return nil
	}
	for _, keys := range topologies {
		values := strings.Split(v.Labels[keys[0]], "__")
		for i := range values {
			values[i] = strings.TrimSpace(values[i])
		}
		if !slices.Contains(values, "") { // which nobody can mean
			all = append(all, zone{keys, values})
		}
	}
	return all
}

// The reasons of kube-scheduler's plugins for volumes.
const (
	lacksAccess   = "node(s) unavailable due to PersistentVolumeClaim with ReadWriteOncePod access mode already in-use by another pod"
	lacksAffinity = "node(s) didn't match PersistentVolume's node affinity"
	lacksVolumes  = "node(s) didn't find available persistent volumes to bind"
	lacksVolume   = "node(s) unavailable due to one or more pvc(s) bound to non-existent pv(s)"
	lacksZone     = "node(s) had no available volume zone"
)

// on is what is to be done about the claims on a node, or why the pod cannot run there for the sake of them. As with kube-scheduler, which asks several plugins,
// the one that has something against the node says all of its reasons.
func (of *claims) on(node *corev1.Node) (p errand.Plan, lacks []string) {
	if of.taken {
		return errand.Plan{}, []string{lacksAccess}
	}
	if slices.ContainsFunc(of.bound, func(v *corev1.PersistentVolume) bool { return helpers.CheckNodeAffinity(v, node.Labels) != nil }) {
		lacks = append(lacks, lacksAffinity)
	}
	p, ok := of.plan(node)
	if !ok {
		lacks = append(lacks, lacksVolumes)
	}
	if of.lost {
		lacks = append(lacks, lacksVolume)
	}
	if lacks == nil && !of.inZones(node) {
		lacks = append(lacks, lacksZone)
	}
	if lacks != nil {
		return errand.Plan{}, lacks
	}
	return p, nil
}

// plan finds volumes on a node for those that have none: one that is there, else one that can be made.
func (of *claims) plan(node *corev1.Node) (p errand.Plan, ok bool) {
	var given map[string]*corev1.PersistentVolume
	for _, claim := range of.late {
		if claim.node != "" && claim.node != node.Name {
			return errand.Plan{}, false
		}
		if claim.node == "" {
			class := helpers.GetPersistentVolumeClaimClass(claim.PersistentVolumeClaim)
			v, err := helpers.FindMatchingVolume(claim.PersistentVolumeClaim, of.storage.offers(class, claim.PersistentVolumeClaim), node, given, true, true)
			if err == nil && v != nil { // a selector that cannot be read means no volume
				if given == nil {
					given = map[string]*corev1.PersistentVolume{}
				}
				given[v.Name] = v
				p.Gives = append(p.Gives, errand.Give{Claim: claim.PersistentVolumeClaim, Volume: v})
				continue
			}
		}
		if !of.canBeMade(claim.PersistentVolumeClaim, node) {
			return errand.Plan{}, false
		}
		p.Makes = append(p.Makes, claim.PersistentVolumeClaim)
	}
	return p, true
}

// canBeMade says whether somebody may make a volume for a claim that a node can have.
func (of *claims) canBeMade(claim *corev1.PersistentVolumeClaim, node *corev1.Node) bool {
	class := of.storage.Class(helpers.GetPersistentVolumeClaimClass(claim))
	if class == nil || class.Provisioner == "" || class.Provisioner == helpers.NotSupportedProvisioner {
		return false
	}
	return len(class.AllowedTopologies) == 0 || slices.ContainsFunc(class.AllowedTopologies, func(term corev1.TopologySelectorTerm) bool {
		return len(term.MatchLabelExpressions) > 0 && !slices.ContainsFunc(term.MatchLabelExpressions, func(r corev1.TopologySelectorLabelRequirement) bool {
			value, has := node.Labels[r.Key]
			return !has || !slices.Contains(r.Values, value)
		})
	})
}

// inZones says whether a node is where the volumes are. One that is in no zone or region is in all of them.
func (of *claims) inZones(node *corev1.Node) bool {
	if len(of.zones) == 0 || !slices.ContainsFunc(topologies, func(keys []string) bool { _, has := node.Labels[keys[0]]; return has }) {
		return true
	}
	return !slices.ContainsFunc(of.zones, func(z zone) bool {
		var value string
		for _, key := range z.keys {
			value = cmp.Or(value, node.Labels[key])
		}
		return !slices.Contains(z.values, value)
	})
}

// volumesAreReachable is the judge of a pod's claims.
func volumesAreReachable(known *survey) verdict {
	if known.claims == nil {
		return nil
	}
	return func(at place) (lacks []lack) {
		_, whys := known.claims.on(at.node)
		for _, why := range whys {
			lacks = append(lacks, lack{why: why})
		}
		return lacks
	}
}

// plan is what has to become of a pod's claims before it is bound to a node that it can have. It looks at claims and volumes again: false says that they have changed
// since the node was chosen, so that the pod can't have it any more.
func (c cluster) plan(pod *corev1.Pod, name string) (p errand.Plan, ok bool) {
	of, obstacle := c.claims(pod)
	if of == nil || obstacle != "" {
		return errand.Plan{}, obstacle == ""
	}
	for _, at := range c.places {
		if at.node.Name == name {
			p, lacks := of.on(at.node)
			return p, len(lacks) == 0
		}
	}
	return errand.Plan{}, false
}
