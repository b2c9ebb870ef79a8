package node

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/apiserver/resource"
)

const (
	// roleLabelPrefix is the prefix of a label whose name's rest is a role of the node.
	roleLabelPrefix = "node-role.kubernetes.io/"
	// roleLabel is the older label whose value is the role.
	roleLabel = "kubernetes.io/role"
)

func columns() []resource.Column[*corev1.Node] {
	info := corev1.NodeSystemInfo{}.SwaggerDoc()
	addresses := corev1.NodeStatus{}.SwaggerDoc()["addresses"]
	return []resource.Column[*corev1.Node]{
		{Name: "Name"},
		{Name: "Status", Doc: "The status of the node"},
		{Name: "Roles", Doc: "The roles of the node"},
		{Name: "Age"},
		{Name: "Version", Doc: info["kubeletVersion"]},
		{Name: "Internal-IP", Doc: addresses, Wide: true},
		{Name: "External-IP", Doc: addresses, Wide: true},
		{Name: "OS-Image", Doc: info["osImage"], Wide: true},
		{Name: "Kernel-Version", Doc: info["kernelVersion"], Wide: true},
		{Name: "Container-Runtime", Doc: info["containerRuntimeVersion"], Wide: true},
	}
}

func nodeRow(node *corev1.Node, now time.Time) ([]any, []metav1.TableRowCondition) {
	sys := node.Status.NodeInfo
	return []any{
		node.Name,
		nodeStatus(node),
		nodeRoles(node),
		resource.Age(node.CreationTimestamp.Time, now),
		sys.KubeletVersion,
		nodeAddress(node, corev1.NodeInternalIP),
		nodeAddress(node, corev1.NodeExternalIP),
		orUnknown(sys.OSImage),
		orUnknown(sys.KernelVersion),
		orUnknown(sys.ContainerRuntimeVersion),
	}, nil
}

func nodeStatus(node *corev1.Node) string {
	status := "Unknown"
	for _, c := range node.Status.Conditions {
		if c.Type != corev1.NodeReady {
			continue
		}
		if c.Status == corev1.ConditionTrue {
			status = "Ready"
		} else {
			status = "NotReady"
		}
	}
	if node.Spec.Unschedulable {
		status += ",SchedulingDisabled"
	}
	return status
}

func nodeRoles(node *corev1.Node) string {
	var roles []string
	for key, value := range node.Labels {
		if role, ok := strings.CutPrefix(key, roleLabelPrefix); ok && role != "" {
			roles = append(roles, role)
		} else if key == roleLabel && value != "" {
			roles = append(roles, value)
		}
	}
	slices.Sort(roles)
	return resource.OrNone(strings.Join(slices.Compact(roles), ","))
}

func nodeAddress(node *corev1.Node, kind corev1.NodeAddressType) string {
	for _, a := range node.Status.Addresses {
		if a.Type == kind {
			return a.Address
		}
	}
	return resource.None
}

func orUnknown(s string) string {
	if s == "" {
		return resource.Unknown
	}
	return s
}
