package pod

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestValidateStatusUpdate(t *testing.T) {
	running := corev1.PodStatus{Phase: corev1.PodRunning}
	for name, tc := range map[string]struct {
		old, new corev1.PodStatus
		want     []string
	}{
		"running":   {corev1.PodStatus{}, running, nil},
		"phase":     {corev1.PodStatus{}, corev1.PodStatus{Phase: "Fine"}, []string{"status.phase: FieldValueNotSupported"}},
		"quality":   {corev1.PodStatus{QOSClass: "Burstable"}, corev1.PodStatus{QOSClass: "Guaranteed"}, []string{"status.qosClass: FieldValueInvalid"}},
		"address":   {corev1.PodStatus{}, corev1.PodStatus{PodIPs: []corev1.PodIP{{IP: "here"}}}, []string{"status.podIPs[0]: FieldValueInvalid"}},
		"nominee":   {corev1.PodStatus{}, corev1.PodStatus{NominatedNodeName: "a b"}, []string{"status.nominatedNodeName: FieldValueInvalid"}},
		"condition": {corev1.PodStatus{}, corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, ObservedGeneration: 2}, {Type: "example.com/Lit"}}}, nil},
		"bad condition": {corev1.PodStatus{}, corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: "not good", ObservedGeneration: -1}}},
			[]string{"status.conditions[0].observedGeneration: FieldValueInvalid", "status.conditions[0].type: FieldValueInvalid"}},
		"generation": {corev1.PodStatus{}, corev1.PodStatus{ObservedGeneration: -1}, []string{"status.observedGeneration: FieldValueInvalid"}},
	} {
		t.Run(name, func(t *testing.T) {
			old := validPod()
			old.ResourceVersion = "1"
			pod := old.DeepCopy()
			old.Status, pod.Status = tc.old, tc.new
			errs := validateStatusUpdate(pod, old)
			if got := summary(errs); !slices.Equal(got, tc.want) {
				t.Errorf("errors %v, want %v", errs, tc.want)
			}
		})
	}
}

// A container that has ended is said to run again only if something starts it again.
func TestOnlyWhatIsStartedAgainComesBack(t *testing.T) {
	type spec = func(*corev1.PodSpec)
	pod := func(p corev1.RestartPolicy) spec { return func(s *corev1.PodSpec) { s.RestartPolicy = p } }
	own := func(p corev1.ContainerRestartPolicy, rules ...corev1.ContainerRestartRule) spec {
		return func(s *corev1.PodSpec) {
			s.RestartPolicy = corev1.RestartPolicyNever
			s.Containers[0].RestartPolicy, s.Containers[0].RestartPolicyRules = &p, rules
		}
	}
	rule := func(action corev1.ContainerRestartRuleAction, code int32) corev1.ContainerRestartRule {
		return corev1.ContainerRestartRule{Action: action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: []int32{code}}}
	}
	for name, tc := range map[string]struct {
		spec      spec
		container string
		code      int32
		may       bool
	}{
		"always":                  {pod(corev1.RestartPolicyAlways), "web", 0, true},
		"never":                   {pod(corev1.RestartPolicyNever), "web", 1, false},
		"after a failure":         {pod(corev1.RestartPolicyOnFailure), "web", 1, true},
		"after no failure":        {pod(corev1.RestartPolicyOnFailure), "web", 0, false},
		"its own policy":          {own(corev1.ContainerRestartPolicyAlways), "web", 0, true},
		"its own policy, failed":  {own(corev1.ContainerRestartPolicyOnFailure), "web", 0, false},
		"its own rule":            {own(corev1.ContainerRestartPolicyNever, rule(corev1.ContainerRestartRuleActionRestart, 42)), "web", 42, true},
		"no rule":                 {own(corev1.ContainerRestartPolicyNever, rule(corev1.ContainerRestartRuleActionRestart, 42)), "web", 41, false},
		"another one's rule":      {own(corev1.ContainerRestartPolicyNever, rule(corev1.ContainerRestartRuleActionRestart, 42)), "init", 42, false},
		"all containers":          {own(corev1.ContainerRestartPolicyNever, rule(corev1.ContainerRestartRuleActionRestartAllContainers, 42)), "init", 0, true},
		"an init container":       {pod(corev1.RestartPolicyOnFailure), "init", 1, true},
		"an init container, done": {pod(corev1.RestartPolicyOnFailure), "init", 0, false},
		"a sidecar": {func(s *corev1.PodSpec) {
			s.RestartPolicy, s.InitContainers[0].RestartPolicy = corev1.RestartPolicyNever, new(corev1.ContainerRestartPolicyAlways)
		}, "init", 0, true},
		"an ephemeral container": {own(corev1.ContainerRestartPolicyNever, rule(corev1.ContainerRestartRuleActionRestartAllContainers, 42)), "debugger", 42, false},
	} {
		t.Run(name, func(t *testing.T) {
			old := validPod()
			old.ResourceVersion = "1"
			old.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debugger"}}}
			tc.spec(&old.Spec)
			pod := old.DeepCopy()
			for p, state := range map[*corev1.Pod]corev1.ContainerState{old: ended("", tc.code, 0), pod: running()} {
				list := []corev1.ContainerStatus{{Name: tc.container, State: state}}
				switch tc.container {
				case "init":
					p.Status.InitContainerStatuses = list
				case "debugger":
					p.Status.EphemeralContainerStatuses = list
				default:
					p.Status.ContainerStatuses = list
				}
			}
			errs := validateStatusUpdate(pod, old)
			if got := len(errs) == 0; got != tc.may {
				t.Errorf("it may: %t (%v), want %t", got, errs, tc.may)
			}
		})
	}
}
