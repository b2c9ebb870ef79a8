package ocispec

import (
	"strings"
	"testing"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// TestWeight: labels and annotations, which lists tell of each pod and container, are bounded as the API bounds a pod's annotations: by keys
// and values together, to the byte.
func TestWeight(t *testing.T) {
	const bound = 262144
	of := func(bytes int) map[string]string { // a key of 10 bytes, one of 1
		return map[string]string{"a.test/key": strings.Repeat("v", bytes-12), "b": "w"}
	}
	added := of(bound)
	added["kubernetes.io/config.seen"], added["kubernetes.io/config.source"] = "2026-01-02T03:04:05.123456789+01:00", "api"
	heavy := map[string]string{"kubernetes.io/config.seen": strings.Repeat("v", bound)}
	for _, c := range []struct {
		name            string
		of              map[string]string
		class, contains string
	}{
		{"none", nil, "", ""},
		{"as much as may be", of(bound), "", ""},
		{"a byte more", of(bound + 1), "invalid", ": keys and values have 262145 bytes together; no more than 262144 (256 KiB) are taken"},
		{"many small ones", many(20000), "invalid", ": keys and values have 280000 bytes together"},
		{"what kubelets add to a pod's own", added, "", ""},
		{"what kubelets do not add", heavy, "invalid", ": keys and values have 262169 bytes together"},
	} {
		for field, set := range map[string]func(*Input) error{
			"annotations": func(in *Input) error {
				in.Sandbox.Annotations = c.of
				return ValidateSandbox(in.Sandbox, in.Host)
			},
			"labels": func(in *Input) error {
				in.Sandbox.Labels = c.of
				return ValidateSandbox(in.Sandbox, in.Host)
			},
			"annotations ": func(in *Input) error {
				in.Container.Annotations = c.of
				return Validate(in.Sandbox, in.Container, in.Host)
			},
			"labels ": func(in *Input) error {
				in.Container.Labels = c.of
				return Validate(in.Sandbox, in.Container, in.Host)
			},
			"image.annotations": func(in *Input) error {
				in.Container.Image = &cri.ImageSpec{Image: "i", Annotations: c.of}
				return Validate(in.Sandbox, in.Container, in.Host)
			},
		} {
			contains := c.contains
			if contains != "" {
				contains = strings.TrimSpace(field) + contains
			}
			in := testInput()
			expect(t, c.name+": "+field, set(&in), c.class, contains)
		}
	}
	// A sandbox that is there already, of a version without this bound, gets its containers.
	in := testInput()
	in.Sandbox.Annotations = of(bound + 1)
	expect(t, "sandbox of an older version", Validate(in.Sandbox, in.Container, in.Host), "", "")
}

// many are n pairs of 14 bytes.
func many(n int) map[string]string {
	pairs := map[string]string{}
	for i := range n {
		pairs["k"+string([]byte{'a' + byte(i/17576%26), 'a' + byte(i/676%26), 'a' + byte(i/26%26), 'a' + byte(i%26)})+"/k"] = "value.v"
	}
	return pairs
}
