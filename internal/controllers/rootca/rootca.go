// Package rootca is the controller that keeps the ConfigMap kube-root-ca.crt in every namespace: the authority by which pods know the API server.
package rootca

import (
	"context"
	"log/slog"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/controllers/everywhere"
)

const (
	// Name is the name of the ConfigMap, Key the key of the authority in it.
	Name = "kube-root-ca.crt"
	Key  = "ca.crt"
)

// description is an annotation that tells people what the ConfigMap is.
const (
	description     = "kubernetes.io/description"
	descriptionText = "The certificate authority of the Kubernetes API server, by which pods know it. It is put back when it is changed or deleted."
)

// Config is what the controller needs.
type Config struct {
	// Client has the right to watch ConfigMaps, and to create, update and delete them.
	Client kubernetes.Interface
	// Namespaces is an informer that somebody else runs.
	Namespaces coreinformers.NamespaceInformer
	// CA is the authority, in PEM.
	CA  []byte
	Log *slog.Logger
}

// New makes the controller, which does nothing before Run.
func New(cfg Config) *everywhere.Keeper {
	data := map[string]string{Key: string(cfg.CA)}
	return everywhere.New(everywhere.Config{
		Namespaces: cfg.Namespaces,
		Objects: coreinformers.NewFilteredConfigMapInformer(cfg.Client, metav1.NamespaceAll, 0,
			cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc}, everywhere.Named(Name)),
		Keep: func(ctx context.Context, namespace string, known any) error {
			configMaps := cfg.Client.CoreV1().ConfigMaps(namespace)
			old, ok := known.(*corev1.ConfigMap)
			if !ok {
				_, err := configMaps.Create(ctx, &corev1.ConfigMap{
					ObjectMeta: metav1.ObjectMeta{Name: Name, Annotations: map[string]string{description: descriptionText}}, Data: data,
				}, metav1.CreateOptions{})
				return err
			}
			if maps.Equal(old.Data, data) && len(old.BinaryData) == 0 {
				return nil
			}
			if old.Immutable != nil && *old.Immutable {
				// Nobody can change it: it is made anew when it is gone.
				return configMaps.Delete(ctx, Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &old.UID}})
			}
			cm := old.DeepCopy()
			cm.Data, cm.BinaryData = data, nil
			_, err := configMaps.Update(ctx, cm, metav1.UpdateOptions{})
			return err
		},
		Name: Name, Log: cfg.Log,
	})
}
