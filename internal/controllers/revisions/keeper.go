package revisions

import (
	"context"
	"fmt"
	"maps"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/controllers/owned"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// Keeper keeps the histories of the owners of a kind.
type Keeper struct {
	Client kubernetes.Interface
	// Revisions is the informer of revisions, indexed by owned.
	Revisions cache.SharedIndexInformer
	// Unseen is told of what is written.
	Unseen *owned.Unseen
	// Failpoints begins the names of the failpoints.
	Failpoints string
}

// Claim returns the revisions of an owner, after it has taken over and let go those that are to change hands. live reads the owner from the API server.
func (k Keeper) Claim(
	ctx context.Context, of Owner, selector labels.Selector, live func(context.Context) (metav1.Object, error),
) ([]*appsv1.ControllerRevision, error) {
	all, err := owned.OfOrOrphans[*appsv1.ControllerRevision](k.Revisions, of, selector)
	if err != nil {
		return nil, err
	}
	return owned.Claimer[*appsv1.ControllerRevision]{
		Kind: of.Kind, Live: live,
		Patch: func(ctx context.Context, name string, as types.PatchType, data []byte) (*appsv1.ControllerRevision, error) {
			return k.Client.AppsV1().ControllerRevisions(of.GetNamespace()).Patch(ctx, name, as, data, metav1.PatchOptions{})
		},
		Wrote: func(version string) { k.wrote(of, version) },
	}.Claim(ctx, of.Owner, owned.Claim(of, selector, all))
}

// Outcome is what has become of a plan.
type Outcome int

const (
	// Kept: the history is as it was planned.
	Kept Outcome = iota
	// Collided: another one has the name of the revision. It gets another name when the owner's status tells of one collision more.
	Collided
	// Refused: the namespace is being deleted. There is nothing more to do.
	Refused
)

// Keep carries out what a plan says of the revision of the template.
func (k Keeper) Keep(ctx context.Context, of Owner, plan Plan) (Outcome, error) {
	switch {
	case plan.Create:
		return k.create(ctx, of, plan.Current)
	case plan.Renumber:
		if err := failpoint.Hit(k.Failpoints + "/renumber"); err != nil {
			return Kept, err
		}
		written, err := k.Client.AppsV1().ControllerRevisions(of.GetNamespace()).Update(ctx, plan.Current, metav1.UpdateOptions{})
		if err != nil {
			return Kept, fmt.Errorf("revision %s, which is to have the number %d: %w", plan.Current.Name, plan.Current.Revision, err)
		}
		k.wrote(of, written.ResourceVersion)
	}
	return Kept, nil
}

// create makes a revision. Its name follows from the template, so whoever has it already is that revision, or has the name by chance.
func (k Keeper) create(ctx context.Context, of Owner, revision *appsv1.ControllerRevision) (Outcome, error) {
	if err := failpoint.Hit(k.Failpoints + "/revision"); err != nil {
		return Kept, err
	}
	client := k.Client.AppsV1().ControllerRevisions(of.GetNamespace())
	made, err := client.Create(ctx, revision, metav1.CreateOptions{})
	switch {
	case apierrors.IsAlreadyExists(err):
		there, getErr := client.Get(ctx, revision.Name, metav1.GetOptions{})
		if getErr != nil {
			return Kept, fmt.Errorf("revision %s, which exists: %w", revision.Name, getErr)
		}
		k.wrote(of, there.ResourceVersion)
		switch same := Same(there, of.Template); {
		case same && metav1.IsControlledBy(there, of):
			return Kept, nil
		case same && metav1.GetControllerOfNoCopy(there) == nil && maps.Equal(there.Labels, revision.Labels):
			return Kept, fmt.Errorf("revision %s is nobody's, and not yet in the cache, from which it is adopted", there.Name)
		}
		return Collided, nil
	case err != nil && apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return Refused, nil
	case err != nil:
		return Kept, fmt.Errorf("create revision %s: %w", revision.Name, err)
	}
	k.wrote(of, made.ResourceVersion)
	return Kept, failpoint.Hit(k.Failpoints + "/revised")
}

// Forget deletes revisions of an owner.
func (k Keeper) Forget(ctx context.Context, of Owner, revisions []*appsv1.ControllerRevision) error {
	name := cache.MetaObjectToName(of)
	for _, revision := range revisions {
		if err := failpoint.Hit(k.Failpoints + "/forget"); err != nil {
			return err
		}
		k.Unseen.Goes(name, revision.UID)
		err := k.Client.AppsV1().ControllerRevisions(revision.Namespace).Delete(ctx, revision.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &revision.UID, ResourceVersion: &revision.ResourceVersion},
		})
		if err != nil {
			k.Unseen.Went(revision.UID)
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("delete revision %s: %w", revision.Name, err)
			}
		}
	}
	return nil
}

func (k Keeper) wrote(of Owner, version string) {
	k.Unseen.Wrote(cache.MetaObjectToName(of), k.Revisions.GetIndexer(), version)
}
