package apiserver_test

import (
	"net/http"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// A client of this host gets a large answer as it is, whatever it could read.
func TestPlainAnswers(t *testing.T) {
	i := start(t, newConfig(t))
	defer i.end(t)
	large := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "large"}, Data: map[string]string{"k": strings.Repeat("x", 512<<10)}}
	if _, err := i.admin(t).CoreV1().ConfigMaps("default").Create(t.Context(), large, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	admin := i.AdminConfig()
	transport, err := rest.TransportFor(admin)
	if err != nil {
		t.Fatal(err)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, admin.Host+"/api/v1/namespaces/default/configmaps/large", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept-Encoding", "gzip")
	resp, err := transport.RoundTrip(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if encoding := resp.Header.Get("Content-Encoding"); resp.StatusCode != http.StatusOK || encoding != "" {
		t.Errorf("%s, encoding %q", resp.Status, encoding)
	}
}
