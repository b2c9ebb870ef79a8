package ocispec

// maxWeight is what the keys and values of labels, or of annotations, may have together in bytes. It is the API's bound of an object's annotations:
// the lists of CRI tell all of them in one message, which ends at a size that clients set (docs/CRI.md, Lists).
const maxWeight = 256 << 10

// fromKubelet are the annotations that kubelets add to those of a pod, which may have as much as the API lets it; short is how long their
// values are at most.
var fromKubelet = map[string]bool{"kubernetes.io/config.seen": true, "kubernetes.io/config.source": true, "kubernetes.io/config.hash": true, "kubernetes.io/config.mirror": true}

const short = 64

// checkWeight refuses labels or annotations that have more than maxWeight.
func checkWeight(field string, pairs map[string]string) error {
	sum, added := 0, 0
	for k, v := range pairs {
		sum += len(k) + len(v)
		if fromKubelet[k] && len(v) <= short {
			added += len(k) + len(v)
		}
	}
	if sum-added <= maxWeight {
		return nil
	}
	return invalid(field, "keys and values have %d bytes together; no more than %d (256 KiB) are taken", sum, maxWeight)
}
