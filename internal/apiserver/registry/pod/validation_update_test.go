package pod

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods/defaults"
)

func TestLongestNames(t *testing.T) {
	pod := validPod()
	pod.Namespace = strings.Repeat("s", 63)
	pod.Name = strings.Repeat("n", 154)
	if errs := validatePod(pod); len(errs) > 0 {
		t.Errorf("names of 217 bytes: %v", errs)
	}
	pod.Name += "n"
	if errs := validatePod(pod); len(errs) != 1 || errs[0].Field != "metadata.name" || !strings.Contains(errs[0].Detail, "no longer than 154 bytes") {
		t.Errorf("names of 218 bytes: %v", errs)
	}
}

// validPod is a pod with its defaults set that has a part of each kind that a change may be about.
func validPod() *corev1.Pod {
	one := int64(1)
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			InitContainers: []corev1.Container{{Name: "init", Image: "busybox:1"}},
			Containers: []corev1.Container{{
				Name: "web", Image: "registry:5000/web:1", Command: []string{"web"},
				Resources:    corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse("100m")}},
				VolumeMounts: []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}},
			}},
			Volumes:     []corev1.Volume{{Name: "scratch"}},
			Tolerations: []corev1.Toleration{{Key: "k", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &one}},
		},
	}
	defaults.Pod(pod)
	return pod
}

// summary writes errors as "path: type", which is what the tables compare: words may get better.
func summary(errs field.ErrorList) []string {
	var list []string
	for _, err := range errs {
		list = append(list, err.Field+": "+string(err.Type))
	}
	return list
}

func TestValidatePodUpdate(t *testing.T) {
	five, ten := int64(5), int64(10)
	mirror := func(of string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.NodeName, p.Annotations = "n", map[string]string{corev1.MirrorPodAnnotationKey: of}
		}
	}
	cost := func(text string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: text} }
	}
	for name, tc := range map[string]struct {
		old, change func(*corev1.Pod)
		want        []string
	}{
		"nothing":             {nil, func(*corev1.Pod) {}, nil},
		"labels":              {nil, func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, nil},
		"bad label":           {nil, func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b c"} }, []string{"metadata.labels: FieldValueInvalid"}},
		"mirrored":            {nil, func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }, []string{"metadata.annotations[kubernetes.io/config.mirror]: FieldValueForbidden", "metadata.annotations[kubernetes.io/config.mirror]: FieldValueInvalid"}},
		"mirrored on a node":  {func(p *corev1.Pod) { p.Spec.NodeName = "n" }, func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: "x"} }, []string{"metadata.annotations[kubernetes.io/config.mirror]: FieldValueForbidden"}},
		"of another mirror":   {mirror("x"), mirror("y"), []string{"metadata.annotations[kubernetes.io/config.mirror]: FieldValueForbidden"}},
		"no mirror any more":  {mirror("x"), func(p *corev1.Pod) { p.Annotations = nil }, []string{"metadata.annotations[kubernetes.io/config.mirror]: FieldValueForbidden"}},
		"a mirror's label":    {mirror("x"), func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, nil},
		"cost":                {nil, cost("-5"), nil},
		"no cost":             {nil, cost("5 cents"), []string{"metadata.annotations[controller.kubernetes.io/pod-deletion-cost]: FieldValueInvalid"}},
		"no cost as before":   {cost("05"), func(p *corev1.Pod) { p.Labels = map[string]string{"a": "b"} }, nil},
		"image":               {nil, func(p *corev1.Pod) { p.Spec.Containers[0].Image, p.Spec.InitContainers[0].Image = "x", "y" }, nil},
		"no image":            {nil, func(p *corev1.Pod) { p.Spec.Containers[0].Image = "" }, []string{"spec.containers[0].image: FieldValueRequired"}},
		"command":             {nil, func(p *corev1.Pod) { p.Spec.Containers[0].Command = []string{"x"} }, []string{"spec.containers: FieldValueForbidden"}},
		"container added":     {nil, func(p *corev1.Pod) { p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "n"}) }, []string{"spec.containers: FieldValueForbidden"}},
		"node":                {nil, func(p *corev1.Pod) { p.Spec.NodeName = "n" }, []string{"spec.nodeName: FieldValueForbidden"}},
		"restart policy":      {nil, func(p *corev1.Pod) { p.Spec.RestartPolicy = "Never" }, []string{"spec.restartPolicy: FieldValueForbidden"}},
		"deadline of zero":    {nil, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = new(int64) }, []string{"spec.activeDeadlineSeconds: FieldValueInvalid"}},
		"grace":               {nil, func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(1)) }, []string{"spec.terminationGracePeriodSeconds: FieldValueForbidden"}},
		"grace below zero":    {func(p *corev1.Pod) { *p.Spec.TerminationGracePeriodSeconds = -5 }, func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(1)) }, nil},
		"still below zero":    {func(p *corev1.Pod) { *p.Spec.TerminationGracePeriodSeconds = -5 }, func(p *corev1.Pod) { p.Spec.TerminationGracePeriodSeconds = new(int64(2)) }, []string{"spec.terminationGracePeriodSeconds: FieldValueForbidden"}},
		"ephemeral container": {nil, func(p *corev1.Pod) { p.Spec.EphemeralContainers = make([]corev1.EphemeralContainer, 1) }, []string{"spec.ephemeralContainers: FieldValueForbidden"}},
		"probe":               {nil, func(p *corev1.Pod) { p.Spec.Containers[0].LivenessProbe = &corev1.Probe{} }, []string{"spec.containers: FieldValueForbidden"}},
		"deadline set":        {nil, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &ten }, nil},
		"deadline nearer":     {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &ten }, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &five }, nil},
		"deadline farther":    {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &five }, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &ten }, []string{"spec.activeDeadlineSeconds: FieldValueInvalid"}},
		"deadline taken away": {func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = &five }, func(p *corev1.Pod) { p.Spec.ActiveDeadlineSeconds = nil }, []string{"spec.activeDeadlineSeconds: FieldValueInvalid"}},
		"toleration added": {nil, func(p *corev1.Pod) {
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Operator: corev1.TolerationOpExists})
		}, nil},
		"toleration seconds": {nil, func(p *corev1.Pod) { p.Spec.Tolerations[0].TolerationSeconds = &ten }, nil},
		"toleration dropped": {nil, func(p *corev1.Pod) { p.Spec.Tolerations = nil }, []string{"spec.tolerations: FieldValueForbidden"}},
	} {
		t.Run(name, func(t *testing.T) {
			old := validPod()
			old.ResourceVersion = "1"
			if tc.old != nil {
				tc.old(old)
			}
			pod := old.DeepCopy()
			tc.change(pod)
			errs := validatePodUpdate(pod, old)
			if got := summary(errs); !slices.Equal(got, tc.want) {
				t.Errorf("errors %v, want %v", errs, tc.want)
			}
		})
	}
}

// nodes is an affinity to nodes that have one of the labels in each term.
func nodes(terms ...[]string) *corev1.Affinity {
	selector := &corev1.NodeSelector{}
	for _, keys := range terms {
		var term corev1.NodeSelectorTerm
		for _, key := range keys {
			term.MatchExpressions = append(term.MatchExpressions, corev1.NodeSelectorRequirement{Key: key, Operator: corev1.NodeSelectorOpExists})
		}
		selector.NodeSelectorTerms = append(selector.NodeSelectorTerms, term)
	}
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: selector}}
}

// far is an affinity that keeps pods apart by a topology key.
func far(key string) *corev1.PodAntiAffinity {
	return &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{TopologyKey: key}}}
}

func preferring(a *corev1.Affinity, key string) *corev1.Affinity {
	a.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution = []corev1.PreferredSchedulingTerm{{Weight: 1, Preference: corev1.NodeSelectorTerm{
		MatchExpressions: []corev1.NodeSelectorRequirement{{Key: key, Operator: corev1.NodeSelectorOpExists}}}}}
	return a
}

// While a pod is gated it may be narrowed down where it runs; afterwards not.
func TestValidateUpdateOfAGatedPod(t *testing.T) {
	const selector, terms = "spec.nodeSelector: FieldValueInvalid", "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
	type part = func(*corev1.PodSpec)
	affinity := func(a *corev1.Affinity) part { return func(s *corev1.PodSpec) { s.Affinity = a } }
	labels := func(l map[string]string) part { return func(s *corev1.PodSpec) { s.NodeSelector = l } }
	both := func(a, b part) part { return func(s *corev1.PodSpec) { a(s); b(s) } }
	ungated := func(s *corev1.PodSpec) { s.SchedulingGates = nil }
	for name, tc := range map[string]struct {
		old, change part
		want        []string
	}{
		"a gate fewer":              {nil, func(s *corev1.PodSpec) { s.SchedulingGates = s.SchedulingGates[1:] }, nil},
		"no gate":                   {nil, ungated, nil},
		"another gate":              {nil, func(s *corev1.PodSpec) { s.SchedulingGates[1].Name = "c" }, []string{"spec.schedulingGates[1].name: FieldValueForbidden"}},
		"a gate for one without":    {ungated, func(s *corev1.PodSpec) { s.SchedulingGates = []corev1.PodSchedulingGate{{Name: "c"}} }, []string{"spec.schedulingGates[0].name: FieldValueForbidden"}},
		"a label":                   {nil, labels(map[string]string{"a": "b"}), nil},
		"another label":             {labels(map[string]string{"a": "b"}), labels(map[string]string{"a": "b", "c": "d"}), nil},
		"no label":                  {labels(map[string]string{"a": "b"}), labels(nil), []string{selector}},
		"another value":             {labels(map[string]string{"a": "b"}), labels(map[string]string{"a": "c"}), []string{selector}},
		"a bad label":               {nil, labels(map[string]string{"a b": ""}), []string{selector}},
		"a label without gates":     {ungated, labels(map[string]string{"a": "b"}), []string{"spec.nodeSelector: FieldValueForbidden"}},
		"an affinity":               {nil, affinity(nodes([]string{"a"}, []string{"b"})), nil},
		"a wish":                    {affinity(nodes([]string{"a"})), affinity(preferring(nodes([]string{"a"}), "b")), nil},
		"another wish":              {affinity(preferring(nodes([]string{"a"}), "b")), affinity(preferring(nodes([]string{"a"}), "c")), nil},
		"more in a term":            {affinity(nodes([]string{"a"})), affinity(nodes([]string{"a", "b"})), nil},
		"something else in it":      {affinity(nodes([]string{"a", "b"})), affinity(nodes([]string{"a", "c"})), []string{terms + "[0]: FieldValueInvalid"}},
		"less in it":                {affinity(nodes([]string{"a", "b"})), affinity(nodes([]string{"a"})), []string{terms + "[0]: FieldValueInvalid"}},
		"more in an empty term":     {affinity(nodes(nil)), affinity(nodes([]string{"a"})), []string{terms + "[0]: FieldValueInvalid"}},
		"another term":              {affinity(nodes([]string{"a"})), affinity(nodes([]string{"a"}, []string{"b"})), []string{terms + ": FieldValueInvalid"}},
		"no affinity any more":      {affinity(nodes([]string{"a"})), affinity(nil), []string{terms + ": FieldValueInvalid"}},
		"a bad affinity":            {nil, affinity(nodes([]string{"a b"})), []string{terms + "[0].matchExpressions[0].key: FieldValueInvalid"}},
		"an affinity without gates": {ungated, affinity(nodes([]string{"a"})), []string{"spec.affinity: FieldValueForbidden"}},
		"an affinity to pods":       {nil, affinity(&corev1.Affinity{PodAffinity: &corev1.PodAffinity{}}), []string{"spec.affinity: FieldValueForbidden"}},
		"nodes beside pods":         {affinity(&corev1.Affinity{PodAntiAffinity: far("a")}), affinity(&corev1.Affinity{PodAntiAffinity: far("a"), NodeAffinity: nodes([]string{"a"}).NodeAffinity}), nil},
		"other pods":                {affinity(&corev1.Affinity{PodAntiAffinity: far("a")}), affinity(&corev1.Affinity{PodAntiAffinity: far("b")}), []string{"spec.affinity: FieldValueForbidden"}},
		"a spread":                  {nil, func(s *corev1.PodSpec) { s.TopologySpreadConstraints = make([]corev1.TopologySpreadConstraint, 1) }, []string{"spec.topologySpreadConstraints: FieldValueForbidden"}},
		"gates and a label":         {nil, both(ungated, labels(map[string]string{"a": "b"})), nil},
	} {
		t.Run(name, func(t *testing.T) {
			old := validPod()
			old.ResourceVersion = "1"
			old.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "a"}, {Name: "b"}}
			if tc.old != nil {
				tc.old(&old.Spec)
			}
			pod := old.DeepCopy()
			tc.change(&pod.Spec)
			errs := validatePodUpdate(pod, old)
			if got := summary(errs); !slices.Equal(got, tc.want) {
				t.Errorf("errors %v, want %v", errs, tc.want)
			}
		})
	}
}
