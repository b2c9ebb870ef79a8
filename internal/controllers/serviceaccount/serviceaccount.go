// Package serviceaccount is the controller that keeps the service account "default" in every namespace: who a pod is that names none.
package serviceaccount

import (
	"context"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/controllers/everywhere"
)

// Name is the name of the service account.
const Name = "default"

// Config is what the controller needs.
type Config struct {
	// Client has the right to watch service accounts and to create them.
	Client kubernetes.Interface
	// Namespaces is an informer that somebody else runs.
	Namespaces coreinformers.NamespaceInformer
	Log        *slog.Logger
}

// New makes the controller, which does nothing before Run.
func New(cfg Config) *everywhere.Keeper {
	return everywhere.New(everywhere.Config{
		Namespaces: cfg.Namespaces,
		Objects: coreinformers.NewFilteredServiceAccountInformer(cfg.Client, metav1.NamespaceAll, 0,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, everywhere.Named(Name)),
		Keep: func(ctx context.Context, namespace string, known any) error {
			if known != nil {
				return nil // whatever else somebody has written into it is theirs
			}
			_, err := cfg.Client.CoreV1().ServiceAccounts(namespace).Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: Name}}, metav1.CreateOptions{})
			return err
		},
		Name: Name, Log: cfg.Log,
	})
}
