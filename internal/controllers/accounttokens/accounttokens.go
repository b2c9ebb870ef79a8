// Package accounttokens is the controller that fills secrets of the type kubernetes.io/service-account-token: with a token of the service account that they
// name, which has no end, the API server's authority, and the namespace.
//
// It guarantees that a secret is filled again when somebody takes these from it, and that it goes when its account does, or is not the one that it names by its
// UID. Who wants a token that ends by itself asks for one (`kubectl create token`).
package accounttokens

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/kit/informer"
	"monopod.dev/monopod/internal/kit/queue"
)

// Issuer makes the token of a service account that a secret is to hold.
type Issuer interface {
	IssueForSecret(namespace, account string, uid types.UID, secret string) (string, error)
}

// Config is what a Controller needs.
type Config struct {
	// Client has the right to watch service accounts and secrets, to read both, to update and delete secrets, and to update service accounts.
	Client kubernetes.Interface
	Issuer Issuer
	// Accounts are watched by others, too; who made the Controller starts them.
	Accounts coreinformers.ServiceAccountInformer
	// CA is the API server's authority, in PEM.
	CA  []byte
	Log *slog.Logger
}

// Controller fills secrets.
type Controller struct {
	config  Config
	secrets cache.SharedIndexInformer
	queue   *queue.Queue[item]
	known   cache.DoneChecker
}

// item is a secret, and the account that it names: one that is gone cannot be asked for that.
type item struct {
	cache.ObjectName
	account string
}

// byAccount is the index of the secrets by the accounts that they name.
const byAccount = "account"

// New returns a Controller that does nothing until it is run.
func New(config Config) (*Controller, error) {
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	c := &Controller{config: config, queue: queue.New[item]()}
	c.secrets = coreinformers.NewFilteredSecretInformer(config.Client, metav1.NamespaceAll, 0, cache.Indexers{byAccount: func(obj any) ([]string, error) {
		s, ok := obj.(*corev1.Secret)
		if !ok {
			return nil, nil
		}
		return []string{s.Namespace + "/" + accountOf(s)}, nil
	}}, func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector("type", string(corev1.SecretTypeServiceAccountToken)).String()
	})
	if _, err := c.secrets.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.secret, DeleteFunc: c.secret, UpdateFunc: func(_, now any) { c.secret(now) },
	}); err != nil {
		return nil, fmt.Errorf("watch secrets: %w", err)
	}
	accounts, err := config.Accounts.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: c.account, DeleteFunc: c.account, UpdateFunc: func(_, now any) { c.account(now) },
	})
	if err != nil {
		return nil, fmt.Errorf("watch service accounts: %w", err)
	}
	c.known = accounts.HasSyncedChecker()
	return c, nil
}

func accountOf(s *corev1.Secret) string { return s.Annotations[corev1.ServiceAccountNameKey] }

// secret puts one in line that has come, has changed or is gone.
func (c *Controller) secret(obj any) {
	if s, ok := informer.Last[*corev1.Secret](obj); ok {
		c.add(s)
	}
}

func (c *Controller) add(s *corev1.Secret) {
	c.queue.Add(item{cache.ObjectName{Namespace: s.Namespace, Name: s.Name}, accountOf(s)})
}

// account puts the secrets in line that name an account.
func (c *Controller) account(obj any) {
	m, ok := informer.Last[metav1.Object](obj)
	if !ok {
		return
	}
	secrets, err := c.secrets.GetIndexer().ByIndex(byAccount, m.GetNamespace()+"/"+m.GetName())
	if err != nil {
		return
	}
	for _, s := range secrets {
		c.add(s.(*corev1.Secret))
	}
}

// Run works until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error {
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.secrets.RunWithContext(ctx)
	}()
	cache.WaitFor(ctx, "", c.known, c.secrets.HasSyncedChecker())
	c.queue.Run(ctx, 1, c.look, func(i item, err error) {
		c.config.Log.Warn("the token of a service account is not in the secret that is there for it; it is tried again",
			"namespace", i.Namespace, "secret", i.Name, "account", i.account, "error", err)
	})
	<-ended
	return nil
}

func (c *Controller) look(ctx context.Context, i item) error {
	obj, exists, err := c.secrets.GetStore().GetByKey(i.String())
	if err != nil {
		return err
	}
	if !exists {
		return c.forget(ctx, i)
	}
	known := obj.(*corev1.Secret)
	account, err := c.accountOf(ctx, known)
	switch {
	case err != nil:
		return err
	case account == nil:
		return c.remove(ctx, known)
	case c.full(known, account):
		return nil
	}
	// The cache may be behind: what is written is decided on what there is.
	secret, err := c.config.Client.CoreV1().Secrets(i.Namespace).Get(ctx, i.Name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return nil
	case err != nil:
		return err
	case secret.UID != known.UID || accountOf(secret) != account.Name || secret.DeletionTimestamp != nil || c.full(secret, account):
		return nil // what has changed is told of
	}
	if err := c.fill(secret, account); err != nil {
		return err
	}
	_, err = c.config.Client.CoreV1().Secrets(i.Namespace).Update(ctx, secret, metav1.UpdateOptions{})
	switch {
	case apierrors.IsConflict(err), apierrors.IsNotFound(err):
		return nil // what has changed is told of
	case apierrors.IsInvalid(err):
		// It is immutable, or nothing that is still allowed: until somebody changes it, no try helps.
		c.config.Log.Warn("a secret that is there for the token of a service account cannot be filled", "namespace", i.Namespace, "secret", i.Name, "error", err)
		return nil
	}
	return err
}

// accountOf is the account that a secret names, nil where there is none, or another one under its name.
func (c *Controller) accountOf(ctx context.Context, s *corev1.Secret) (*corev1.ServiceAccount, error) {
	uid := types.UID(s.Annotations[corev1.ServiceAccountUIDKey])
	is := func(a *corev1.ServiceAccount) bool { return uid == "" || a.UID == uid }
	account, err := c.config.Accounts.Lister().ServiceAccounts(s.Namespace).Get(accountOf(s))
	if err == nil && is(account) {
		return account, nil
	}
	account, err = c.config.Client.CoreV1().ServiceAccounts(s.Namespace).Get(ctx, accountOf(s), metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err) || err == nil && !is(account):
		return nil, nil // there is no such account
	case err != nil:
		return nil, err
	}
	return account, nil
}

// full says that a secret holds all that it is to hold.
func (c *Controller) full(s *corev1.Secret, account *corev1.ServiceAccount) bool {
	return len(s.Data[corev1.ServiceAccountTokenKey]) > 0 && len(s.Data[corev1.ServiceAccountNamespaceKey]) > 0 &&
		bytes.Equal(s.Data[corev1.ServiceAccountRootCAKey], c.config.CA) && types.UID(s.Annotations[corev1.ServiceAccountUIDKey]) == account.UID
}

func (c *Controller) fill(s *corev1.Secret, account *corev1.ServiceAccount) error {
	if s.Data == nil {
		s.Data = map[string][]byte{}
	}
	if len(s.Data[corev1.ServiceAccountTokenKey]) == 0 {
		token, err := c.config.Issuer.IssueForSecret(s.Namespace, account.Name, account.UID, s.Name)
		if err != nil {
			return fmt.Errorf("make a token: %w", err)
		}
		s.Data[corev1.ServiceAccountTokenKey] = []byte(token)
	}
	if len(s.Data[corev1.ServiceAccountNamespaceKey]) == 0 {
		s.Data[corev1.ServiceAccountNamespaceKey] = []byte(s.Namespace)
	}
	s.Data[corev1.ServiceAccountRootCAKey] = c.config.CA
	s.Annotations[corev1.ServiceAccountUIDKey] = string(account.UID)
	return nil
}

// remove deletes a secret whose account is not there.
func (c *Controller) remove(ctx context.Context, s *corev1.Secret) error {
	err := c.config.Client.CoreV1().Secrets(s.Namespace).Delete(ctx, s.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &s.UID, ResourceVersion: &s.ResourceVersion},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// forget takes a secret that is gone from those that its account names.
func (c *Controller) forget(ctx context.Context, i item) error {
	named := func(ref corev1.ObjectReference) bool { return ref.Name == i.Name }
	known, err := c.config.Accounts.Lister().ServiceAccounts(i.Namespace).Get(i.account)
	if err != nil || !slices.ContainsFunc(known.Secrets, named) {
		return nil // an account that is not there names none
	}
	_, err = c.config.Client.CoreV1().Secrets(i.Namespace).Get(ctx, i.Name, metav1.GetOptions{})
	if !apierrors.IsNotFound(err) {
		return err // another one of its name has come
	}
	account := known.DeepCopy()
	account.Secrets = slices.DeleteFunc(account.Secrets, named)
	_, err = c.config.Client.CoreV1().ServiceAccounts(i.Namespace).Update(ctx, account, metav1.UpdateOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err // after a conflict the account is looked at again as it is then
}
