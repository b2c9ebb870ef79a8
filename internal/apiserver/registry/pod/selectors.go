package pod

import (
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/storage"
)

const nodeNameField = "spec.nodeName"

// selectable returns the fields that a field selector may name, with their values in pod. It is the one list: the
// conversion of field labels refuses all others.
func selectable(pod *corev1.Pod) fields.Set {
	ip := pod.Status.PodIP
	if len(pod.Status.PodIPs) > 0 {
		ip = pod.Status.PodIPs[0].IP
	}
	set := fields.Set{
		nodeNameField:              pod.Spec.NodeName,
		"spec.restartPolicy":       string(pod.Spec.RestartPolicy),
		"spec.schedulerName":       pod.Spec.SchedulerName,
		"spec.serviceAccountName":  pod.Spec.ServiceAccountName,
		"spec.hostNetwork":         strconv.FormatBool(pod.Spec.HostNetwork),
		"status.phase":             string(pod.Status.Phase),
		"status.podIP":             ip,
		"status.nominatedNodeName": pod.Status.NominatedNodeName,
	}
	return generic.AddObjectMetaFieldsSet(set, &pod.ObjectMeta, true)
}

// AddFieldLabelConversion teaches the scheme which fields of a pod can be selected.
func AddFieldLabelConversion(scheme *runtime.Scheme) error {
	known := selectable(&corev1.Pod{})
	return scheme.AddFieldLabelConversionFunc(corev1.SchemeGroupVersion.WithKind("Pod"),
		func(label, value string) (string, string, error) {
			// spec.host is the name that spec.nodeName had in v1beta3; clients still send it.
			if label == "spec.host" {
				label = nodeNameField
			}
			if !known.Has(label) {
				return "", "", fmt.Errorf("pods cannot be selected by the field %q", label)
			}
			return label, value, nil
		})
}

func getAttrs(obj runtime.Object) (labels.Set, fields.Set, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, nil, fmt.Errorf("expected a Pod, found %T", obj)
	}
	return pod.Labels, selectable(pod), nil
}

func matchPod(label labels.Selector, field fields.Selector) storage.SelectionPredicate {
	return storage.SelectionPredicate{
		Label:       label,
		Field:       field,
		GetAttrs:    getAttrs,
		IndexFields: []string{nodeNameField},
	}
}

func nodeNameOf(obj runtime.Object) string { return obj.(*corev1.Pod).Spec.NodeName }

func nodeNameIndex(obj any) ([]string, error) {
	pod, ok := obj.(*corev1.Pod)
	if !ok {
		return nil, fmt.Errorf("expected a Pod, found %T", obj)
	}
	return []string{pod.Spec.NodeName}, nil
}
