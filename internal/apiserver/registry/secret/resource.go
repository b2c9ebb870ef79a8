// Package secret serves the resource secrets of core/v1.
package secret

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resource is the resource secrets. Its table shows no secret data.
func Resource() resource.Of[*corev1.Secret, *corev1.SecretList] {
	return resource.Of[*corev1.Secret, *corev1.SecretList]{
		Plural:     "secrets",
		Namespaced: true,
		ReadBy:     resource.Editor,
		WrittenBy:  resource.Editor,
		Honours:    apifields.Table{reflect.TypeFor[corev1.Secret](): apifields.All("Data", "StringData", "Type", "Immutable")},
		Default:    setDefaults,
		Create:     validate,
		Update:     validateUpdate,
		Fields:     func(s *corev1.Secret) fields.Set { return fields.Set{"type": string(s.Type)} },
		Columns: []resource.Column[*corev1.Secret]{
			{Name: "Name"},
			{Name: "Type", Doc: corev1.Secret{}.SwaggerDoc()["type"], Value: func(s *corev1.Secret) any { return string(s.Type) }},
			{Name: "Data", Doc: "The number of keys in data", Value: func(s *corev1.Secret) any { return int64(len(s.Data)) }},
			{Name: "Age"},
		},
	}
}

// setDefaults gives a secret its type and moves stringData into data: it is a way to write, never stored nor shown
// (core/v1, Secret.stringData).
func setDefaults(s *corev1.Secret) {
	if s.Type == "" {
		s.Type = corev1.SecretTypeOpaque
	}
	if len(s.StringData) > 0 && s.Data == nil {
		s.Data = make(map[string][]byte, len(s.StringData))
	}
	for k, v := range s.StringData {
		s.Data[k] = []byte(v)
	}
	s.StringData = nil
}
