package registry_test

import (
	"reflect"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/apiserver/registry/secret"
)

func secretOf(kind corev1.SecretType, data map[string][]byte) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "s", Namespace: "default", ResourceVersion: "1"}, Type: kind, Data: data}
}

func TestDefaultsOfSecrets(t *testing.T) {
	s := secretOf("", map[string][]byte{"kept": []byte("1"), "replaced": []byte("2")})
	s.StringData = map[string]string{"replaced": "3", "new": "4"}
	secret.Resource().Default(s)
	want := secretOf(corev1.SecretTypeOpaque, map[string][]byte{"kept": []byte("1"), "replaced": []byte("3"), "new": []byte("4")})
	if !reflect.DeepEqual(s, want) {
		t.Errorf("got %v, want %v", s, want)
	}
}

func TestValidationOfSecrets(t *testing.T) {
	some := []byte("x")
	for name, tc := range map[string]struct {
		secret *corev1.Secret
		want   string // empty: valid
	}{
		"opaque":                 {secretOf(corev1.SecretTypeOpaque, nil), ""},
		"a type of the user's":   {secretOf("example.com/mine", nil), ""},
		"key":                    {secretOf(corev1.SecretTypeOpaque, map[string][]byte{"a/b": some}), "data[a/b]"},
		"too much":               {secretOf(corev1.SecretTypeOpaque, map[string][]byte{"a": make([]byte, corev1.MaxSecretSize+1)}), "Too long"},
		"tls":                    {secretOf(corev1.SecretTypeTLS, map[string][]byte{"tls.crt": some, "tls.key": some}), ""},
		"tls without key":        {secretOf(corev1.SecretTypeTLS, map[string][]byte{"tls.crt": some}), "data[tls.key]: Required"},
		"ssh":                    {secretOf(corev1.SecretTypeSSHAuth, nil), "data[ssh-privatekey]: Required"},
		"basic by password":      {secretOf(corev1.SecretTypeBasicAuth, map[string][]byte{"password": some}), ""},
		"basic with neither":     {secretOf(corev1.SecretTypeBasicAuth, nil), "data[username]: Required"},
		"docker":                 {secretOf(corev1.SecretTypeDockerConfigJson, map[string][]byte{".dockerconfigjson": []byte("{}")}), ""},
		"docker without":         {secretOf(corev1.SecretTypeDockercfg, nil), "data[.dockercfg]: Required"},
		"service account's":      {secretOf(corev1.SecretTypeServiceAccountToken, nil), "metadata.annotations[kubernetes.io/service-account.name]: Required"},
		"docker that is no JSON": {secretOf(corev1.SecretTypeDockerConfigJson, map[string][]byte{".dockerconfigjson": []byte("hush")}), "must be JSON"},
	} {
		t.Run(name, func(t *testing.T) {
			err := secret.Resource().Check(tc.secret).ToAggregate()
			if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
			if err != nil && strings.Contains(err.Error(), "hush") {
				t.Errorf("the error shows the secret: %v", err)
			}
		})
	}
}

func TestUpdatesOfSecrets(t *testing.T) {
	yes, no := true, false
	old := secretOf(corev1.SecretTypeOpaque, map[string][]byte{"a": []byte("1")})
	old.Immutable = &yes
	for name, tc := range map[string]struct {
		change func(*corev1.Secret)
		want   string
	}{
		"same":      {func(*corev1.Secret) {}, ""},
		"labels":    {func(s *corev1.Secret) { s.Labels = map[string]string{"a": "b"} }, ""},
		"data":      {func(s *corev1.Secret) { s.Data = nil }, "data: Forbidden"},
		"mutable":   {func(s *corev1.Secret) { s.Immutable = &no }, "immutable: Forbidden"},
		"type":      {func(s *corev1.Secret) { s.Type = "example.com/x" }, "type: Invalid value"},
		"unmarked":  {func(s *corev1.Secret) { s.Immutable = nil }, "immutable: Forbidden"},
		"bad label": {func(s *corev1.Secret) { s.Labels = map[string]string{"a": "b c"} }, "metadata.labels"},
	} {
		t.Run(name, func(t *testing.T) {
			s := old.DeepCopy()
			tc.change(s)
			err := secret.Resource().CheckUpdate(s, old).ToAggregate()
			if (tc.want == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), tc.want) {
				t.Errorf("error %v, want %q", err, tc.want)
			}
		})
	}
}
