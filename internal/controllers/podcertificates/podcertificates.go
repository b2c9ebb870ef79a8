// Package podcertificates issues certificates to pods that have a volume for one of the signer monopod.dev/pod-identity, and publishes the authority by which they are known. Upstream
// has the API of such certificates and no signer that serves it.
//
// A certificate says which service account of which namespace the pod runs as (a SPIFFE ID), and the names under which the pod's services are reached that its author
// names. Who may ask is held by the API server: the agent of the pod's node, for that pod.
//
// A request stays for 15 minutes, whoever's it is, answered or not, as upstream's cleaner has it: the agent has taken the certificate by then, or asks again.
//
// It keeps nothing: the authority is in a Secret, what is to be done about a request in the request. Requests of other signers are theirs to answer.
package podcertificates

import (
	"context"
	"crypto/x509"
	"fmt"
	"log/slog"
	"sync"
	"time"

	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	certificatesinformers "k8s.io/client-go/informers/certificates/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/controllers/trustbundles"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/queue"
)

// stays is how long a request is of use.
const stays = 15 * time.Minute

// workers is how many requests are worked on at a time.
const workers = 2

// Config is what a Controller needs.
type Config struct {
	// Client may sign and attest for the signer, write its trust bundle and its Secret, read pods, and delete requests.
	Client kubernetes.Interface
	// Requests and Bundles are watched by others, too; who made the Controller starts them.
	Requests certificatesinformers.PodCertificateRequestInformer
	Bundles  certificatesinformers.ClusterTrustBundleInformer
	// Domain is that of the cluster's names.
	Domain string
	Log    *slog.Logger
}

// Controller issues certificates. See the package's documentation.
type Controller struct {
	config    Config
	queue     *queue.Queue[cache.ObjectName]
	publisher *trustbundles.Publisher
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (*Controller, error) {
	c := &Controller{config: config, queue: queue.New[cache.ObjectName]()}
	if _, err := config.Requests.Informer().AddEventHandler(owned.Each(c.queue.Add)); err != nil {
		return nil, fmt.Errorf("watch requests for certificates of pods: %w", err)
	}
	var err error
	c.publisher, err = trustbundles.New(trustbundles.Config{Client: config.Client, Bundles: config.Bundles, Signer: Signer, Log: config.Log,
		Authorities: func(ctx context.Context) ([]byte, error) {
			a, _, err := ensureAuthority(ctx, config.Client, time.Now())
			if err != nil {
				return nil, err
			}
			return a.trusted, nil
		}})
	return c, err
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error {
	var publishing sync.WaitGroup
	publishing.Go(func() { _ = c.publisher.Run(ctx) }) // it ends with its context
	c.queue.Run(ctx, workers, c.sync, func(name cache.ObjectName, err error) {
		if !apierrors.IsConflict(err) {
			c.config.Log.Warn("a request for a pod's certificate is not answered, trying again", "namespace", name.Namespace, "request", name.Name, "error", err)
		}
	})
	publishing.Wait()
	return nil
}

// sync answers a request, or deletes it.
func (c *Controller) sync(ctx context.Context, name cache.ObjectName) error {
	known, err := c.config.Requests.Lister().PodCertificateRequests(name.Namespace).Get(name.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	left := time.Until(known.CreationTimestamp.Add(stays))
	if left <= 0 {
		return c.remove(ctx, known)
	}
	c.queue.AddAfter(name, left)
	if known.Spec.SignerName != Signer || len(known.Status.Conditions) > 0 {
		return nil
	}
	pod, err := c.config.Client.CoreV1().Pods(name.Namespace).Get(ctx, known.Spec.PodName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && pod.UID != known.Spec.PodUID {
		return nil // it goes with its pod
	}
	if err != nil {
		return fmt.Errorf("read the pod %s: %w", known.Spec.PodName, err)
	}
	r := known.DeepCopy()
	if err := c.answer(ctx, r, pod, time.Now()); err != nil {
		return err
	}
	if err := failpoint.Hit("controllers/podcertificates/answer"); err != nil {
		return err
	}
	_, err = c.config.Client.CertificatesV1().PodCertificateRequests(name.Namespace).UpdateStatus(ctx, r, metav1.UpdateOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("write the status: %w", err)
	}
	return nil
}

// remove deletes a request that is of no use any more.
func (c *Controller) remove(ctx context.Context, r *request) error {
	err := c.config.Client.CertificatesV1().PodCertificateRequests(r.Namespace).Delete(ctx, r.Name, metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(r.UID))})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete: %w", err)
	}
	return nil
}

// answer writes into the status what becomes of a request.
func (c *Controller) answer(ctx context.Context, r *request, pod *corev1.Pod, now time.Time) error {
	say := func(what, reason, message string) {
		r.Status.Conditions = []metav1.Condition{{Type: what, Status: metav1.ConditionTrue, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(now)}}
	}
	template, refresh, no := decide(r, pod, c.config.Domain, now)
	if no != nil {
		say(certificatesv1.PodCertificateRequestConditionTypeDenied, no.reason, no.message)
		return nil
	}
	asked, err := x509.ParseCertificateRequest(r.Spec.StubPKCS10Request)
	if err != nil {
		return fmt.Errorf("spec.stubPKCS10Request: %w", err) // the API server has read it
	}
	ca, made, err := ensureAuthority(ctx, c.config.Client, now)
	if err != nil {
		return err
	}
	if made {
		c.config.Log.Info("made an authority for certificates of pods", "secret", secretNamespace+"/"+secretName)
		c.publisher.Look()
	}
	forKey(template, asked.PublicKey)
	chain, err := ca.sign(template, asked.PublicKey)
	if err != nil {
		return fmt.Errorf("sign: %w", err)
	}
	say(certificatesv1.PodCertificateRequestConditionTypeIssued, "Issued", "the certificate was issued by "+Signer)
	begin, end, begins := metav1.NewTime(template.NotBefore), metav1.NewTime(template.NotAfter), metav1.NewTime(refresh)
	r.Status.CertificateChain, r.Status.NotBefore, r.Status.NotAfter, r.Status.BeginRefreshAt = string(chain), &begin, &end, &begins
	return nil
}
