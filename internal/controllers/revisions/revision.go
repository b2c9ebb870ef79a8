package revisions

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/rand"

	"monopod.dev/monopod/internal/controllers/owned"
)

// longestPrefix is how much of an owner's name is in those of its revisions.
const longestPrefix = 223

// Owner is whose history it is.
type Owner struct {
	owned.Owner
	Kind     schema.GroupVersionKind
	Template *corev1.PodTemplateSpec
	// Collisions is how often a revision could not have its name, because another one had it by chance; nil: never.
	Collisions *int32
	// HashLabel is the label of revisions that has the part of their names that follows from the template.
	HashLabel string
}

// Plan is what is to be done about a history.
type Plan struct {
	// Current is the revision of the owner's template, as it is to be.
	Current *appsv1.ControllerRevision
	// Create says that there is none yet, Renumber that it has another number.
	Create, Renumber bool
	// Others are the other revisions, the oldest first. There may be some of the same template.
	Others []*appsv1.ControllerRevision
}

// Decide says what is to be done about the history of an owner that has some revisions.
func Decide(of Owner, all []*appsv1.ControllerRevision) (Plan, error) {
	all = Sorted(all)
	data, err := patch(of.Template)
	if err != nil {
		return Plan{}, err
	}
	current := -1
	for i := len(all) - 1; i >= 0 && current < 0; i-- {
		if same(all[i], of.Template, data) {
			current = i
		}
	}
	if current < 0 {
		next := int64(1)
		if len(all) > 0 {
			next = after(all[len(all)-1].Revision)
		}
		return Plan{Current: newRevision(of, data, next), Create: true, Others: all}, nil
	}
	plan := Plan{Current: all[current], Others: slices.Delete(slices.Clone(all), current, current+1)}
	if n := len(plan.Others); n > 0 && plan.Others[n-1].Revision >= plan.Current.Revision {
		if number := after(plan.Others[n-1].Revision); number > plan.Current.Revision {
			plan.Current, plan.Renumber = plan.Current.DeepCopy(), true
			plan.Current.Revision = number
		}
	}
	return plan, nil
}

// after is the number that follows another one. The largest one, which only a user can have written, is followed by itself: of revisions with the same number the one
// that was made last is the newest.
func after(number int64) int64 { return number + min(1, math.MaxInt64-number) }

// Sorted are revisions in the order of their numbers.
func Sorted(all []*appsv1.ControllerRevision) []*appsv1.ControllerRevision {
	return slices.SortedStableFunc(slices.Values(all), func(a, b *appsv1.ControllerRevision) int {
		return cmp.Or(cmp.Compare(a.Revision, b.Revision), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

// Template is the template of a revision.
func Template(of *appsv1.ControllerRevision) (*corev1.PodTemplateSpec, error) {
	var data struct {
		Spec struct {
			Template *corev1.PodTemplateSpec `json:"template"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(of.Data.Raw, &data); err != nil {
		return nil, fmt.Errorf("revision %s: its data is no patch of a template: %w", of.Name, err)
	}
	if data.Spec.Template == nil {
		return nil, fmt.Errorf("revision %s: its data has no spec.template", of.Name)
	}
	return data.Spec.Template, nil
}

// Same says whether a revision is one of a template.
func Same(revision *appsv1.ControllerRevision, template *corev1.PodTemplateSpec) bool {
	return same(revision, template, nil)
}

func same(revision *appsv1.ControllerRevision, template *corev1.PodTemplateSpec, data []byte) bool {
	if data != nil && bytes.Equal(revision.Data.Raw, data) {
		return true
	}
	its, err := Template(revision)
	return err == nil && equality.Semantic.DeepEqual(its, template) // one that cannot be read is of no template
}

// patch is the strategic merge patch that gives an object a template in the place of the one that it has.
func patch(template *corev1.PodTemplateSpec) ([]byte, error) {
	data, err := json.Marshal(template)
	if err != nil {
		return nil, fmt.Errorf("a pod template cannot be written as a patch: %w", err)
	}
	// Sorted by its keys, as kubectl writes it that compares the bytes.
	whole := map[string]any{}
	if err := json.Unmarshal(data, &whole); err != nil {
		return nil, fmt.Errorf("a pod template cannot be written as a patch: %w", err)
	}
	whole["$patch"] = "replace"
	return json.Marshal(map[string]any{"spec": map[string]any{"template": whole}})
}

func newRevision(of Owner, data []byte, number int64) *appsv1.ControllerRevision {
	sum := hash(data, of.Collisions)
	labels := maps.Clone(of.Template.Labels)
	if labels == nil {
		labels = map[string]string{}
	}
	labels[of.HashLabel] = sum
	annotations := maps.Clone(of.GetAnnotations())
	delete(annotations, corev1.LastAppliedConfigAnnotation) // it is about the owner itself
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: of.GetName()[:min(len(of.GetName()), longestPrefix)] + "-" + sum, Namespace: of.GetNamespace(), Labels: labels, Annotations: annotations,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(of, of.Kind)},
		},
		Data: runtime.RawExtension{Raw: data}, Revision: number,
	}
}

// hash is a short name for a template. Two templates that have the same by chance are told apart by how often that has happened.
func hash(data []byte, collisions *int32) string {
	h := fnv.New32a()
	h.Write(data)
	if collisions != nil && *collisions > 0 {
		fmt.Fprintf(h, "/%d", *collisions)
	}
	return rand.SafeEncodeString(strconv.FormatUint(uint64(h.Sum32()), 10))
}
