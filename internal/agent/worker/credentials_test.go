package worker

import (
	"encoding/base64"
	"fmt"
	"testing"

	v1 "k8s.io/api/core/v1"
)

func TestMatches(t *testing.T) {
	auth := base64.StdEncoding.EncodeToString([]byte("me:pass:word"))
	config := func(registry string) *v1.Secret {
		return &v1.Secret{Data: map[string][]byte{v1.DockerConfigJsonKey: fmt.Appendf(nil, `{"auths":{%q:{"auth":%q}}}`, registry, auth)}}
	}
	for _, c := range []struct {
		registry, image string
		want            bool
	}{
		{"https://index.docker.io/v1/", "busybox", true},
		{"https://index.docker.io/v1/", "me/tool:1", true},
		{"docker.io/me", "docker.io/me/tool", true},
		{"docker.io/me", "docker.io/mean/tool", false},
		{"r.example.com", "r.example.com/a/b@sha256:0", true},
		{"r.example.com", "r.example.com:5000/a", false},
		{"r.example.com:5000", "r.example.com:5000/a:tag", true},
		{"http://localhost/x/", "localhost/x/y", true},
		{"r.example.com", "busybox", false},
	} {
		found, err := matches(config(c.registry), c.image)
		if err != nil || (len(found) == 1) != c.want {
			t.Errorf("%s for %s: %v, %v", c.registry, c.image, found, err)
		}
		if len(found) == 1 && (found[0].auth.Username != "me" || found[0].auth.Password != "pass:word") {
			t.Errorf("credential %+v", found[0].auth)
		}
	}
	old := &v1.Secret{Data: map[string][]byte{v1.DockerConfigKey: []byte(`{"r.io":{"username":"u","password":"p"}}`)}}
	if found, err := matches(old, "r.io/x"); err != nil || len(found) != 1 || found[0].auth.Username != "u" {
		t.Errorf("dockercfg: %v, %v", found, err)
	}
	if _, err := matches(&v1.Secret{Data: map[string][]byte{v1.DockerConfigJsonKey: []byte(`secret nonsense`)}}, "x"); err == nil {
		t.Error("nonsense was taken")
	}
}
