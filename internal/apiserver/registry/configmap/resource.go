// Package configmap serves the resource configmaps of core/v1.
package configmap

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resource is the resource configmaps.
func Resource() resource.Of[*corev1.ConfigMap, *corev1.ConfigMapList] {
	return resource.Of[*corev1.ConfigMap, *corev1.ConfigMapList]{
		Plural:     "configmaps",
		Short:      []string{"cm"},
		Namespaced: true,
		ReadBy:     resource.Viewer,
		WrittenBy:  resource.Editor,
		Honours:    apifields.Table{reflect.TypeFor[corev1.ConfigMap](): apifields.All("Data", "BinaryData", "Immutable")},
		Create:     validate,
		Update:     validateUpdate,
		Columns: []resource.Column[*corev1.ConfigMap]{
			{Name: "Name"},
			{Name: "Data", Doc: "The number of keys in data and binaryData",
				Value: func(cm *corev1.ConfigMap) any { return int64(len(cm.Data) + len(cm.BinaryData)) }},
			{Name: "Age"},
		},
	}
}
