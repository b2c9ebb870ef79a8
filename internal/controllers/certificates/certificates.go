// Package certificates decides about certificate signing requests and signs them, for the signers that every Kubernetes has:
//
//	kubernetes.io/kube-apiserver-client-kubelet   agents as clients. Approved when whoever asks may `create` certificatesigningrequests/selfnodeclient
//	                                              (for itself) or /nodeclient (for any node)
//	kubernetes.io/kubelet-serving                 agents' HTTPS. Never approved by itself
//	kubernetes.io/kube-apiserver-client           clients. Never approved by itself
//
// Requests of other signers are left to them. What has been decided about is deleted after an hour, what nobody decided about after a day, and what was
// issued when the certificate has ended.
//
// It keeps nothing: what is to be done about a request is found in the request.
package certificates

import (
	"context"
	"crypto"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"log/slog"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/kit/queue"
)

type request = certificatesv1.CertificateSigningRequest

// workers is how many requests are worked on at a time.
const workers = 2

// Authority signs certificates for keys of others.
type Authority interface {
	// Sign issues a certificate by a template, for a key, as PEM. It is valid for the given time at most.
	Sign(template *x509.Certificate, key crypto.PublicKey, life time.Duration) ([]byte, error)
}

// Config is what a Controller needs.
type Config struct {
	// Client has the right to decide about requests of the three signers, to sign them and to delete them, and to ask who may do what.
	Client kubernetes.Interface
	// Requests are watched by others, too; who made the Controller starts them.
	Requests certificatesinformers.CertificateSigningRequestInformer
	// Authority is whose certificates the API server trusts.
	Authority Authority
	Log       *slog.Logger
}

// Controller decides about requests and signs them. See the package's documentation.
type Controller struct {
	config Config
	queue  *queue.Queue[string]
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (*Controller, error) {
	c := &Controller{config: config, queue: queue.New[string]()}
	look := func(obj any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj); err == nil {
			c.queue.Add(key)
		}
	}
	_, err := config.Requests.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: look, UpdateFunc: func(_, obj any) { look(obj) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch certificate signing requests: %w", err)
	}
	return c, nil
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error {
	c.queue.Run(ctx, workers, c.sync, func(name string, err error) {
		c.config.Log.Warn("a certificate signing request could not be worked on yet, trying again", "request", name, "error", err)
	})
	return nil
}

// sync does the next thing that is to be done about a request.
func (c *Controller) sync(ctx context.Context, name string) error {
	cached, err := c.config.Requests.Lister().Get(name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	now := time.Now()
	end, known := lasts(cached)
	if known && !now.Before(end) {
		err := c.config.Client.CertificatesV1().CertificateSigningRequests().Delete(ctx, name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(cached.UID))})
		if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return err
	}
	if known {
		c.queue.AddAfter(name, end.Sub(now))
	}
	r := cached.DeepCopy()
	switch {
	case !ours(r) || len(r.Status.Certificate) > 0 || has(r, certificatesv1.CertificateDenied) || has(r, certificatesv1.CertificateFailed):
		return nil
	case has(r, certificatesv1.CertificateApproved):
		return c.sign(ctx, r)
	default:
		return c.decide(ctx, r)
	}
}

func ours(r *request) bool {
	switch r.Spec.SignerName {
	case certificatesv1.KubeAPIServerClientKubeletSignerName, certificatesv1.KubeletServingSignerName, certificatesv1.KubeAPIServerClientSignerName:
		return true
	}
	return false
}

func has(r *request, t certificatesv1.RequestConditionType) bool {
	for _, c := range r.Status.Conditions {
		if c.Type == t {
			return true
		}
	}
	return false
}

// parse reads what is asked for.
func parse(r *request) (*x509.CertificateRequest, error) {
	block, _ := pem.Decode(r.Spec.Request)
	if block == nil {
		return nil, errors.New("the request is no PEM block")
	}
	return x509.ParseCertificateRequest(block.Bytes)
}

// sign issues the certificate of an approved request, or says why there will be none.
func (c *Controller) sign(ctx context.Context, r *request) error {
	asked, err := parse(r)
	if err == nil {
		err = acceptable(r.Spec.SignerName, asked, r.Spec.Usages)
	}
	if err != nil {
		r.Status.Conditions = append(r.Status.Conditions, certificatesv1.CertificateSigningRequestCondition{
			Type: certificatesv1.CertificateFailed, Status: corev1.ConditionTrue, Reason: "SignerValidationFailure", Message: err.Error(),
		})
		return c.written(c.config.Client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, r, metav1.UpdateOptions{}))
	}
	if r.Status.Certificate, err = c.config.Authority.Sign(template(asked, r.Spec.Usages), asked.PublicKey, life(r)); err != nil {
		return err
	}
	if err := c.written(c.config.Client.CertificatesV1().CertificateSigningRequests().UpdateStatus(ctx, r, metav1.UpdateOptions{})); err != nil {
		return err
	}
	c.config.Log.Info("certificate issued", "request", r.Name, "signer", r.Spec.SignerName, "subject", asked.Subject.String(), "requestor", r.Spec.Username)
	return nil
}

// written leaves a request alone that somebody else has changed meanwhile: the change comes back by the watch.
func (*Controller) written(_ *request, err error) error {
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
