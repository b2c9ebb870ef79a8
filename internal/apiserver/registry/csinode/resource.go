// Package csinode serves the resource csinodes of storage.k8s.io/v1: which CSI drivers a node has, as its agent says.
package csinode

import (
	"reflect"

	storagev1 "k8s.io/api/storage/v1"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/kit/apifields"
)

// Resource is the resource csinodes.
func Resource() resource.Of[*storagev1.CSINode, *storagev1.CSINodeList] {
	return resource.Of[*storagev1.CSINode, *storagev1.CSINodeList]{
		Group:  storagev1.GroupName,
		Plural: "csinodes",
		Honours: apifields.Table{
			reflect.TypeFor[storagev1.CSINode]():             apifields.All("Spec").And(apifields.Left, "Status"),
			reflect.TypeFor[storagev1.CSINodeSpec]():         apifields.All("Drivers"),
			reflect.TypeFor[storagev1.CSINodeDriver]():       apifields.All("Name", "NodeID", "TopologyKeys", "Allocatable"),
			reflect.TypeFor[storagev1.VolumeNodeResources](): apifields.All("Count"),
		},
		NamedUpdate: true,
		Create:      validate,
		Update:      validateUpdate,
		Status: &resource.Status[*storagev1.CSINode]{
			Alone: true,
			// Upstream has no health of drivers in it unless the gate of features CSIVolumeHealth is open, which is closed by default.
			Prepare: func(n, _ *storagev1.CSINode) { n.Status.StorageHealth = nil },
		},
		Store: func(store *genericregistry.Store) { store.ReturnDeletedObject = true },
		Columns: []resource.Column[*storagev1.CSINode]{
			{Name: "Name"},
			{Name: "Drivers", Type: "integer", Doc: "Drivers indicates the number of CSI drivers registered on the node",
				Value: func(n *storagev1.CSINode) any { return int64(len(n.Spec.Drivers)) }},
			{Name: "Age"},
		},
	}
}
