package node

import (
	"errors"
	"testing"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
)

// TestControlPlane: each Node object gets the role once; who takes it away does not get it back before another start.
func TestControlPlane(t *testing.T) {
	kube := fake.NewClientset(&v1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "a", Labels: map[string]string{"x": "y"}}})
	var refused error
	kube.PrependReactor("patch", "nodes", func(clienttesting.Action) (bool, runtime.Object, error) { return refused != nil, nil, refused })
	c := &controlPlane{node: "n", kube: kube}
	if c.providerID() != "monopod://n" {
		t.Errorf("id %s", c.providerID())
	}
	has := func(uid types.UID, want bool) {
		t.Helper()
		if err := c.adopt(t.Context(), uid); err != nil {
			t.Error(err)
		}
		n, err := kube.CoreV1().Nodes().Get(t.Context(), "n", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if value, is := n.Labels[roleLabel]; is != want || value != "" || n.Labels["x"] != "y" {
			t.Errorf("labels of %s: %v, want the role: %v", uid, n.Labels, want)
		}
	}
	refused = errors.New("not now")
	if err := c.adopt(t.Context(), "a"); !errors.Is(err, refused) {
		t.Errorf("%v, want %v", err, refused)
	}
	refused = apierrors.NewConflict(v1.Resource("nodes"), "n", errors.New("it is another one"))
	has("a", false)
	refused = nil
	has("a", true)
	if _, err := kube.CoreV1().Nodes().Patch(t.Context(), "n", types.MergePatchType, []byte(`{"metadata":{"labels":{"`+roleLabel+`":null}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	has("a", false)
	c.adopted = "" // another process
	has("a", true)
}
