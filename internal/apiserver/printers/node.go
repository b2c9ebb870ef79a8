package printers

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/registry/rest"
)

const (
	// roleLabelPrefix is the prefix of a label whose name's rest is a role of the node.
	roleLabelPrefix = "node-role.kubernetes.io/"
	// roleLabel is the older label whose value is the role.
	roleLabel = "kubernetes.io/role"
)

// Nodes returns the table of corev1.Node: NAME STATUS ROLES AGE VERSION, and when wide INTERNAL-IP EXTERNAL-IP OS-IMAGE
// KERNEL-VERSION CONTAINER-RUNTIME.
func Nodes() rest.TableConvertor {
	info := corev1.NodeSystemInfo{}.SwaggerDoc()
	addresses := corev1.NodeStatus{}.SwaggerDoc()["addresses"]
	return table[corev1.Node]{
		columns: []metav1.TableColumnDefinition{
			nameColumn(),
			column("Status", "string", "The status of the node"),
			column("Roles", "string", "The roles of the node"),
			ageColumn(),
			column("Version", "string", info["kubeletVersion"]),
			wideColumn("Internal-IP", "string", addresses),
			wideColumn("External-IP", "string", addresses),
			wideColumn("OS-Image", "string", info["osImage"]),
			wideColumn("Kernel-Version", "string", info["kernelVersion"]),
			wideColumn("Container-Runtime", "string", info["containerRuntimeVersion"]),
		},
		row: nodeRow,
	}
}

func nodeRow(node *corev1.Node, now time.Time) ([]any, []metav1.TableRowCondition) {
	sys := node.Status.NodeInfo
	return []any{
		node.Name,
		nodeStatus(node),
		nodeRoles(node),
		age(node.CreationTimestamp.Time, now),
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
	return orNone(strings.Join(slices.Compact(roles), ","))
}

func nodeAddress(node *corev1.Node, kind corev1.NodeAddressType) string {
	for _, a := range node.Status.Addresses {
		if a.Type == kind {
			return a.Address
		}
	}
	return none
}

func orUnknown(s string) string {
	if s == "" {
		return unknown
	}
	return s
}
