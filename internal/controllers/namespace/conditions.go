package namespace

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
)

// allIsWell are the conditions of a deletion that nothing holds up, in the order in which they are written. Types, reasons and messages are upstream's:
// people and programs know them.
func allIsWell() []corev1.NamespaceCondition {
	no := func(t corev1.NamespaceConditionType, reason, message string) corev1.NamespaceCondition {
		return corev1.NamespaceCondition{Type: t, Status: corev1.ConditionFalse, Reason: reason, Message: message}
	}
	return []corev1.NamespaceCondition{
		no(corev1.NamespaceDeletionDiscoveryFailure, "ResourcesDiscovered", "All resources successfully discovered"),
		no(corev1.NamespaceDeletionGVParsingFailure, "ParsedGroupVersions", "All legacy kube types successfully parsed"),
		no(corev1.NamespaceDeletionContentFailure, "ContentDeleted", "All content successfully deleted, may be waiting on finalization"),
		no(corev1.NamespaceContentRemaining, "ContentRemoved", "All content successfully removed"),
		no(corev1.NamespaceFinalizersRemaining, "ContentHasNoFinalizers", "All content-preserving finalizers finished"),
	}
}

// conditions is what the findings mean for a namespace.
func (f *findings) conditions() []corev1.NamespaceCondition {
	all := allIsWell()
	yes := func(t corev1.NamespaceConditionType, reason, message string) {
		i := slices.IndexFunc(all, func(c corev1.NamespaceCondition) bool { return c.Type == t })
		all[i].Status, all[i].Reason, all[i].Message = corev1.ConditionTrue, reason, message
	}
	if f.discovery != nil {
		message := f.discovery.Error()
		var some *discovery.ErrGroupDiscoveryFailed
		if errors.As(f.discovery, &some) {
			message = fmt.Sprintf("Discovery failed for some groups, %d failing: %v", len(some.Groups), f.discovery)
		}
		yes(corev1.NamespaceDeletionDiscoveryFailure, "DiscoveryFailed", message)
	}
	if f.parsing != nil {
		yes(corev1.NamespaceDeletionGVParsingFailure, "GroupVersionParsingFailed", f.parsing.Error())
	}
	if len(f.content) > 0 {
		var messages []string
		for _, err := range f.content {
			messages = append(messages, err.Error())
		}
		slices.Sort(messages)
		yes(corev1.NamespaceDeletionContentFailure, "ContentDeletionFailed",
			fmt.Sprintf("Failed to delete all resource types, %d remaining: %s", len(messages), few(messages)))
	}
	if len(f.left) > 0 {
		var resources, held []string
		finalizers := map[string]int{}
		for _, r := range f.left {
			resources = append(resources, fmt.Sprintf("%s.%s has %d resource instances", r.Resource, r.Group, r.count))
			for name, n := range r.finalizers {
				finalizers[name] += n
			}
		}
		slices.Sort(resources)
		yes(corev1.NamespaceContentRemaining, "SomeResourcesRemain", "Some resources are remaining: "+few(resources))
		for _, name := range slices.Sorted(maps.Keys(finalizers)) {
			held = append(held, fmt.Sprintf("%s in %d resource instances", name, finalizers[name]))
		}
		if len(held) > 0 {
			yes(corev1.NamespaceFinalizersRemaining, "SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: "+few(held))
		}
	}
	return all
}

// longest is how long a message gets, in bytes: finalizers are users' words, and a namespace whose status the API server takes for too large would stay.
const longest = 16 << 10

// few are so many of the messages, in their order, as a condition has room for, and how many more there are.
func few(messages []string) string {
	var all strings.Builder
	for i, m := range messages {
		if len(m) > longest/4 {
			m = strings.ToValidUTF8(m[:longest/4], "") + "..."
		}
		if all.Len()+len(m) > longest {
			fmt.Fprintf(&all, " and %d more", len(messages)-i)
			break
		}
		if i > 0 {
			all.WriteString(", ")
		}
		all.WriteString(m)
	}
	return all.String()
}

// update puts conditions in the place of those of their types. Others' stay, and so does the time of the last transition while the status does.
func update(old, conditions []corev1.NamespaceCondition, now metav1.Time) (updated []corev1.NamespaceCondition, changed bool) {
	updated = slices.Clone(old)
	for _, c := range conditions {
		c.LastTransitionTime = now
		i := slices.IndexFunc(updated, func(o corev1.NamespaceCondition) bool { return o.Type == c.Type })
		if i < 0 {
			updated, changed = append(updated, c), true
			continue
		}
		was := updated[i]
		if was.Status == c.Status {
			c.LastTransitionTime = was.LastTransitionTime
		}
		changed = changed || was.Status != c.Status || was.Reason != c.Reason || was.Message != c.Message
		updated[i] = c
	}
	return updated, changed
}
