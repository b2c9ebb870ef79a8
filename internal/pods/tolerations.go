package pods

import (
	v1 "k8s.io/api/core/v1"
	"k8s.io/klog/v2"
)

// Tolerates is the first of a pod's tolerations that a taint is matched by, in its place; nil: the pod does not tolerate it. Numbers are compared, too
// (operators Gt and Lt, KEP-5471).
func Tolerates(tolerations []v1.Toleration, taint *v1.Taint) *v1.Toleration {
	for i := range tolerations {
		if t := &tolerations[i]; t.ToleratesTaint(klog.Background(), taint, true) {
			return t
		}
	}
	return nil
}
