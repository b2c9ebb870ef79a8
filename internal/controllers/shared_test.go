package controllers_test

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// Resources that are waited for.
var (
	podResource       = corev1.SchemeGroupVersion.WithResource("pods")
	nodeResource      = corev1.SchemeGroupVersion.WithResource("nodes")
	namespaceResource = corev1.SchemeGroupVersion.WithResource("namespaces")
	configMapResource = corev1.SchemeGroupVersion.WithResource("configmaps")
	secretResource    = corev1.SchemeGroupVersion.WithResource("secrets")
	jobResource       = batchv1.SchemeGroupVersion.WithResource("jobs")
	cronJobResource   = batchv1.SchemeGroupVersion.WithResource("cronjobs")
)

// hold is a finalizer: what has it stays.
const hold = "example.com/hold"

func everyPod(*corev1.Pod) bool { return true }
