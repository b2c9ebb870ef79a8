package owned

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// there is an API server with one pod at every name; nil: with none.
type there struct{ *corev1.Pod }

func (t there) RoundTrip(r *http.Request) (*http.Response, error) {
	var body any = apierrors.NewNotFound(corev1.Resource("pods"), "p").Status()
	code := http.StatusNotFound
	if t.Pod != nil {
		t.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
		body, code = t.Pod, http.StatusOK
	}
	data, err := json.Marshal(body)
	return &http.Response{
		StatusCode: code, Header: http.Header{"Content-Type": {"application/json"}}, Request: r, Body: io.NopCloser(strings.NewReader(string(data))),
	}, err
}

func TestGone(t *testing.T) {
	pods := corev1.Resource("pods")
	other := pod("p", "a", "")
	other.UID = "other"
	for name, c := range map[string]struct {
		err   error
		there *corev1.Pod
		want  bool
	}{
		"not found":                          {apierrors.NewNotFound(pods, "p"), nil, true},
		"a conflict with another pod":        {apierrors.NewConflict(pods, "p", nil), other, true},
		"a conflict with a writer":           {apierrors.NewConflict(pods, "p", nil), pod("p", "a", ""), false},
		"another UID is invalid":             {apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", nil), other, true},
		"it is gone since":                   {apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", nil), nil, true},
		"something else of it is invalid":    {apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Pod").GroupKind(), "p", nil), pod("p", "a", ""), false},
		"nobody may write":                   {apierrors.NewForbidden(pods, "p", nil), other, false},
		"the API server is not itself today": {apierrors.NewInternalError(io.EOF), nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			client := kubernetes.NewForConfigOrDie(&rest.Config{Host: "http://api", Transport: there{c.there}, ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
			if got := Gone(t.Context(), client, pod("p", "a", ""), c.err); got != c.want {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}
