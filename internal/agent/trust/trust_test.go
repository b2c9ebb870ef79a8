package trust

import (
	"context"
	"encoding/pem"
	"slices"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"monopod.dev/monopod/internal/agent/objects"
)

func block(content, headers string) string {
	text := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: []byte(content)}))
	return strings.Replace(text, "-----\n", "-----\n"+headers, 1)
}

// bundles are what an API server has.
type bundles []bundle

func (b bundles) Get(_ context.Context, n objects.Name) (runtime.Object, error) {
	if i := slices.IndexFunc(b, func(one bundle) bool { return one.Name == n.Name }); i >= 0 {
		return &b[i], nil
	}
	return nil, apierrors.NewNotFound(certificatesv1.Resource("clustertrustbundles"), n.Name)
}

func (b bundles) List(_ context.Context, n objects.Name) (all []runtime.Object, _ error) {
	for i := range b {
		if "spec.signerName="+b[i].Spec.SignerName == n.Selector {
			all = append(all, &b[i])
		}
	}
	return all, nil
}

// TestAnchors: what is selected is shown once each, plainly, in the same order each time, and in another one in another process.
func TestAnchors(t *testing.T) {
	of := func(name, signer, label, text string) bundle {
		return bundle{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"l": label}}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: signer, TrustBundle: text}}
	}
	all := bundles{
		of("roots", "", "", "between\n"+block("a", "X: y\n\n")+block("b", "")), of("a.b:c:1", "a.b/c", "x", block("a", "")+block("b", "")), of("a.b:c:2", "a.b/c", "y", block("b", "")+block("c", "")),
	}
	match := func(label string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"l": label}}
	}
	signer, yes := new("a.b/c"), new(true)
	r := New(all)
	for name, tc := range map[string]struct {
		p         v1.ClusterTrustBundleProjection
		want, err string
	}{
		"by name":            {v1.ClusterTrustBundleProjection{Name: new("roots")}, "ab", ""},
		"a signer's by name": {v1.ClusterTrustBundleProjection{Name: new("a.b:c:2")}, "bc", ""},
		"none":               {v1.ClusterTrustBundleProjection{Name: new("none")}, "", `clustertrustbundles.certificates.k8s.io "none" not found`},
		"none, optional":     {v1.ClusterTrustBundleProjection{Name: new("none"), Optional: yes}, "", ""},
		"by signer":          {v1.ClusterTrustBundleProjection{SignerName: signer, LabelSelector: &metav1.LabelSelector{}}, "abc", ""},
		"some of a signer":   {v1.ClusterTrustBundleProjection{SignerName: signer, LabelSelector: match("y")}, "bc", ""},
		"no selector":        {v1.ClusterTrustBundleProjection{SignerName: signer}, "", "combination of signerName and labelSelector matched zero ClusterTrustBundles"},
		"no such":            {v1.ClusterTrustBundleProjection{SignerName: signer, LabelSelector: match("z")}, "", "matched zero ClusterTrustBundles"},
		"no such, optional":  {v1.ClusterTrustBundleProjection{SignerName: signer, LabelSelector: match("z"), Optional: yes}, "", ""},
		"another signer":     {v1.ClusterTrustBundleProjection{SignerName: new("a.b/d"), LabelSelector: &metav1.LabelSelector{}}, "", "matched zero ClusterTrustBundles"},
	} {
		text, err := r.Anchors(t.Context(), &tc.p)
		if tc.err != "" {
			if err == nil || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%s: %v, want %s", name, err, tc.err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		var got []string
		for rest := text; ; {
			var b *pem.Block
			if b, rest = pem.Decode(rest); b == nil {
				break
			}
			got = append(got, string(b.Bytes))
		}
		slices.Sort(got)
		if strings.Join(got, "") != tc.want || strings.Contains(string(text), "between") || strings.Contains(string(text), "X:") {
			t.Errorf("%s: %v, %s", name, got, text)
		}
	}
	p := &v1.ClusterTrustBundleProjection{SignerName: signer, LabelSelector: &metav1.LabelSelector{}}
	first, err := r.Anchors(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	orders := map[string]bool{}
	for range 100 {
		slices.Reverse(all)
		if again, err := r.Anchors(t.Context(), p); err != nil || string(again) != string(first) {
			t.Fatal("the order changes")
		}
		other, err := New(all).Anchors(t.Context(), p)
		if err != nil {
			t.Fatal(err)
		}
		orders[string(other)] = true
	}
	if len(orders) < 2 {
		t.Error("each process has the same order")
	}
}
