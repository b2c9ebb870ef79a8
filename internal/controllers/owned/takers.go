package owned

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// Takers calls look for each owner in an orphan's namespace whose selector matches it: one of them could take it over. A selector that is empty, or cannot
// be read, matches nothing.
func Takers[T metav1.Object](owners cache.Indexer, orphan metav1.Object, selector func(T) *metav1.LabelSelector, look func(cache.ObjectName)) error {
	if len(orphan.GetLabels()) == 0 {
		return nil
	}
	objects, err := owners.ByIndex(cache.NamespaceIndex, orphan.GetNamespace())
	if err != nil {
		return fmt.Errorf("who could take over %s/%s cannot be told: %w", orphan.GetNamespace(), orphan.GetName(), err)
	}
	for _, object := range objects {
		owner, ok := object.(T)
		if !ok {
			continue
		}
		if s := selector(owner); s != nil && len(s.MatchLabels)+len(s.MatchExpressions) > 0 && Selects(s, orphan.GetLabels()) {
			look(cache.MetaObjectToName(owner))
		}
	}
	return nil
}
