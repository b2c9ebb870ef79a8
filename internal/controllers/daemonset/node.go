package daemonset

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/pods"
)

// kind is that of daemon sets.
var kind = appsv1.SchemeGroupVersion.WithKind("DaemonSet")

// generationLabel is the label of pods with the number that their template had when they were made.
const generationLabel = "pod-template-generation"

// tolerated are the taints that daemons tolerate, whatever their template says: those of nodes on which something is amiss. Those of the network only who uses
// the node's own network does.
func tolerated(spec *corev1.PodSpec) (all []corev1.Toleration) {
	add := func(effect corev1.TaintEffect, keys ...string) {
		for _, key := range keys {
			all = append(all, corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect})
		}
	}
	add(corev1.TaintEffectNoExecute, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable)
	add(corev1.TaintEffectNoSchedule, corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable)
	if spec.HostNetwork {
		add(corev1.TaintEffectNoSchedule, corev1.TaintNodeNetworkUnavailable)
	}
	return all
}

// daemon is a set's template as its pods are made from it, but for their nodes.
func daemon(set *appsv1.DaemonSet, hash string) *corev1.PodTemplateSpec {
	template := set.Spec.Template.DeepCopy()
	for _, t := range tolerated(&template.Spec) {
		// One of the same taint is replaced: it may end after a time.
		i := slices.IndexFunc(template.Spec.Tolerations, func(other corev1.Toleration) bool { return other.MatchToleration(&t) })
		switch {
		case i < 0:
			template.Spec.Tolerations = append(template.Spec.Tolerations, t)
		case !equality.Semantic.DeepEqual(template.Spec.Tolerations[i], t):
			template.Spec.Tolerations[i] = t
		}
	}
	template.Labels = maps.Clone(template.Labels)
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	if generation, ok := generation(set); ok {
		template.Labels[generationLabel] = generation
	}
	template.Labels[appsv1.ControllerRevisionHashLabelKey] = hash
	return template
}

// generation is the number of a set's template; false: the set has none, or one that is no number.
func generation(set *appsv1.DaemonSet) (string, bool) {
	n, err := strconv.ParseInt(set.Annotations[appsv1.DeprecatedTemplateGeneration], 10, 64)
	return strconv.FormatInt(n, 10), err == nil
}

// newPod is the pod of a set for a node.
func newPod(set *appsv1.DaemonSet, template *corev1.PodTemplateSpec, node string) *corev1.Pod {
	pod := owned.FromTemplate(template, set, kind)
	spec := &pod.Spec
	if spec.Affinity == nil {
		spec.Affinity = &corev1.Affinity{}
	}
	if spec.Affinity.NodeAffinity == nil {
		spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	// What the template requires the node has.
	spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
		MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{node}}},
	}}}
	return pod
}

// target is the node of a pod, or the one that it is to get; empty: that cannot be told.
func target(pod *corev1.Pod) string {
	if pod.Spec.NodeName != "" {
		return pod.Spec.NodeName
	}
	if pod.Spec.Affinity == nil || pod.Spec.Affinity.NodeAffinity == nil || pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, term := range pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, field := range term.MatchFields {
			if field.Key == metav1.ObjectNameField && field.Operator == corev1.NodeSelectorOpIn && len(field.Values) == 1 {
				return field.Values[0]
			}
		}
	}
	return ""
}

// site is a node with the pods that a set has there.
type site struct {
	name string
	// run says that the set is to have a pod there, stay that one that is there may stay.
	run, stay bool
	// pods are the oldest first, those with a node before those without. Those that have ended and go are not among them.
	pods []*corev1.Pod
}

// sites are the nodes by their names, and the pods that wait for a node that is not there.
func sites(template *corev1.PodTemplateSpec, nodes []*corev1.Node, all []*corev1.Pod) (list []*site, lost []*corev1.Pod) {
	fits := nodeaffinity.GetRequiredNodeAffinity(&corev1.Pod{Spec: template.Spec})
	byName := make(map[string]*site, len(nodes))
	for _, node := range nodes {
		at := &site{name: node.Name}
		matches, err := fits.Match(node)
		if matches && err == nil && (template.Spec.NodeName == "" || template.Spec.NodeName == node.Name) {
			at.run, at.stay = tolerates(template.Spec.Tolerations, node.Spec.Taints)
		}
		byName[node.Name] = at
		list = append(list, at)
	}
	for _, pod := range all {
		name := target(pod)
		switch at := byName[name]; {
		case name == "", pod.DeletionTimestamp != nil && pods.Ended(pod):
		case at != nil:
			at.pods = append(at.pods, pod)
		case pod.Spec.NodeName == "":
			lost = append(lost, pod)
		}
	}
	slices.SortFunc(list, func(a, b *site) int { return cmp.Compare(a.name, b.name) })
	for _, at := range list {
		slices.SortFunc(at.pods, older)
	}
	return list, lost
}

// tolerates says whether a pod may begin, and stay, on a node with taints.
func tolerates(tolerations []corev1.Toleration, taints []corev1.Taint) (begin, stay bool) {
	begin, stay = true, true
	for i := range taints {
		if taints[i].Effect == corev1.TaintEffectPreferNoSchedule || pods.Tolerates(tolerations, &taints[i]) != nil {
			continue
		}
		begin = false
		stay = stay && taints[i].Effect != corev1.TaintEffectNoExecute
	}
	return begin, stay
}

func older(a, b *corev1.Pod) int {
	switch has := a.Spec.NodeName != ""; {
	case has == (b.Spec.NodeName != ""):
		return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	case has:
		return -1
	}
	return 1
}
