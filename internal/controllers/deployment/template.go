package deployment

import (
	"encoding/binary"
	"hash/fnv"
	"maps"
	"math"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/dump"
)

// The annotations by which a deployment and its replica sets are known, upstream's. kubectl rollout reads them.
const (
	revisionAnnotation = "deployment.kubernetes.io/revision"
	historyAnnotation  = "deployment.kubernetes.io/revision-history"
	desiredAnnotation  = "deployment.kubernetes.io/desired-replicas"
	maximumAnnotation  = "deployment.kubernetes.io/max-replicas"
)

// maxHistory is how many letters the list of a replica set's earlier revisions has at most.
const maxHistory = 2000

// kind is that of deployments.
var kind = appsv1.SchemeGroupVersion.WithKind("Deployment")

// sameTemplate says whether templates are the same but for the label that tells them apart.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	if !equality.Semantic.DeepEqual(a.Spec, b.Spec) {
		return false
	}
	a, b = &corev1.PodTemplateSpec{ObjectMeta: *a.ObjectMeta.DeepCopy()}, &corev1.PodTemplateSpec{ObjectMeta: *b.ObjectMeta.DeepCopy()}
	delete(a.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	delete(b.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return equality.Semantic.DeepEqual(a, b)
}

// newReplicaSet is the replica set of a deployment's template, still without pods.
func newReplicaSet(d *appsv1.Deployment, revision int64) *appsv1.ReplicaSet {
	sum := templateHash(&d.Spec.Template, d.Status.CollisionCount)
	template := d.Spec.Template.DeepCopy()
	template.Labels = maps.Clone(template.Labels)
	if template.Labels == nil {
		template.Labels = map[string]string{}
	}
	template.Labels[appsv1.DefaultDeploymentUniqueLabelKey] = sum
	selector := d.Spec.Selector.DeepCopy()
	if selector.MatchLabels == nil {
		selector.MatchLabels = map[string]string{}
	}
	selector.MatchLabels[appsv1.DefaultDeploymentUniqueLabelKey] = sum
	annotations := map[string]string{}
	copyAnnotations(annotations, d.Annotations)
	promote(annotations, revision)
	return &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{
			Name: d.Name[:min(len(d.Name), validation.DNS1123SubdomainMaxLength-1-len(sum))] + "-" + sum, Namespace: d.Namespace,
			Labels: maps.Clone(template.Labels), Annotations: annotations, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(d, kind)},
		},
		Spec: appsv1.ReplicaSetSpec{Replicas: new(int32), MinReadySeconds: d.Spec.MinReadySeconds, Selector: selector, Template: *template},
	}
}

// templateHash is a short name for a template, as upstream makes it. Two templates that have the same by chance are told apart by how often that has
// happened.
func templateHash(template *corev1.PodTemplateSpec, collisions *int32) string {
	h := fnv.New32a()
	h.Write([]byte(dump.ForHash(*template)))
	if collisions != nil {
		count := make([]byte, 8)
		binary.LittleEndian.PutUint32(count, uint32(*collisions))
		h.Write(count)
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}

// copyAnnotations copies those of a deployment's annotations to its replica set's that are not about the deployment itself.
func copyAnnotations(to, from map[string]string) {
	for key, value := range from {
		switch key {
		case corev1.LastAppliedConfigAnnotation, revisionAnnotation, historyAnnotation, desiredAnnotation, maximumAnnotation, appsv1.DeprecatedRollbackTo:
		default:
			to[key] = value
		}
	}
}

// revision is a replica set's place in the history of its deployment; 0: it has none, or one that somebody wrote and after which there is none.
func revision(set *appsv1.ReplicaSet) int64 {
	n, err := strconv.ParseInt(set.Annotations[revisionAnnotation], 10, 64)
	if err != nil || n == math.MaxInt64 {
		return 0
	}
	return n
}

// promote makes a replica set's revision the newest one, and keeps the one that it had, if any, in its history: somebody goes back to it.
func promote(annotations map[string]string, to int64) {
	had, has := annotations[revisionAnnotation]
	before, err := strconv.ParseInt(had, 10, 64)
	if has && had != "" && err != nil || before >= to {
		return // somebody else has written it, or it is the newest already
	}
	annotations[revisionAnnotation] = strconv.FormatInt(to, 10)
	if !has || had == "" {
		return
	}
	history := append(strings.FieldsFunc(annotations[historyAnnotation], func(r rune) bool { return r == ',' }), had)
	first, size := len(history)-1, len(had) // of those that are kept
	for first > 0 && size+len(",")+len(history[first-1]) <= maxHistory {
		first--
		size += len(",") + len(history[first])
	}
	annotations[historyAnnotation] = strings.Join(history[first:], ",")
}
