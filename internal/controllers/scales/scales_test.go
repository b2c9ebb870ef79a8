package scales

import (
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	discoveryfake "k8s.io/client-go/discovery/fake"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
)

// answers are what an API server says to requests, by their method and path.
type answers map[string]string

func (a answers) RoundTrip(r *http.Request) (*http.Response, error) {
	body, has := a[r.Method+" "+r.URL.Path]
	status := http.StatusOK
	if !has {
		status, body = http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404,"message":"games.example.org not found"}`
	}
	return &http.Response{StatusCode: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
}

// TestKinds: a kind that the API server comes to have is found, and one that it does not have is not asked for again and again.
func TestKinds(t *testing.T) {
	pods := &metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{{Name: "pods", Kind: "Pod", Namespaced: true, Verbs: metav1.Verbs{"get"}}}}
	served := &discoveryfake.FakeDiscovery{Fake: &clienttesting.Fake{Resources: []*metav1.APIResourceList{pods}}}
	games := metav1.APIResource{Name: "games", Kind: "Game", Namespaced: true, Verbs: metav1.Verbs{"get"}}
	scale := metav1.APIResource{Name: "games/scale", Kind: "Scale", Group: "autoscaling", Version: "v1", Namespaced: true, Verbs: metav1.Verbs{"get", "update"}}
	const path = "/apis/example.org/v1/namespaces/n/games/chess/scale"
	const body = `{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"chess","namespace":"n","uid":"u"},"spec":{"replicas":3},"status":{"replicas":2,"selector":"a=b"}}`
	s, err := New(&rest.Config{Host: "http://api"}, &http.Client{Transport: answers{"GET " + path: body, "PUT " + path: body}}, served)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	s.now = func() time.Time { return now }
	chess := func() error {
		_, _, err := s.Get(t.Context(), schema.GroupKind{Group: "example.org", Kind: "Game"}, "n", "chess")
		return err
	}
	if err := chess(); !errors.Is(err, ErrNotScalable) || !strings.Contains(err.Error(), `no matches for kind "Game"`) {
		t.Fatalf("a kind that is not there: %v", err)
	}
	of := &metav1.APIResourceList{GroupVersion: "example.org/v1", APIResources: []metav1.APIResource{games}}
	served.Resources = append(served.Resources, of)
	now = now.Add(patience - time.Second)
	if err := chess(); !errors.Is(err, ErrNotScalable) || !strings.Contains(err.Error(), "no matches") {
		t.Fatalf("it was asked for again too soon: %v", err)
	}
	now = now.Add(time.Second)
	if err := chess(); !errors.Is(err, ErrNotScalable) || err.Error() != "games.example.org does not implement the scale subresource" {
		t.Fatalf("a kind without a scale: %v", err)
	}
	of.APIResources = append(of.APIResources, scale)
	now = now.Add(patience)
	read, resource, err := s.Get(t.Context(), schema.GroupKind{Group: "example.org", Kind: "Game"}, "n", "chess")
	if err != nil || read.Spec.Replicas != 3 || read.Status.Selector != "a=b" || resource.String() != "games.example.org" {
		t.Fatalf("%+v of %s: %v", read, resource, err)
	}
	if err := s.Update(t.Context(), resource, read); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Get(t.Context(), schema.GroupKind{Group: "example.org", Kind: "Game"}, "n", "go"); !apierrors.IsNotFound(err) || errors.Is(err, ErrNotScalable) {
		t.Errorf("an object that is not there: %v", err)
	}
}
