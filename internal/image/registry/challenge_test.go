package registry

import (
	"net/http"
	"net/url"
	"slices"
	"testing"

	"github.com/containerd/containerd/v2/core/remotes/docker/auth"
)

func TestReadChallenges(t *testing.T) {
	for field, want := range map[string][]string{
		"":                              nil,
		`Basic realm="r"`:               {`Basic realm="r"`},
		`Basic`:                         {`Basic`},
		`Bearer a=b,c="d, e" , f = 'g'`: {`Bearer a="b",c="d, e",f="g"`},
		`Basic realm="r", Bearer realm="https://t/",service=s`: {`Basic realm="r"`, `Bearer realm="https://t/",service="s"`},
		`Negotiate, NTLM abc==, Basic realm=r`:                 {`Negotiate`, `NTLM abc="="`, `Basic realm="r"`},
		`Bearer realm="a\"b\\c"`:                               {`Bearer realm="a\"b\\c"`},
		`realm="r"`:                                            nil,
		`,, =;"`:                                               nil,
	} {
		var got []string
		for _, c := range readChallenges([]string{field}) {
			got = append(got, c.String())
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s: %q, want %q", field, got, want)
		}
	}
}

// FuzzChallenges: whatever a registry writes, what is made of it reads the same to containerd's parser as to ours.
func FuzzChallenges(f *testing.F) {
	for _, s := range []string{`Basic realm="r"`, `Bearer realm = "https://t/x?y",service='s' , scope="a b"`, `Negotiate abc==,Bearer realm=/t`, "\x00\xff\"'\\"} {
		f.Add(s)
	}
	at := &url.URL{Scheme: "https", Host: "registry.example", Path: "/v2/"}
	f.Fuzz(func(t *testing.T, field string) {
		resp := &http.Response{Header: http.Header{"Www-Authenticate": {field}}, Request: &http.Request{URL: at}}
		usable, _ := usableChallenges(resp, true)
		for _, c := range usable {
			parsed := auth.ParseAuthHeader(http.Header{"Www-Authenticate": {c.String()}})
			if len(parsed) != 1 {
				t.Fatalf("%q is read as %v", c.String(), parsed)
			}
			for _, p := range c.params {
				if c.is("Bearer") && parsed[0].Parameters[p[0]] != p[1] {
					t.Fatalf("%q: %s is %q, not %q", c.String(), p[0], parsed[0].Parameters[p[0]], p[1])
				}
			}
			if c.is("Bearer") {
				if u, err := url.Parse(c.param("realm")); err != nil || !u.IsAbs() {
					t.Fatalf("realm %q: %v", c.param("realm"), err)
				}
			}
		}
	})
}

// FuzzManifestKind: a document is told to be an image's manifest or index, or refused.
func FuzzManifestKind(f *testing.F) {
	for _, s := range []string{`{}`, `{"mediaType":"application/vnd.oci.image.index.v1+json"}`, `{"config":{},"layers":[]}`, `{"manifests":[]}`, `{"fsLayers":[{}]}`, `<html>`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if kind, err := kindOfManifest(raw); (kind == "") != (err != nil) {
			t.Fatalf("%q, %v", kind, err)
		}
	})
}
