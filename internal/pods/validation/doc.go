// Package validation tells what is wrong with the specification of a pod, or with a template that pods are made from: fields that Monopod's API server does
// not honour (package fields), and values that the API forbids. It wants the defaults set (package defaults).
//
// What is about a pod as an object, its metadata, its updates and its status, is with the resource.
package validation
