package registry_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/apiserver/registry/node"
)

func validNode() *corev1.Node {
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n1", ResourceVersion: "1"},
		Spec: corev1.NodeSpec{PodCIDR: "10.61.0.0/16", PodCIDRs: []string{"10.61.0.0/16"}, ProviderID: "monopod://n1",
			Taints: []corev1.Taint{{Key: "example.com/k", Value: "v", Effect: corev1.TaintEffectNoSchedule}}},
		Status: corev1.NodeStatus{
			Capacity:  corev1.ResourceList{"cpu": resource.MustParse("2"), "example.com/widget": resource.MustParse("1")},
			Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "10.0.0.1"}},
		},
	}
}

func TestValidationOfNodes(t *testing.T) {
	preemption := corev1.NodePodPreemptionPolicy{}
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   string // empty: valid
	}{
		"valid":                {func(*corev1.Node) {}, ""},
		"name":                 {func(n *corev1.Node) { n.Name = "N_1" }, "metadata.name"},
		"taint without key":    {func(n *corev1.Node) { n.Spec.Taints[0].Key = "" }, "spec.taints[0].key"},
		"taint's effect":       {func(n *corev1.Node) { n.Spec.Taints[0].Effect = "Never" }, `spec.taints[0].effect: Unsupported value: "Never"`},
		"taint's value":        {func(n *corev1.Node) { n.Spec.Taints[0].Value = "a b" }, "spec.taints[0].value"},
		"taint twice":          {func(n *corev1.Node) { n.Spec.Taints = append(n.Spec.Taints, n.Spec.Taints[0]) }, "spec.taints[1]: Duplicate value"},
		"range":                {func(n *corev1.Node) { n.Spec.PodCIDRs[0] = "10.61"; n.Spec.PodCIDR = "10.61" }, "spec.podCIDRs[0]"},
		"range not first":      {func(n *corev1.Node) { n.Spec.PodCIDR = "10.62.0.0/16" }, "must be the first of `podCIDRs`"},
		"dynamic kubelet":      {func(n *corev1.Node) { n.Spec.ConfigSource = &corev1.NodeConfigSource{} }, "spec.configSource: Forbidden"},
		"preemption":           {func(n *corev1.Node) { n.Spec.PodPreemptionPolicy = &preemption }, "spec.podPreemptionPolicy: Forbidden"},
		"negative capacity":    {func(n *corev1.Node) { n.Status.Capacity["cpu"] = resource.MustParse("-1") }, "status.capacity[cpu]"},
		"name of a resource":   {func(n *corev1.Node) { n.Status.Allocatable = corev1.ResourceList{"a b": resource.MustParse("1")} }, "status.allocatable[a b]"},
		"address twice":        {func(n *corev1.Node) { n.Status.Addresses = append(n.Status.Addresses, n.Status.Addresses[0]) }, "status.addresses[1]: Duplicate value"},
		"port of the agent":    {func(n *corev1.Node) { n.Status.DaemonEndpoints.KubeletEndpoint.Port = 70000 }, "status.daemonEndpoints.kubeletEndpoint.Port"},
		"extended resource":    {func(n *corev1.Node) { n.Status.Capacity["vendor.com/gpu"] = resource.MustParse("4") }, ""},
		"two address families": {func(n *corev1.Node) { n.Spec.PodCIDRs = append(n.Spec.PodCIDRs, "fd00::/64") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			n := validNode()
			tc.change(n)
			checkNode(t, node.Resource().Check(n).ToAggregate(), tc.want)
		})
	}
}

func TestUpdatesOfNodes(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*corev1.Node)
		want   string
	}{
		"same":         {func(*corev1.Node) {}, ""},
		"labels":       {func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }, ""},
		"range":        {func(n *corev1.Node) { n.Spec.PodCIDR, n.Spec.PodCIDRs = "10.1.0.0/16", []string{"10.1.0.0/16"} }, "spec.podCIDR: Invalid value"},
		"identity":     {func(n *corev1.Node) { n.Spec.ProviderID = "other://n1" }, "spec.providerID: Invalid value"},
		"cordon":       {func(n *corev1.Node) { n.Spec.Unschedulable = true }, ""},
		"another name": {func(n *corev1.Node) { n.Name = "n2" }, "metadata.name"},
	} {
		t.Run(name, func(t *testing.T) {
			n := validNode()
			tc.change(n)
			checkNode(t, node.Resource().CheckUpdate(n, validNode()).ToAggregate(), tc.want)
		})
	}
}

func checkNode(t *testing.T, err error, want string) {
	t.Helper()
	switch {
	case want == "" && err != nil:
		t.Errorf("refused: %v", err)
	case want != "" && (err == nil || !strings.Contains(err.Error(), want)):
		t.Errorf("error %v, want one with %q", err, want)
	}
}
