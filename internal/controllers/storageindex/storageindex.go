// Package storageindex finds the pods of a claim, and the volumes that a claim may get, in what informers know: nobody walks all pods, or all volumes, for each
// claim. Its indices are shared by all controllers that ask.
package storageindex

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	helpers "k8s.io/component-helpers/storage/volume"

	"monopod.dev/monopod/internal/pods"
)

// byClaim is the index of pods by their claims.
const byClaim = "monopod.dev/by-claim"

// ByTaker is the index of volumes by whom they are for: those that point at no claim by their class (key FreeOf), the others by that claim (key HeldFor).
const ByTaker = "monopod.dev/by-taker"

// FreeOf is the key in ByTaker of the volumes of a class that point at no claim.
func FreeOf(class string) string { return "class/" + class }

// HeldFor is the key in ByTaker of the volumes that point at a claim, or at an earlier one of its name.
func HeldFor(namespace, name string) string { return "claim/" + namespace + "/" + name }

// Pods has pods found by their claims. An informer may be given to it more than once, also when it runs already, but not by two callers at a time.
func Pods(informer cache.SharedIndexInformer) error {
	return add(informer, byClaim, func(obj any) (keys []string, err error) {
		pod, ok := obj.(*corev1.Pod)
		if !ok {
			return nil, nil
		}
		for _, claim := range pods.Claims(pod) {
			keys = append(keys, claim.String())
		}
		return keys, nil
	})
}

// PodsOf are the pods that have a claim, or bring it along, also those that have ended. They are the informer's: who changes one copies it.
func PodsOf(informer cache.SharedIndexInformer, claim types.NamespacedName) (all []*corev1.Pod) {
	objs, _ := informer.GetIndexer().ByIndex(byClaim, claim.String()) // whose error is that there is no such index
	for _, obj := range objs {
		if pod, ok := obj.(*corev1.Pod); ok {
			all = append(all, pod)
		}
	}
	return all
}

// Volumes has volumes found by whom they are for, as Pods does with pods.
func Volumes(informer cache.SharedIndexInformer) error {
	return add(informer, ByTaker, func(obj any) ([]string, error) {
		v, ok := obj.(*corev1.PersistentVolume)
		if !ok {
			return nil, nil
		}
		if claim := v.Spec.ClaimRef; claim != nil {
			return []string{HeldFor(claim.Namespace, claim.Name)}, nil
		}
		return []string{FreeOf(helpers.GetPersistentVolumeClass(v))}, nil
	})
}

func add(informer cache.SharedIndexInformer, name string, keys cache.IndexFunc) error {
	if _, has := informer.GetIndexer().GetIndexers()[name]; has {
		return nil
	}
	if err := informer.AddIndexers(cache.Indexers{name: keys}); err != nil {
		return fmt.Errorf("index %s: %w", name, err)
	}
	return nil
}
