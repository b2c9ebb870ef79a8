package storage

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/kit/queue"
	"monopod.dev/monopod/internal/kit/wait"
	"monopod.dev/monopod/internal/storage/plan"
)

// The config map that remembers that the class was made once, so that one whom a person has deleted does not come back, and its key.
const (
	memory    = "monopod-storage"
	memoryKey = "defaultClass"
)

// classKeeper makes the default class, and has all classes of the provisioner say what holds the sizes of their volumes.
type classKeeper struct {
	*base
	unsaid *queue.Queue[string] // names of classes
	// said are the classes that say it since the start. One worker has them.
	said map[types.UID]bool
}

func newClassKeeper(b *base) *classKeeper {
	return &classKeeper{base: b, unsaid: queue.New[string](), said: map[types.UID]bool{}}
}

// tellAll has classes say it as they come, until ctx ends.
func (p *classKeeper) tellAll(ctx context.Context) {
	p.unsaid.Run(ctx, 1, p.tellSizes, func(class string, err error) {
		p.log.WarnContext(ctx, "a storage class does not say what holds its volumes' sizes; trying again", "class", class, "error", err)
	})
}

// keepClass makes the default class, once in the life of a cluster. It tries until it can.
func (p *classKeeper) keepClass(ctx context.Context) {
	pauses := wait.Pauses{Least: time.Second, Most: time.Minute}
	for {
		err := p.makeClass(ctx)
		if err == nil || ctx.Err() != nil {
			return
		}
		p.log.WarnContext(ctx, "the default storage class is not made; trying again", "class", plan.ClassName, "error", err)
		if pauses.For(ctx) != nil {
			return
		}
	}
}

// Sizes says what would hold the size of a volume that a class gets now, with the reason where nothing does or none can be had.
func (p *base) Sizes(want plan.Isolation) string {
	switch held, err := p.holders.Choose(want, false); {
	case err != nil:
		return fmt.Sprintf("nothing can: %v", err)
	case held == plan.Nothing:
		return "nothing: " + p.holders.Why(want)
	default:
		return string(held)
	}
}

// tellSizes has a class of this provisioner say what holds the sizes of its volumes. Several nodes may share a class: what another one says stays until the next start.
func (p *classKeeper) tellSizes(ctx context.Context, name string) error {
	class, err := from[*storagev1.StorageClass](p.classes, name)
	if err != nil || class == nil || class.Provisioner != plan.Provisioner || class.DeletionTimestamp != nil {
		return err
	}
	want, err := plan.Parameters(class)
	if err != nil {
		return nil // its claims are told
	}
	says := p.Sizes(want)
	if was, there := class.Annotations[plan.SizesAnnotation]; was == says || there && p.said[class.UID] {
		p.said[class.UID] = true
		return nil
	}
	change, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": class.UID, "annotations": map[string]string{plan.SizesAnnotation: says}}})
	if err != nil {
		return err
	}
	if _, err := p.client.StorageV1().StorageClasses().Patch(ctx, name, types.MergePatchType, change, metav1.PatchOptions{}); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("annotation %s of the storage class %s: %w", plan.SizesAnnotation, name, err)
	}
	p.said[class.UID] = true
	return nil
}

func (p *classKeeper) makeClass(ctx context.Context) error {
	maps, classes := p.client.CoreV1().ConfigMaps(metav1.NamespaceSystem), p.client.StorageV1().StorageClasses()
	switch _, err := maps.Get(ctx, memory, metav1.GetOptions{}); {
	case err == nil:
		return nil
	case !apierrors.IsNotFound(err):
		return err
	}
	all, err := classes.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	usual := true
	for _, c := range all.Items {
		usual = usual && c.Annotations[plan.DefaultAnnotation] != "true"
	}
	if _, err := classes.Create(ctx, plan.Class(usual), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	if err := failpoint.Hit("storage/class"); err != nil {
		return err
	}
	_, err = maps.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: memory},
		Data:       map[string]string{memoryKey: fmt.Sprintf("The storage class %s was made once. Delete this to have it made again.", plan.ClassName)},
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}
