package registry

import (
	"net/http"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/image/faults"
)

// FuzzAnswers reads what registries say: errors, and how long to wait.
func FuzzAnswers(f *testing.F) {
	f.Add([]byte(`{"errors":[{"code":"DENIED","message":"no\nway"}]}`))
	f.Add([]byte(`{"errors":[{"code":"` + strings.Repeat("é", 400) + `"}]}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		said := faults.Legible(&statusError{status: http.StatusText(503), says: registrySays(raw)}).Error()
		if !utf8.ValidString(said) || strings.IndexFunc(said, unicode.IsControl) >= 0 || len(said) > 4<<10 {
			t.Fatalf("%q", said)
		}
	})
}

// FuzzCredentials reads credentials of a caller: they are whole or refused, and go to no other host.
func FuzzCredentials(f *testing.F) {
	f.Add("dTpw", "https://registry.example/v1/", "registry.example")
	f.Add("***", "registry.example:443", "other.example")
	f.Fuzz(func(t *testing.T, auth, server, host string) {
		a := &Auth{Auth: auth, ServerAddress: server}
		if _, _, err := a.basic(); err != nil && !errdefs.IsInvalidArgument(err) {
			t.Fatal(err)
		}
		if a.appliesTo(host, "registry.example") && !strings.Contains(server, host) && server != "" && canonicalHost(host) != "docker.io" {
			t.Fatalf("credentials for %q go to %q", server, host)
		}
	})
}
