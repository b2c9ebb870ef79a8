// Package limitrange serves the resource limitranges of core/v1: what the containers, pods and claims of a namespace may ask for, and what containers
// get that ask for nothing.
//
// The rules are applied to pods by package admission, when they are created.
package limitrange

import (
	"reflect"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resource is the resource limitranges. Whoever may edit a namespace's objects does not say what they may ask for: no role but that of an administrator of
// the cluster writes them.
func Resource() resource.Of[*corev1.LimitRange, *corev1.LimitRangeList] {
	return resource.Of[*corev1.LimitRange, *corev1.LimitRangeList]{
		Plural:         "limitranges",
		Short:          []string{"limits"},
		Namespaced:     true,
		ReadBy:         resource.Viewer,
		CreateOnUpdate: true,
		Honours: apifields.Table{
			reflect.TypeFor[corev1.LimitRange]():     apifields.All("Spec"),
			reflect.TypeFor[corev1.LimitRangeSpec](): apifields.All("Limits"),
			reflect.TypeFor[corev1.LimitRangeItem](): apifields.All("Type", "Max", "Min", "Default", "DefaultRequest", "MaxLimitRequestRatio"),
		},
		Default: setDefaults,
		Create:  validate,
		Update:  func(l, _ *corev1.LimitRange) field.ErrorList { return validate(l) },
		Columns: []resource.Column[*corev1.LimitRange]{{Name: "Name"}, {Name: "Created At"}},
	}
}

// setDefaults completes what containers get: a limit is the maximum where there is one, a request is the limit, else the minimum.
func setDefaults(l *corev1.LimitRange) {
	for i := range l.Spec.Limits {
		if item := &l.Spec.Limits[i]; item.Type == corev1.LimitTypeContainer {
			item.Default = completed(item.Default, item.Max)
			item.DefaultRequest = completed(completed(item.DefaultRequest, item.Default), item.Min)
		}
	}
}

// completed is a list with what it lacks of another one.
func completed(list, more corev1.ResourceList) corev1.ResourceList {
	for name, q := range more {
		if _, ok := list[name]; ok {
			continue
		}
		if list == nil {
			list = corev1.ResourceList{}
		}
		list[name] = q.DeepCopy()
	}
	return list
}
