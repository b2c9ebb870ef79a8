// Package trust reads what pods' volumes show of trust bundles: certificates of authorities, each once.
//
// Their order is another one in each process, so that no program comes to depend on it, and the same as long as the process lives, so that files are not written
// anew when nothing has changed.
package trust

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"

	certificatesv1 "k8s.io/api/certificates/v1"
	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"monopod.dev/monopod/internal/agent/objects"
)

type bundle = certificatesv1.ClusterTrustBundle

// Objects are where bundles are read.
type Objects interface {
	objects.Reader
	objects.Lister
}

// Reader reads trust anchors. It is safe for concurrent use.
type Reader struct {
	objects Objects
	seed    []byte
}

// New makes a reader.
func New(from Objects) *Reader {
	seed := make([]byte, sha256.Size)
	_, _ = rand.Read(seed) // it never fails
	return &Reader{objects: from, seed: seed}
}

// Anchors are the certificates that a volume shows, as PEM. There are none where bundles are missing and the volume may do without.
func (r *Reader) Anchors(ctx context.Context, p *v1.ClusterTrustBundleProjection) ([]byte, error) {
	optional := p.Optional != nil && *p.Optional
	name := objects.TrustBundles(p)
	switch {
	case p.Name != nil:
		b, err := objects.Get[*bundle](ctx, r.objects, name)
		if apierrors.IsNotFound(err) && optional {
			return nil, nil
		}
		if err != nil {
			return nil, fmt.Errorf("while getting ClusterTrustBundle: %w", err)
		}
		return r.normalize(b), nil
	case p.SignerName != nil:
		// No selector selects nothing, an empty one all.
		selector, err := metav1.LabelSelectorAsSelector(p.LabelSelector)
		if err != nil {
			return nil, fmt.Errorf("while parsing label selector: %w", err)
		}
		all, err := objects.List[*bundle](ctx, r.objects, name)
		if err != nil {
			return nil, err
		}
		all = slices.DeleteFunc(all, func(b *bundle) bool { return !selector.Matches(labels.Set(b.Labels)) })
		if len(all) == 0 && !optional {
			return nil, errors.New("combination of signerName and labelSelector matched zero ClusterTrustBundles")
		}
		return r.normalize(all...), nil
	}
	return nil, errors.New("ClusterTrustBundle projection requires either name or signerName to be set")
}

// normalize makes one text of bundles: each certificate once, nothing between them.
func (r *Reader) normalize(all ...*bundle) []byte {
	type anchor struct{ der, place []byte }
	var anchors []anchor
	seen := map[string]bool{}
	for _, b := range all {
		rest := []byte(b.Spec.TrustBundle)
		for {
			var block *pem.Block
			if block, rest = pem.Decode(rest); block == nil {
				break
			}
			if der := block.Bytes; !seen[string(der)] {
				seen[string(der)] = true
				place := sha256.Sum256(slices.Concat(r.seed, der))
				anchors = append(anchors, anchor{der, place[:]})
			}
		}
	}
	slices.SortFunc(anchors, func(a, b anchor) int { return bytes.Compare(a.place, b.place) })
	var text bytes.Buffer
	for _, a := range anchors {
		text.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.der}))
	}
	return text.Bytes()
}
