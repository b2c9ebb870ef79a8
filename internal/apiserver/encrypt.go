package apiserver

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"
)

// rewritten is what is needed to store objects anew.
type rewritten interface {
	rest.Lister
	rest.Updater
}

// page is how many objects are read at once to be written anew.
const page = 100

// encryptAnew stores all objects anew that are to be encrypted and were stored under another configuration: unencrypted, or with an older key. An update
// that changes nothing is written only if what the store has was not made by the first provider. It is done when it has been done for all, once for
// each configuration.
func (s *Server) encryptAnew(ctx context.Context) error {
	if s.encryption.Applied() {
		return nil
	}
	seen := 0
	for gv, storages := range s.storages {
		for path, storage := range storages {
			objects, ok := storage.(rewritten)
			if !ok || !s.encryption.Encrypts(gv.WithResource(path).GroupResource()) {
				continue
			}
			n, err := storeAnew(ctx, objects)
			if err != nil {
				return fmt.Errorf("store %s anew: %w", path, err)
			}
			seen += n
		}
	}
	if err := s.encryption.Apply(); err != nil {
		return err
	}
	s.cfg.Log.Info("all objects are encrypted with the first provider", "configuration", s.encryption.File(), "objects", seen)
	return nil
}

func storeAnew(ctx context.Context, objects rewritten) (seen int, err error) {
	all := genericrequest.WithNamespace(ctx, metav1.NamespaceAll)
	options := &metainternalversion.ListOptions{Limit: page}
	for {
		list, err := objects.List(all, options)
		if err != nil {
			return seen, err
		}
		if err := meta.EachListItem(list, func(obj runtime.Object) error {
			seen++
			return update(ctx, objects, obj)
		}); err != nil {
			return seen, err
		}
		at, err := meta.ListAccessor(list)
		if err != nil {
			return seen, err
		}
		if options.Continue = at.GetContinue(); options.Continue == "" {
			return seen, nil
		}
	}
}

// update writes an object as it is. One that was changed or deleted meanwhile was written anew by whoever did that.
func update(ctx context.Context, objects rest.Updater, obj runtime.Object) error {
	at, err := meta.Accessor(obj)
	if err != nil {
		return err
	}
	ctx = genericrequest.WithNamespace(ctx, at.GetNamespace())
	_, _, err = objects.Update(ctx, at.GetName(), rest.DefaultUpdatedObjectInfo(obj), rest.ValidateAllObjectFunc, rest.ValidateAllObjectUpdateFunc,
		false, &metav1.UpdateOptions{})
	if apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return errors.Join(fmt.Errorf("%s/%s", at.GetNamespace(), at.GetName()), err)
	}
	return nil
}
