package binder

import (
	"slices"

	corev1 "k8s.io/api/core/v1"

	"monopod.dev/monopod/internal/pods"
)

// cluster is what a decision is made from.
type cluster struct {
	places     []place
	namespaces namespaces
	own        func(*corev1.Node) []pods.OwnPort // the ports at which a node itself serves; nil: none is known
	storage    storage                           // asked only for the sake of pods that have claims
}

// with is the cluster with another state of one of its places.
func (c cluster) with(at place) cluster {
	c.places = slices.Clone(c.places)
	for i := range c.places {
		if c.places[i].node.Name == at.node.Name {
			c.places[i] = at
		}
	}
	return c
}

// domain is the nodes that have a label with one value.
type domain struct{ key, value string }
