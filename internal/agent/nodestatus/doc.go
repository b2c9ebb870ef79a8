// Package nodestatus keeps the Node object and its Lease: what the machine has, whether it is fit to run pods, and that
// it is alive.
//
// It writes only its own part of the object: labels, annotations, taints and conditions of others stay as they are.
package nodestatus
