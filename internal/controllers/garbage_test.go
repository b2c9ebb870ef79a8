package controllers_test

import (
	"context"
	"strings"
	"testing"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/test/apitest"
)

type owners struct{ *apitest.API }

// ownedBy is a reference to a config map.
func ownedBy(c *corev1.ConfigMap, blocks bool) metav1.OwnerReference {
	return metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: c.Name, UID: c.UID, BlockOwnerDeletion: &blocks}
}

// configMap makes a config map in a namespace; it is an owner in most tests.
func (w owners) configMap(namespace, name string, change func(*metav1.ObjectMeta), owners ...metav1.OwnerReference) *corev1.ConfigMap {
	w.Helper()
	c := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}
	if change != nil {
		change(&c.ObjectMeta)
	}
	c, err := w.Client.CoreV1().ConfigMaps(namespace).Create(w.Context(), c, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// secret makes a secret in default; it is a dependent in most tests.
func (w owners) secret(name string, change func(*metav1.ObjectMeta), owners ...metav1.OwnerReference) *corev1.Secret {
	w.Helper()
	s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}
	if change != nil {
		change(&s.ObjectMeta)
	}
	s, err := w.Client.CoreV1().Secrets("default").Create(w.Context(), s, metav1.CreateOptions{})
	if err != nil {
		w.Fatal(err)
	}
	return s
}

func (w owners) delete(configMap string, policy metav1.DeletionPropagation) {
	w.Helper()
	if err := w.Client.CoreV1().ConfigMaps("default").Delete(w.Context(), configMap, metav1.DeleteOptions{PropagationPolicy: &policy}); err != nil {
		w.Fatal(err)
	}
}

func (w owners) letGo(secret string) {
	w.Helper()
	_, err := w.Client.CoreV1().Secrets("default").Patch(w.Context(), secret, types.JSONPatchType,
		[]byte(`[{"op":"remove","path":"/metadata/finalizers"}]`), metav1.PatchOptions{})
	if err != nil {
		w.Fatal(err)
	}
}

// settle waits until the collector has come to what was changed before: it collects something that came last.
func (w owners) settle() {
	w.Helper()
	name := "zz-last"
	c := w.configMap("default", name, nil)
	w.secret(name, nil, ownedBy(c, false))
	w.delete(name, metav1.DeletePropagationBackground)
	w.AwaitGone(secretResource, "default", name)
}

func (w owners) stays(secret string) *corev1.Secret {
	w.Helper()
	s, err := w.Client.CoreV1().Secrets("default").Get(w.Context(), secret, metav1.GetOptions{})
	if err != nil || s.DeletionTimestamp != nil {
		w.Errorf("secret %s: %v, %v", secret, err, s)
	}
	return s
}

func held(m *metav1.ObjectMeta) { m.Finalizers = []string{hold} }

func TestGarbageInTheBackground(t *testing.T) {
	w := owners{apitest.Start(t)}
	w.Control(catalog.GarbageCollector)
	a, b := w.configMap("default", "a", nil), w.configMap("default", "b", nil)
	child := w.configMap("default", "child", nil, ownedBy(a, true))
	w.secret("grandchild", nil, ownedBy(child, true))
	w.secret("of-both", nil, ownedBy(a, true), ownedBy(b, true))
	w.secret("of-nobody", nil)
	w.delete("a", metav1.DeletePropagationBackground)
	w.AwaitGone(configMapResource, "default", "child")
	w.AwaitGone(secretResource, "default", "grandchild")
	w.Await(secretResource, "default", "of-both", "owned by b alone", func(o *metav1.PartialObjectMetadata) bool {
		return len(o.OwnerReferences) == 1 && o.OwnerReferences[0].Name == "b"
	})
	w.settle()
	w.stays("of-nobody")
	w.stays("of-both")
	w.delete("b", metav1.DeletePropagationBackground)
	w.AwaitGone(secretResource, "default", "of-both")
}

func TestGarbageInTheForeground(t *testing.T) {
	w := owners{apitest.Start(t)}
	w.Control(catalog.GarbageCollector)
	a := w.configMap("default", "a", nil)
	child := w.configMap("default", "child", nil, ownedBy(a, true))
	w.secret("grandchild", held, ownedBy(child, true))
	w.secret("unblocking", held, ownedBy(a, false))
	w.settle() // changes of several kinds come in no order
	w.delete("a", metav1.DeletePropagationForeground)
	for _, s := range []string{"grandchild", "unblocking"} {
		w.Await(secretResource, "default", s, "deleted", func(o *metav1.PartialObjectMetadata) bool { return o.DeletionTimestamp != nil })
	}
	w.settle()
	for _, c := range []string{"a", "child"} {
		m, err := w.Client.CoreV1().ConfigMaps("default").Get(t.Context(), c, metav1.GetOptions{})
		if err != nil || len(m.Finalizers) != 1 || m.Finalizers[0] != metav1.FinalizerDeleteDependents {
			t.Errorf("%s does not wait for its dependents: %v, %v", c, err, m)
		}
	}
	w.letGo("grandchild")
	w.AwaitGone(configMapResource, "default", "child")
	w.AwaitGone(configMapResource, "default", "a") // though one is left that does not block it
	w.letGo("unblocking")
	w.AwaitGone(secretResource, "default", "unblocking")
}

// TestACircleOfOwnersEnds: two that own each other, and wait for each other.
func TestACircleOfOwnersEnds(t *testing.T) {
	w := owners{apitest.Start(t)}
	w.Control(catalog.GarbageCollector)
	a := w.configMap("default", "a", nil)
	b := w.configMap("default", "b", nil, ownedBy(a, true))
	a.OwnerReferences = []metav1.OwnerReference{ownedBy(b, true)}
	if _, err := w.Client.CoreV1().ConfigMaps("default").Update(t.Context(), a, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.settle()
	w.delete("a", metav1.DeletePropagationForeground)
	w.AwaitGone(configMapResource, "default", "a")
	w.AwaitGone(configMapResource, "default", "b")
}

// TestCirclesThatAreDeletedTogetherEnd: each waits for the next one, and the last one, which may be the only one, for the first.
func TestCirclesThatAreDeletedTogetherEnd(t *testing.T) {
	w := owners{apitest.Start(t)}
	names := []string{"a", "b", "c"}
	all := map[string]*corev1.ConfigMap{}
	for _, name := range append(names, "alone") {
		all[name] = w.configMap("default", name, nil)
	}
	for name, of := range map[string]string{"a": "b", "b": "c", "c": "a", "alone": "alone"} {
		all[name].OwnerReferences = []metav1.OwnerReference{ownedBy(all[of], true)}
		if _, err := w.Client.CoreV1().ConfigMaps("default").Update(t.Context(), all[name], metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		w.delete(name, metav1.DeletePropagationForeground)
	}
	w.Control(catalog.GarbageCollector)
	for name := range all {
		w.AwaitGone(configMapResource, "default", name)
	}
}

func TestOrphans(t *testing.T) {
	w := owners{apitest.Start(t)}
	w.Control(catalog.GarbageCollector)
	a, b := w.configMap("default", "a", nil), w.configMap("default", "b", nil)
	w.secret("child", nil, ownedBy(a, true))
	w.secret("of-both", nil, ownedBy(a, true), ownedBy(b, true))
	w.settle() // as above
	w.delete("a", metav1.DeletePropagationOrphan)
	w.AwaitGone(configMapResource, "default", "a")
	w.settle()
	if s := w.stays("child"); len(s.OwnerReferences) > 0 {
		t.Errorf("the orphan has owners: %v", s.OwnerReferences)
	}
	if s := w.stays("of-both"); len(s.OwnerReferences) != 1 || s.OwnerReferences[0].Name != "b" {
		t.Errorf("the other owner of an orphan is lost: %v", s.OwnerReferences)
	}
}

func TestAnOwnerThatIsNotThere(t *testing.T) {
	w := owners{apitest.Start(t)}
	w.Control(catalog.GarbageCollector)
	gone := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "gone", UID: "0b3a8c6e-5d1f-4a52-9f5a-1f2d3c4b5a69"}}
	w.secret("of-nobody", nil, ownedBy(gone, false))
	w.AwaitGone(secretResource, "default", "of-nobody")

	// One of the same name is another one.
	w.configMap("default", "gone", nil)
	w.secret("of-another", nil, ownedBy(gone, false))
	w.AwaitGone(secretResource, "default", "of-another")
}

// TestAnOwnerThatIsMadeAnew: the dependents of the old one are not the new one's.
func TestAnOwnerThatIsMadeAnew(t *testing.T) {
	w := owners{apitest.Start(t)}
	stop := w.Control(catalog.GarbageCollector)
	a := w.configMap("default", "a", nil)
	w.secret("old", nil, ownedBy(a, true))
	w.settle()
	stop() // nobody sees that the first one goes
	w.delete("a", metav1.DeletePropagationBackground)
	a = w.configMap("default", "a", nil)
	w.secret("new", nil, ownedBy(a, true))
	w.Control(catalog.GarbageCollector)
	w.AwaitGone(secretResource, "default", "old")
	w.settle()
	w.stays("new")
}

func TestAnOwnersKindThatNobodyKnowsIsNoReason(t *testing.T) {
	w := owners{apitest.Start(t)}
	w.Control(catalog.GarbageCollector)
	a := w.configMap("default", "a", nil)
	w.secret("s", nil, ownedBy(a, true), metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Widget", Name: "w", UID: "0b3a8c6e-5d1f-4a52-9f5a-1f2d3c4b5a69"})
	w.delete("a", metav1.DeletePropagationBackground)
	w.settle()
	w.stays("s")
}

// TestOwnersInOtherNamespaces are none, and owners in a namespace are none for an object that is in none, which is left alone.
func TestOwnersInOtherNamespaces(t *testing.T) {
	w := owners{apitest.Start(t)}
	w.Control(catalog.GarbageCollector)
	far := w.configMap("kube-system", "far", nil)
	w.settle() // it has been seen
	w.secret("s", nil, ownedBy(far, true))
	w.AwaitGone(secretResource, "default", "s")
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", OwnerReferences: []metav1.OwnerReference{ownedBy(far, true)}}}
	if _, err := w.Client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.untilStray("Secret", "s", string(far.UID), `does not exist in namespace "default"`)
	w.untilStray("Node", "n1", string(far.UID), `does not exist in namespace ""`)
	w.Await(nodeResource, "", "n1", "left alone", func(o *metav1.PartialObjectMetadata) bool { return o != nil && o.DeletionTimestamp == nil })
}

// untilStray waits for an event that tells of an owner that cannot be.
func (w owners) untilStray(kind, name string, words ...string) {
	w.Helper()
	ctx, cancel := context.WithTimeout(w.Context(), apitest.Timeout)
	defer cancel()
	options := metav1.ListOptions{FieldSelector: "reason=OwnerRefInvalidNamespace,involvedObject.name=" + name}
	watcher, err := w.Client.CoreV1().Events("").Watch(ctx, options) // begins with what is there
	if err != nil {
		w.Fatal(err)
	}
	defer watcher.Stop()
	for e := range watcher.ResultChan() {
		event, ok := e.Object.(*corev1.Event)
		all := ok && event.InvolvedObject.Kind == kind && event.Type == corev1.EventTypeWarning && event.Source.Component == "garbage-collector-controller"
		for _, word := range words {
			all = all && strings.Contains(event.Message, word)
		}
		if all {
			return
		}
	}
	w.Errorf("no event about the owner of %s %s", kind, name)
}

// TestANewCollectorGoesOn with what another one has left in the middle.
func TestANewCollectorGoesOn(t *testing.T) {
	w := owners{apitest.Start(t)}
	front, orphanage := w.configMap("default", "front", nil), w.configMap("default", "orphanage", nil)
	w.secret("held", held, ownedBy(front, true))
	w.secret("free", nil, ownedBy(front, true))
	w.secret("orphan", nil, ownedBy(orphanage, true))
	before := goleak.IgnoreCurrent()
	stop := w.Control(catalog.GarbageCollector)
	w.delete("front", metav1.DeletePropagationForeground)
	w.AwaitGone(secretResource, "default", "free")
	stop()
	// The server's watch cache lets a timer of three seconds run out after a list.
	goleak.VerifyNone(t, before, goleak.IgnoreTopFunction("k8s.io/apiserver/pkg/storage/cacher.(*watchCache).waitUntilFreshLocked.func2"))

	w.letGo("held")
	w.delete("orphanage", metav1.DeletePropagationOrphan)
	w.Await(configMapResource, "default", "front", "waiting for somebody", func(o *metav1.PartialObjectMetadata) bool { return o != nil })
	w.Control(catalog.GarbageCollector)
	w.AwaitGone(configMapResource, "default", "front")
	w.AwaitGone(configMapResource, "default", "orphanage")
	w.settle()
	w.stays("orphan")
}
