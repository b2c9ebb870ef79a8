package volumeprotection

import (
	"context"
	"fmt"
	"log/slog"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/queue"
)

// VolumesConfig is what Volumes needs.
type VolumesConfig struct {
	Client kubernetes.Interface
	// Volumes are watched by others, too; who made the controller starts them.
	Volumes coreinformers.PersistentVolumeInformer
	Log     *slog.Logger
}

// Volumes is the controller that keeps volumes while they are bound.
type Volumes struct {
	config  VolumesConfig
	volumes corelisters.PersistentVolumeLister
	queue   *queue.Queue[cache.ObjectName]
	known   cache.DoneChecker
}

// NewVolumes returns a controller that does nothing until it is run.
func NewVolumes(config VolumesConfig) (*Volumes, error) {
	c := &Volumes{config: config, volumes: config.Volumes.Lister(), queue: queue.New[cache.ObjectName]()}
	volumes, err := config.Volumes.Informer().AddEventHandler(owned.Each(c.queue.Add))
	if err != nil {
		return nil, fmt.Errorf("watch volumes: %w", err)
	}
	c.known = volumes.HasSyncedChecker()
	return c, nil
}

// Run works until ctx ends, which is no error. A controller is run once.
func (c *Volumes) Run(ctx context.Context) error {
	cache.WaitFor(ctx, "", c.known)
	c.queue.Run(ctx, workers, c.sync, func(name cache.ObjectName, err error) {
		if !apierrors.IsConflict(err) {
			c.config.Log.Warn("a volume that is deleted is not let go of, trying again", "volume", name.Name, "error", err)
		}
	})
	return nil
}

func (c *Volumes) sync(ctx context.Context, name cache.ObjectName) error {
	v, err := c.volumes.Get(name.Name)
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	verb := Volume(v)
	if verb == Leave {
		return nil
	}
	if err := failpoint.Hit("controllers/volumeprotection/volume"); err != nil {
		return err
	}
	now := v.DeepCopy()
	now.Finalizers = verb.finalizers(now.Finalizers, VolumeFinalizer)
	_, err = c.config.Client.CoreV1().PersistentVolumes().Update(ctx, now, metav1.UpdateOptions{})
	return written(err)
}
