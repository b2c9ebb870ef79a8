package validation

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/pods/defaults"
)

// lines writes errors as "path: type: what is said", in their order.
func lines(errs field.ErrorList) (list []string) {
	for _, err := range errs {
		list = append(list, fmt.Sprintf("%s: %s: %s", err.Field, err.Type, err.Detail))
	}
	return list
}

// specCase is a change of a valid pod, and what is said of it. Of long lists of what would be right, the beginning is enough.
type specCase struct {
	change func(*corev1.PodSpec)
	want   []string
}

func run(t *testing.T, cases map[string]specCase) {
	t.Helper()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			pod := validPod()
			tc.change(&pod.Spec)
			defaults.Pod(pod)
			got := lines(Spec(&pod.Spec, field.NewPath("spec")))
			if !slices.EqualFunc(got, tc.want, strings.HasPrefix) || len(got) != len(tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func exec(command ...string) *corev1.ExecAction { return &corev1.ExecAction{Command: command} }

func sidecar(s *corev1.PodSpec) *corev1.Container {
	s.InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicyAlways)
	return &s.InitContainers[0]
}

func TestProbes(t *testing.T) {
	const live, ready, startup = "spec.containers[0].livenessProbe", "spec.containers[0].readinessProbe", "spec.containers[0].startupProbe"
	liveness := func(p corev1.Probe) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) { s.Containers[0].LivenessProbe = &p }
	}
	does := func(h corev1.ProbeHandler) func(*corev1.PodSpec) { return liveness(corev1.Probe{ProbeHandler: h}) }
	get := func(h corev1.HTTPGetAction) func(*corev1.PodSpec) { return does(corev1.ProbeHandler{HTTPGet: &h}) }
	run(t, map[string]specCase{
		"each kind": {func(s *corev1.PodSpec) {
			c := &s.Containers[0]
			c.LivenessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: exec("true")}, TerminationGracePeriodSeconds: new(int64(1))}
			c.ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{
				Port: intstr.FromString("http"), Scheme: corev1.URISchemeHTTPS, HTTPHeaders: []corev1.HTTPHeader{{Name: "X-A", Value: "b"}}}}, SuccessThreshold: 3}
			c.StartupProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1}}, InitialDelaySeconds: 5, TimeoutSeconds: 5, PeriodSeconds: 5, FailureThreshold: 30}
			sidecar(s).ReadinessProbe = &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(65535)}}}
		}, nil},
		"nothing": {liveness(corev1.Probe{}), []string{live + ": Required value: must specify a handler type"}},
		"two kinds": {does(corev1.ProbeHandler{Exec: exec("true"), GRPC: &corev1.GRPCAction{Port: 1}}),
			[]string{live + ".grpc: Forbidden: may not specify more than 1 handler type"}},
		"no command":  {does(corev1.ProbeHandler{Exec: exec()}), []string{live + ".exec.command: Required value: "}},
		"no port":     {does(corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{}}), []string{live + ".tcpSocket.port: Invalid value: must be between 1 and 65535, inclusive"}},
		"a high port": {does(corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 65536}}), []string{live + ".grpc.port: Invalid value: must be between 1 and 65535, inclusive"}},
		"port name":   {get(corev1.HTTPGetAction{Port: intstr.FromString("a_b")}), []string{live + ".httpGet.port: Invalid value: must contain only alpha-numeric"}},
		"scheme": {get(corev1.HTTPGetAction{Port: intstr.FromInt32(1), Scheme: "http"}),
			[]string{live + `.httpGet.scheme: Unsupported value: supported values: "HTTP", "HTTPS"`}},
		"header": {get(corev1.HTTPGetAction{Port: intstr.FromInt32(1), HTTPHeaders: []corev1.HTTPHeader{{Name: "a b"}}}),
			[]string{live + ".httpGet.httpHeaders: Invalid value: a valid HTTP header must consist of"}},
		"negative": {liveness(corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: exec("true")}, InitialDelaySeconds: -1, TimeoutSeconds: -1, PeriodSeconds: -1, FailureThreshold: -1}),
			[]string{live + ".initialDelaySeconds: Invalid value: must be greater than or equal to 0", live + ".timeoutSeconds: Invalid value: must be greater than or equal to 0",
				live + ".periodSeconds: Invalid value: must be greater than or equal to 0", live + ".failureThreshold: Invalid value: must be greater than or equal to 0"}},
		"successes": {func(s *corev1.PodSpec) {
			p := corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: exec("true")}, SuccessThreshold: 2}
			s.Containers[0].LivenessProbe, s.Containers[0].ReadinessProbe, s.Containers[0].StartupProbe = &p, p.DeepCopy(), p.DeepCopy()
		}, []string{live + ".successThreshold: Invalid value: must be 1", startup + ".successThreshold: Invalid value: must be 1"}},
		"grace": {func(s *corev1.PodSpec) {
			p := corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: exec("true")}, TerminationGracePeriodSeconds: new(int64(0))}
			s.Containers[0].LivenessProbe, s.Containers[0].ReadinessProbe, s.Containers[0].StartupProbe = &p, p.DeepCopy(), p.DeepCopy()
			*s.Containers[0].ReadinessProbe.TerminationGracePeriodSeconds = 5
		}, []string{live + ".terminationGracePeriodSeconds: Invalid value: must be greater than 0",
			ready + ".terminationGracePeriodSeconds: Invalid value: must not be set for readinessProbes",
			startup + ".terminationGracePeriodSeconds: Invalid value: must be greater than 0"}},
		"of an init container": {func(s *corev1.PodSpec) {
			p := &corev1.Probe{ProbeHandler: corev1.ProbeHandler{Exec: exec("true")}}
			s.InitContainers[0].LivenessProbe, s.InitContainers[0].ReadinessProbe, s.InitContainers[0].StartupProbe = p, p, p
		}, []string{"spec.initContainers[0].livenessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
			"spec.initContainers[0].readinessProbe: Forbidden: may not be set for init containers without restartPolicy=Always",
			"spec.initContainers[0].startupProbe: Forbidden: may not be set for init containers without restartPolicy=Always"}},
		"HTTP/2":       {get(corev1.HTTPGetAction{Port: intstr.FromInt32(1), Protocol: new(corev1.HTTPProtocolHTTP2)}), []string{live + ".httpGet.protocol: Forbidden: " + NotSupported}},
		"gRPC by TLS":  {does(corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1, Mode: new(corev1.GRPCProbeModeTLS)}}), []string{live + ".grpc.mode: Forbidden: " + NotSupported}},
		"gRPC, plain":  {does(corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: 1, Mode: new(corev1.GRPCProbeModePlaintext)}}), nil},
		"HTTP, of old": {get(corev1.HTTPGetAction{Port: intstr.FromInt32(1), Protocol: new(corev1.HTTPProtocolHTTP1)}), nil},
	})
}

func TestLifecycle(t *testing.T) {
	const at = "spec.containers[0].lifecycle"
	hooks := func(start, stop *corev1.LifecycleHandler) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.Containers[0].Lifecycle = &corev1.Lifecycle{PostStart: start, PreStop: stop}
		}
	}
	sleep := func(seconds int64) func(*corev1.PodSpec) {
		return hooks(nil, &corev1.LifecycleHandler{Sleep: &corev1.SleepAction{Seconds: seconds}})
	}
	const longest = at + ".preStop.sleep: Invalid value: must be non-negative and less than terminationGracePeriodSeconds (30)"
	run(t, map[string]specCase{
		"commands": {hooks(&corev1.LifecycleHandler{Exec: exec("a")}, &corev1.LifecycleHandler{Exec: exec("b")}), nil},
		"requests": {hooks(&corev1.LifecycleHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("http")}},
			&corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{Port: intstr.FromInt32(80)}}), nil},
		"no sleep":     {sleep(0), nil},
		"all the time": {sleep(30), nil},
		"longer":       {sleep(31), []string{longest}},
		"backwards":    {sleep(-1), []string{longest}},
		"nothing":      {hooks(&corev1.LifecycleHandler{}, nil), []string{at + ".postStart: Required value: must specify a handler type"}},
		"two kinds":    {hooks(nil, &corev1.LifecycleHandler{Exec: exec("a"), Sleep: &corev1.SleepAction{}}), []string{at + ".preStop.sleep: Forbidden: may not specify more than 1 handler type"}},
		"bad request":  {hooks(nil, &corev1.LifecycleHandler{HTTPGet: &corev1.HTTPGetAction{}}), []string{at + ".preStop.httpGet.port: Invalid value: must be between 1 and 65535"}},
		"of a sidecar": {func(s *corev1.PodSpec) {
			sidecar(s).Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{Exec: exec("a")}}
		}, nil},
		"of an init one": {func(s *corev1.PodSpec) { s.InitContainers[0].Lifecycle = &corev1.Lifecycle{} }, []string{"spec.initContainers[0].lifecycle: Forbidden: may not be set for init containers without restartPolicy=Always"}},
		"stop signal without a system": {func(s *corev1.PodSpec) { stopSignal(s, "SIGUSR1"); s.OS = nil },
			[]string{at + ".stopSignal: Forbidden: may not be set for containers with empty `spec.os.name`"}},
		"no stop signal": {func(s *corev1.PodSpec) { stopSignal(s, "SIGNAL") }, []string{at + `.stopSignal: Unsupported value: supported values: "SIGABRT", `}},
	})
}

func TestContainerRestartPolicy(t *testing.T) {
	const c = "spec.containers[0]."
	rules := func(policy corev1.ContainerRestartPolicy, rules ...corev1.ContainerRestartRule) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.Containers[0].RestartPolicyRules = rules
			if policy != "" {
				s.Containers[0].RestartPolicy = &policy
			}
		}
	}
	on := func(codes ...int32) *corev1.ContainerRestartRuleOnExitCodes {
		return &corev1.ContainerRestartRuleOnExitCodes{Operator: corev1.ContainerRestartRuleOnExitCodesOpIn, Values: codes}
	}
	restart := corev1.ContainerRestartRule{Action: corev1.ContainerRestartRuleActionRestart, ExitCodes: on(42)}
	all := corev1.ContainerRestartRule{Action: corev1.ContainerRestartRuleActionRestartAllContainers, ExitCodes: on(1)}
	run(t, map[string]specCase{
		"sidecar":            {func(s *corev1.PodSpec) { sidecar(s) }, nil},
		"sidecar with rules": {func(s *corev1.PodSpec) { sidecar(s).RestartPolicyRules = []corev1.ContainerRestartRule{all} }, nil},
		"init container":     {func(s *corev1.PodSpec) { s.InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicyNever) }, nil},
		"always":             {rules(corev1.ContainerRestartPolicyAlways), nil},
		"rules":              {rules(corev1.ContainerRestartPolicyNever, restart, all), nil},
		"unknown":            {rules("Maybe"), []string{c + `restartPolicy: Unsupported value: supported values: "Always", "Never", "OnFailure"`}},
		"of an init one": {func(s *corev1.PodSpec) {
			s.InitContainers[0].RestartPolicy = new(corev1.ContainerRestartPolicy("Maybe"))
		}, []string{"spec.initContainers[0].restartPolicy: Unsupported value: "}},
		"rules but no policy": {rules("", restart), []string{c + "restartPolicy: Required value: must specify restartPolicy when restart rules are used"}},
		"a rule about nothing": {rules(corev1.ContainerRestartPolicyNever, corev1.ContainerRestartRule{}),
			[]string{c + `restartPolicyRules[0].action: Unsupported value: supported values: "Restart", "RestartAllContainers"`, c + "restartPolicyRules[0].exitCodes: Required value: must be specified"}},
		"operator": {rules(corev1.ContainerRestartPolicyNever, corev1.ContainerRestartRule{Action: restart.Action, ExitCodes: &corev1.ContainerRestartRuleOnExitCodes{}}),
			[]string{c + `restartPolicyRules[0].exitCodes.operator: Unsupported value: supported values: "In", "NotIn"`}},
		"too many": {rules(corev1.ContainerRestartPolicyNever, slices.Repeat([]corev1.ContainerRestartRule{restart}, 21)...),
			[]string{c + "restartPolicyRules: Too many: must have at most 20 items"}},
		"too many codes": {rules(corev1.ContainerRestartPolicyNever, corev1.ContainerRestartRule{Action: restart.Action, ExitCodes: on(make([]int32, 256)...)}),
			[]string{c + "restartPolicyRules[0].exitCodes.values: Too many: must have at most 255 items"}},
	})
}

func TestScheduling(t *testing.T) {
	const required = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
	const preferred = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution"
	requires := func(e ...corev1.NodeSelectorRequirement) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: e}}}}}
		}
	}
	named := func(e corev1.NodeSelectorRequirement) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			requires()(s)
			s.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0].MatchFields = []corev1.NodeSelectorRequirement{e}
		}
	}
	prefers := func(weight int32, e corev1.NodeSelectorRequirement) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.PreferredSchedulingTerm{
				{Weight: weight, Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{e}}}}}}
		}
	}
	exists := corev1.NodeSelectorRequirement{Key: "disk", Operator: corev1.NodeSelectorOpExists}
	gates := func(names ...string) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) {
			for _, name := range names {
				s.SchedulingGates = append(s.SchedulingGates, corev1.PodSchedulingGate{Name: name})
			}
		}
	}
	run(t, map[string]specCase{
		"every operator": {requires(exists, corev1.NodeSelectorRequirement{Key: "a", Operator: "DoesNotExist"}, corev1.NodeSelectorRequirement{Key: "a", Operator: "In", Values: []string{"b", "c"}},
			corev1.NodeSelectorRequirement{Key: "example.com/a", Operator: "NotIn", Values: []string{""}}, corev1.NodeSelectorRequirement{Key: "a", Operator: "Gt", Values: []string{"1"}},
			corev1.NodeSelectorRequirement{Key: "a", Operator: "Lt", Values: []string{"1"}}), nil},
		"no terms": {func(s *corev1.PodSpec) {
			s.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{}}}
		}, []string{required + ": Required value: must have at least one node selector term"}},
		"operator":      {requires(corev1.NodeSelectorRequirement{Key: "a", Operator: "Near"}), []string{required + "[0].matchExpressions[0].operator: Invalid value: not a valid selector operator"}},
		"in nothing":    {requires(corev1.NodeSelectorRequirement{Key: "a", Operator: "In"}), []string{required + "[0].matchExpressions[0].values: Required value: must be specified when `operator` is 'In' or 'NotIn'"}},
		"exists in":     {requires(corev1.NodeSelectorRequirement{Key: "a", Operator: "Exists", Values: []string{"b"}}), []string{required + "[0].matchExpressions[0].values: Forbidden: may not be specified when"}},
		"above two":     {requires(corev1.NodeSelectorRequirement{Key: "a", Operator: "Gt", Values: []string{"1", "2"}}), []string{required + "[0].matchExpressions[0].values: Required value: must be specified single value"}},
		"key and value": {requires(corev1.NodeSelectorRequirement{Key: "a b", Operator: "In", Values: []string{"c d"}}), []string{required + "[0].matchExpressions[0].key: Invalid value: ", required + "[0].matchExpressions[0].values[0]: Invalid value: "}},
		"by name":       {named(corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: "In", Values: []string{"n"}}), nil},
		"by names":      {named(corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: "In", Values: []string{"n", "m"}}), []string{required + "[0].matchFields[0].values: Required value: must be only one value"}},
		"by no name":    {named(corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: "NotIn", Values: []string{"n_1"}}), []string{required + "[0].matchFields[0].values[0]: Invalid value: "}},
		"by field": {named(corev1.NodeSelectorRequirement{Key: "spec.x", Operator: "Exists"}), []string{
			required + "[0].matchFields[0].operator: Invalid value: not a valid selector operator", required + "[0].matchFields[0].key: Invalid value: not a valid field selector key"}},
		"preference":           {prefers(100, exists), nil},
		"weight":               {prefers(101, exists), []string{preferred + "[0].weight: Invalid value: must be in the range 1-100"}},
		"weightless":           {prefers(0, exists), []string{preferred + "[0].weight: Invalid value: must be in the range 1-100"}},
		"value of a wish":      {prefers(1, corev1.NodeSelectorRequirement{Key: "a", Operator: "In", Values: []string{"b c"}}), nil},
		"operator of a wish":   {prefers(1, corev1.NodeSelectorRequirement{Key: "a"}), []string{preferred + "[0].preference.matchExpressions[0].operator: Invalid value: "}},
		"gates":                {gates("example.com/a", "b"), nil},
		"bad gate, and twice":  {gates("a b", "c", "c"), []string{"spec.schedulingGates[0]: Invalid value: ", "spec.schedulingGates[2]: Duplicate value: "}},
		"gate and node":        {func(s *corev1.PodSpec) { gates("a")(s); s.NodeName = "n" }, []string{"spec.nodeName: Forbidden: cannot be set until all schedulingGates have been cleared"}},
		"a name in a domain":   {func(s *corev1.PodSpec) { s.Subdomain, s.SetHostnameAsFQDN = "web", new(true) }, nil},
		"a bad domain":         {func(s *corev1.PodSpec) { s.Subdomain = "a.b" }, []string{"spec.subdomain: Invalid value: "}},
		"two ways to be named": {func(s *corev1.PodSpec) { s.HostnameOverride, s.SetHostnameAsFQDN = new("a.b"), new(true) }, []string{"spec.hostnameOverride: Forbidden: may not be specified when `setHostnameAsFQDN` is true"}},
		"windows":              {func(s *corev1.PodSpec) { s.OS = &corev1.PodOS{Name: corev1.Windows} }, []string{"spec.os.name: Forbidden: " + NotSupported}},
		"no system":            {func(s *corev1.PodSpec) { s.OS = &corev1.PodOS{} }, []string{"spec.os.name: Required value: "}},
	})
}

func TestEphemeralContainers(t *testing.T) {
	const e = "spec.ephemeralContainers[1]."
	for name, tc := range map[string]struct {
		change func(*corev1.EphemeralContainer)
		want   []string
	}{
		"all that it has": {func(c *corev1.EphemeralContainer) {
			c.TargetContainerName, c.TTY, c.Stdin = "web", true, true
			c.VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/scratch"}}
			c.SecurityContext = &corev1.SecurityContext{Capabilities: &corev1.Capabilities{Add: []corev1.Capability{"SYS_PTRACE"}}}
			c.EnvFrom = []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "cm"}}}}
		}, nil},
		"no name":             {func(c *corev1.EphemeralContainer) { c.Name = "" }, []string{e + "name: Required value: "}},
		"no image":            {func(c *corev1.EphemeralContainer) { c.Image = "" }, []string{e + "image: Required value: "}},
		"blank image":         {func(c *corev1.EphemeralContainer) { c.Image = " a" }, []string{e + "image: Invalid value: must not have leading or trailing whitespace"}},
		"name of a container": {func(c *corev1.EphemeralContainer) { c.Name = "init" }, []string{e + "name: Duplicate value: "}},
		"name of another":     {func(c *corev1.EphemeralContainer) { c.Name = "old" }, []string{e + "name: Duplicate value: "}},
		"no such target":      {func(c *corev1.EphemeralContainer) { c.TargetContainerName = "none" }, []string{e + "targetContainerName: Not found: "}},
		"an ephemeral target": {func(c *corev1.EphemeralContainer) { c.TargetContainerName = "old" }, []string{e + "targetContainerName: Not found: "}},
		"a volume that is not": {func(c *corev1.EphemeralContainer) {
			c.VolumeMounts = []corev1.VolumeMount{{Name: "x", MountPath: "/x"}}
		}, []string{e + "volumeMounts[0].name: Not found: "}},
		"a part of a volume": {func(c *corev1.EphemeralContainer) {
			c.VolumeMounts = []corev1.VolumeMount{{Name: "scratch", MountPath: "/x", SubPath: "a"}}
		}, []string{e + "volumeMounts[0].subPath: Forbidden: cannot be set for an Ephemeral Container"}},
		"what is for others": {func(c *corev1.EphemeralContainer) {
			c.Ports = []corev1.ContainerPort{{ContainerPort: 1, Protocol: corev1.ProtocolTCP}}
			c.Resources.Limits = corev1.ResourceList{"cpu": *validPod().Spec.Containers[0].Resources.Limits.Cpu()}
			c.LivenessProbe, c.ReadinessProbe, c.StartupProbe, c.Lifecycle = &corev1.Probe{}, &corev1.Probe{}, &corev1.Probe{}, &corev1.Lifecycle{}
			c.RestartPolicy, c.RestartPolicyRules = new(corev1.ContainerRestartPolicyAlways), make([]corev1.ContainerRestartRule, 1)
		}, []string{
			e + "ports: Forbidden: cannot be set for an Ephemeral Container", e + "resources: Forbidden: cannot be set for an Ephemeral Container",
			e + "restartPolicy: Forbidden: cannot be set for an Ephemeral Container", e + "restartPolicyRules: Forbidden: cannot be set for an Ephemeral Container",
			e + "livenessProbe: Forbidden: cannot be set for an Ephemeral Container", e + "readinessProbe: Forbidden: cannot be set for an Ephemeral Container",
			e + "startupProbe: Forbidden: cannot be set for an Ephemeral Container", e + "lifecycle: Forbidden: cannot be set for an Ephemeral Container"}},
		"what nobody has yet": {func(c *corev1.EphemeralContainer) {
			c.VolumeMounts = []corev1.VolumeMount{{Name: "conf", MountPath: "/x", BindMountOptions: []string{"noexec"}}}
		}, []string{e + "volumeMounts[0].bindMountOptions: Forbidden: " + NotSupported}},
	} {
		t.Run(name, func(t *testing.T) {
			pod := validPod()
			pod.Spec.EphemeralContainers = make([]corev1.EphemeralContainer, 2)
			pod.Spec.EphemeralContainers[0].Name = "old" // what it had is not asked about again
			added := &pod.Spec.EphemeralContainers[1]
			added.Name, added.Image = "debugger", "busybox:1"
			tc.change(added)
			image := added.Image
			defaults.Pod(pod)
			added.Image = image
			got := lines(EphemeralContainers(&pod.Spec, sets.New("old"), field.NewPath("spec")))
			if !slices.EqualFunc(got, tc.want, strings.HasPrefix) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
	run(t, map[string]specCase{"of a new pod": {func(s *corev1.PodSpec) { s.EphemeralContainers = make([]corev1.EphemeralContainer, 1) },
		[]string{"spec.ephemeralContainers: Forbidden: cannot be set on create"}}})
}
