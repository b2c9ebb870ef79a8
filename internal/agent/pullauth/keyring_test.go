package pullauth

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	v1 "k8s.io/api/core/v1"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

func TestMatches(t *testing.T) {
	for _, c := range []struct {
		key, image string
		want       bool
	}{
		{"https://index.docker.io/v1/", "docker.io/library/busybox", true},
		{"index.docker.io", "docker.io/me/tool", true},
		{"docker.io", "docker.io/me/tool", true},
		{"docker.io/me", "docker.io/me/tool", true},
		{"docker.io/me", "docker.io/mean/tool", true}, // a prefix of the path, not of its elements
		{"docker.io/me/", "docker.io/mean/tool", false},
		{"docker.io/you", "docker.io/me/tool", false},
		{"r.example.com", "r.example.com/a/b", true},
		{"r.example.com", "r.example.com:5000/a", false},
		{"r.example.com:5000", "r.example.com:5000/a", true},
		{"r.example.com:5000", "r.example.com/a", false},
		{"http://localhost/x/", "localhost/x/y", true},
		{"https://r.example.com/v2/", "r.example.com/a", true},
		{"https://r.example.com/v2/team", "r.example.com/team/a", true},
		{"r.example.com", "docker.io/library/busybox", false},
		{"*.example.com", "r.example.com/a", true},
		{"*.example.com", "example.com/a", false},
		{"*.example.com", "a.b.example.com/a", false},
		{"*.*.example.com", "a.b.example.com/a", true},
		{"prefix.*.com", "prefix.example.com/a", true},
		{"*-good.example.com", "very-good.example.com/a", true},
		{"app*.example.com", "app1.example.com/a", true},
		{"*.com", "r.example.com/a", false},
		{"*.example.com:5000/team", "r.example.com:5000/team/a", true},
		{"r.example.com/*", "r.example.com/a", false}, // wildcards are for hosts
		{"[::1]:5000", "[::1]:5000/a", true},
	} {
		var k Keyring
		if err := k.Add(c.key, &cri.AuthConfig{Username: "u"}); err != nil {
			t.Errorf("%s: %v", c.key, err)
		}
		if got := len(k.Lookup(c.image)) == 1; got != c.want {
			t.Errorf("%s for %s: %v, want %v", c.key, c.image, got, c.want)
		}
	}
	for _, key := range []string{"", "/a", "https://", "a b", "[a.example.com"} {
		if err := new(Keyring).Add(key, &cri.AuthConfig{}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("%q", key)) {
			t.Errorf("key %q: %v, want an error that names it", key, err)
		}
	}
}

func said(auths []*cri.AuthConfig) string {
	var names []string
	for _, a := range auths {
		names = append(names, a.Username+":"+a.Password)
	}
	return strings.Join(names, " ")
}

func TestOrder(t *testing.T) {
	var k Keyring
	for _, e := range []struct{ key, user string }{
		{"r.io", "all"}, {"r.io/team/app", "app"}, {"*.io", "wild"}, {"r.io/team", "team"}, {"r.io/team", "second"}, {"r.io/other", "other"},
		{"r.io", "app"}, // the same credential again
	} {
		if err := k.Add(e.key, &cri.AuthConfig{Username: e.user}); err != nil {
			t.Fatal(err)
		}
	}
	if got := said(k.Lookup("r.io/team/app")); got != "app: team: second: all: wild:" {
		t.Errorf("order %q", got)
	}
}

func secret(kind v1.SecretType, key, data string) *v1.Secret {
	return &v1.Secret{Type: kind, Data: map[string][]byte{key: []byte(data)}}
}

func TestSecrets(t *testing.T) {
	auth := base64.StdEncoding.EncodeToString([]byte("me:pass:word"))
	for name, tc := range map[string]struct {
		secret    *v1.Secret
		want, err string
	}{
		"dockerconfigjson": {secret(v1.SecretTypeDockerConfigJson, v1.DockerConfigJsonKey, `{"auths":{"r.io":{"auth":"`+auth+`"}},"credHelpers":{}}`), "me:pass:word", ""},
		"without padding": {secret(v1.SecretTypeDockerConfigJson, v1.DockerConfigJsonKey,
			`{"auths":{"r.io":{"auth":"`+strings.TrimRight(auth, "=")+`"}}}`), "me:pass:word", ""},
		"name and password": {secret(v1.SecretTypeDockerConfigJson, v1.DockerConfigJsonKey, `{"auths":{"r.io":{"username":"u","password":"p"}}}`), "u:p", ""},
		"auth goes first": {secret(v1.SecretTypeDockerConfigJson, v1.DockerConfigJsonKey,
			`{"auths":{"r.io":{"username":"u","password":"p","auth":"`+auth+`"}}}`), "me:pass:word", ""},
		"dockercfg": {secret(v1.SecretTypeDockercfg, v1.DockerConfigKey, `{"r.io":{"username":"u","password":"p"}}`), "u:p", ""},
		"one entry is broken": {secret(v1.SecretTypeDockercfg, v1.DockerConfigKey,
			`{"r.io":{"username":"u","password":"p"},"r.io/a":{"auth":"c2VjcmV0"}}`), "u:p", `"r.io/a"`},
		"no base64":   {secret(v1.SecretTypeDockercfg, v1.DockerConfigKey, `{"r.io":{"auth":"topsecret!"}}`), "", "base64"},
		"nonsense":    {secret(v1.SecretTypeDockerConfigJson, v1.DockerConfigJsonKey, `topsecret`), "", "not a docker configuration"},
		"other shape": {secret(v1.SecretTypeDockerConfigJson, v1.DockerConfigJsonKey, `{"auths":"topsecret"}`), "", "not a docker configuration"},
		"wrong key":   {secret(v1.SecretTypeDockerConfigJson, v1.DockerConfigKey, `{}`), "", ".dockerconfigjson"},
		"opaque":      {secret(v1.SecretTypeOpaque, v1.DockerConfigJsonKey, `{}`), "", `"Opaque"`},
	} {
		t.Run(name, func(t *testing.T) {
			var k Keyring
			err := k.AddSecret(tc.secret)
			if (err != nil) != (tc.err != "") || err != nil && (!strings.Contains(err.Error(), tc.err) || strings.Contains(err.Error(), "secret!") || strings.Contains(err.Error(), "topsecret")) {
				t.Errorf("error %v, want one with %q that tells no secret", err, tc.err)
			}
			if got := said(k.Lookup("r.io/a/b")); got != tc.want {
				t.Errorf("credentials %q, want %q", got, tc.want)
			}
		})
	}
}

func FuzzSecret(f *testing.F) {
	f.Add([]byte(`{"auths":{"*.r.io:5000/x":{"auth":"bWU6cGFzcw=="}}}`))
	f.Add([]byte(`{"r.io":{"username":"u","password":"p"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for kind, key := range map[v1.SecretType]string{v1.SecretTypeDockerConfigJson: v1.DockerConfigJsonKey, v1.SecretTypeDockercfg: v1.DockerConfigKey} {
			var k Keyring
			_ = k.AddSecret(secret(kind, key, string(data))) // must not panic, whatever it is
			k.Lookup("r.io/a")
			k.Lookup(string(data))
		}
	})
}
