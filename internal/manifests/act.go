package manifests

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// The config map of the inventory, and its key.
const (
	inventoryName = "monopod-manifests"
	inventoryKey  = "inventory.json"
)

// inventory reads the inventory and its version; "": there is none yet.
func (k *Keeper) inventory(ctx context.Context) (Inventory, string, error) {
	stored, err := k.store().Get(ctx, inventoryName, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return Inventory{}, "", nil
	}
	if err != nil {
		return nil, "", fmt.Errorf("inventory: %w", err)
	}
	v, err := DecodeInventory(stored.Data[inventoryKey])
	if err != nil {
		return nil, "", fmt.Errorf("the inventory, config map %s/%s, cannot be read (delete it, and what it lists stays for ever): %w", metav1.NamespaceSystem, inventoryName, err)
	}
	return v, stored.ResourceVersion, nil
}

// keep writes the inventory, if it is another one than is stored, and returns its version. Somebody else who writes it meanwhile is an error.
func (k *Keeper) keep(ctx context.Context, now, is Inventory, version string) (string, error) {
	if maps.Equal(now, is) {
		return version, nil
	}
	data, err := now.Encode()
	if err != nil {
		return "", fmt.Errorf("inventory: %w", err)
	}
	stored := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: inventoryName, ResourceVersion: version}, Data: map[string]string{inventoryKey: data},
	}
	if version == "" {
		stored, err = k.store().Create(ctx, stored, metav1.CreateOptions{})
	} else {
		stored, err = k.store().Update(ctx, stored, metav1.UpdateOptions{})
	}
	if err != nil {
		return "", fmt.Errorf("inventory: %w", err)
	}
	return stored.ResourceVersion, nil
}

// apply applies an object, unless this process has done that by the same words already.
func (k *Keeper) apply(ctx context.Context, d Document) error {
	data, err := json.Marshal(d.Object)
	if err != nil {
		return err
	}
	key, sum := keyOf(d.Object), sha256.Sum256(data)
	if k.applied[key] == sum {
		return nil
	}
	resource, err := k.resource(key, d.Object.GroupVersionKind().Version)
	if err != nil {
		return err
	}
	force := true
	if _, err := resource.Patch(ctx, key.Name, types.ApplyPatchType, data, metav1.PatchOptions{
		FieldManager: Manager, Force: &force, FieldValidation: metav1.FieldValidationStrict,
	}); err != nil {
		return err
	}
	k.applied[key] = sum
	k.log.Info("applied", "object", key.String(), "file", d.File)
	return nil
}

// prune deletes an object whose file is gone, if it is what was applied.
func (k *Keeper) prune(ctx context.Context, key Key, entry Entry) error {
	delete(k.applied, key)
	resource, err := k.resource(key, entry.Version)
	if meta.IsNoMatchError(err) {
		return nil // with its kind all of its kind went
	}
	if err != nil {
		return err
	}
	there, err := resource.Get(ctx, key.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !slices.ContainsFunc(there.GetManagedFields(), func(m metav1.ManagedFieldsEntry) bool {
		return m.Manager == Manager && m.Operation == metav1.ManagedFieldsOperationApply
	}) {
		k.log.Info("an object whose file is gone is another one by now, and stays", "object", key.String(), "file", entry.File)
		return nil
	}
	uid, version, background := there.GetUID(), there.GetResourceVersion(), metav1.DeletePropagationBackground
	err = resource.Delete(ctx, key.Name, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &version}, PropagationPolicy: &background,
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	k.log.Info("deleted: its file is gone", "object", key.String(), "file", entry.File)
	return nil
}

// resource is where objects of a kind are. Kinds come with definitions: one that is not known is asked for anew.
func (k *Keeper) resource(key Key, version string) (dynamic.ResourceInterface, error) {
	gvk := key.kind(version)
	mapping, err := k.kinds.RESTMapping(gvk.GroupKind(), version)
	if meta.IsNoMatchError(err) {
		k.kinds.Reset()
		mapping, err = k.kinds.RESTMapping(gvk.GroupKind(), version)
	}
	if err != nil {
		return nil, err
	}
	if mapping.Scope.Name() != meta.RESTScopeNameNamespace {
		return k.objects.Resource(mapping.Resource), nil
	}
	namespace := key.Namespace
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return k.objects.Resource(mapping.Resource).Namespace(namespace), nil
}
