// Package defaults sets what core/v1 documents for the fields of a pod's specification that are left out, for those that are honoured: of a pod, and of
// a template that pods are made from. What has its defaults does not change when they are set again.
package defaults
