// Package trustbundles publishes what is to be trusted of a signer: one ClusterTrustBundle of it, whose name says what is in it, and no other.
package trustbundles

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"

	certificatesv1 "k8s.io/api/certificates/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/internal/kit/queue"
	"monopod.dev/monopod/internal/pods/validation"
)

type bundle = certificatesv1.ClusterTrustBundle

// ServingSigner is the signer of the API server's own certificate.
const ServingSigner = "kubernetes.io/kube-apiserver-serving"

// Config is what a Publisher needs.
type Config struct {
	// Client may attest for the signer, and write trust bundles.
	Client kubernetes.Interface
	// Bundles are watched by others, too; who made the Publisher starts them.
	Bundles certificatesinformers.ClusterTrustBundleInformer
	Signer  string
	// Authorities are what is to be trusted, as PEM; empty: nothing is published.
	Authorities func(ctx context.Context) ([]byte, error)
	Log         *slog.Logger
}

// Publisher publishes the bundle of a signer.
type Publisher struct {
	config Config
	queue  *queue.Queue[string] // of one item, the signer
	known  cache.DoneChecker
}

// New returns a Publisher that does nothing until it is run.
func New(config Config) (*Publisher, error) {
	p := &Publisher{config: config, queue: queue.New[string]()}
	look := func(obj any) {
		if b, ok := informer.Last[*bundle](obj); ok && b.Spec.SignerName == config.Signer {
			p.Look()
		}
	}
	changed, err := config.Bundles.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) }, DeleteFunc: look})
	if err != nil {
		return nil, fmt.Errorf("watch trust bundles: %w", err)
	}
	p.known = changed.HasSyncedChecker()
	return p, nil
}

// Look has the Publisher see whether what is to be trusted is another by now.
func (p *Publisher) Look() { p.queue.Add(p.config.Signer) }

// Run works until ctx ends, which is no error. A Publisher is run once.
func (p *Publisher) Run(ctx context.Context) error {
	cache.WaitFor(ctx, "", p.known)
	p.Look()
	p.queue.Run(ctx, 1, p.sync, func(signer string, err error) {
		p.config.Log.Warn("what is to be trusted of a signer is not published, trying again", "signer", signer, "error", err)
	})
	return nil
}

// nameOf is the name of a signer's bundle with this in it.
func nameOf(signer string, authorities []byte) string {
	sum := sha256.Sum256(authorities)
	return fmt.Sprintf("%s%x", validation.SignerPrefix(signer), sum[:12])
}

func (p *Publisher) sync(ctx context.Context, signer string) error {
	authorities, err := p.config.Authorities(ctx)
	if err != nil || len(authorities) == 0 {
		return err
	}
	all, err := p.config.Bundles.Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	name := nameOf(signer, authorities)
	var right bool
	var others []*bundle
	for _, b := range all {
		switch {
		case b.Spec.SignerName != signer:
		case b.Name == name && b.Spec.TrustBundle == string(authorities):
			right = true
		case b.Name != name:
			others = append(others, b)
		default: // somebody has changed it
			if err := p.write(ctx, b, authorities); err != nil {
				return err
			}
			right = true
		}
	}
	if !right {
		if err := p.make(ctx, name, authorities); err != nil {
			return err
		}
	}
	// The others go when the right one is there.
	var errs []error
	for _, b := range others {
		err := p.config.Client.CertificatesV1().ClusterTrustBundles().Delete(ctx, b.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(b.UID))})
		if err != nil && !apierrors.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("delete %s: %w", b.Name, err))
		}
	}
	return errors.Join(errs...)
}

func (p *Publisher) make(ctx context.Context, name string, authorities []byte) error {
	if err := failpoint.Hit("controllers/trustbundles/make"); err != nil {
		return err
	}
	_, err := p.config.Client.CertificatesV1().ClusterTrustBundles().Create(ctx, &bundle{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: certificatesv1.ClusterTrustBundleSpec{SignerName: p.config.Signer, TrustBundle: string(authorities)},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("make %s: %w", name, err)
	}
	return nil
}

func (p *Publisher) write(ctx context.Context, b *bundle, authorities []byte) error {
	b = b.DeepCopy()
	b.Spec.TrustBundle = string(authorities)
	if _, err := p.config.Client.CertificatesV1().ClusterTrustBundles().Update(ctx, b, metav1.UpdateOptions{}); err != nil {
		return fmt.Errorf("write %s: %w", b.Name, err)
	}
	return nil
}
