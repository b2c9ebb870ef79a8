package store

import (
	"sync"

	"k8s.io/apiserver/pkg/features"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
)

// SetFeatures chooses how the library caches, for the whole process, before the first Store is made. It may be called again.
//
// Without snapshots, a list at an old revision (the later pages of a long one) is read from etcd, which is in this process and has it. With them the cache
// keeps a copy of its tree for each write of the last minute or two. The check that caches and etcd agree reads both whole, each five minutes; it is for
// bugs of watches over a network. What priority and fairness, which is off, would take lists to cost is not estimated either, for which the size of each
// object would be kept beside the caches.
var SetFeatures = sync.OnceValue(func() error { // the library's features are the process's
	return utilfeature.DefaultMutableFeatureGate.SetFromMap(map[string]bool{
		string(features.ListFromCacheSnapshot):     false,
		string(features.DetectCacheInconsistency):  false,
		string(features.SizeBasedListCostEstimate): false,
	})
})
