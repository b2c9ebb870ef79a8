package service

import (
	"context"
	"errors"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/util/dryrun"
	"k8s.io/utils/keymutex"
)

// REST is the storage of services. It finishes what the store's hooks have claimed, because only here it is known how a request ended.
type REST struct {
	*genericregistry.Store
	given *Allocations
	// changes has the changes of one service one after another: what one gives back another must not be taking again.
	changes keymutex.KeyMutex
}

var (
	_ rest.StandardStorage    = &REST{}
	_ rest.ShortNamesProvider = &REST{}
	_ rest.CategoriesProvider = &REST{}
)

// ShortNames implements rest.ShortNamesProvider.
func (*REST) ShortNames() []string { return []string{"svc"} }

// Categories implements rest.CategoriesProvider: `kubectl get all` lists services.
func (*REST) Categories() []string { return []string{"all"} }

// Create implements rest.Creater.
func (r *REST) Create(ctx context.Context, obj runtime.Object, validate rest.ValidateObjectFunc, options *metav1.CreateOptions) (runtime.Object, error) {
	name := ""
	if m, err := meta.Accessor(obj); err == nil {
		name = m.GetName()
	}
	ctx, t, err := r.begin(ctx, name, dryrun.IsDryRun(options.DryRun))
	if err != nil {
		return nil, err
	}
	result := errUnknown
	defer func() { t.end(result) }()
	var out runtime.Object
	out, result = r.Store.Create(ctx, obj, validate, options)
	return out, result
}

// Update implements rest.Updater.
func (r *REST) Update(ctx context.Context, name string, objInfo rest.UpdatedObjectInfo, createValidation rest.ValidateObjectFunc,
	updateValidation rest.ValidateObjectUpdateFunc, forceAllowCreate bool, options *metav1.UpdateOptions) (runtime.Object, bool, error) {
	ctx, t, err := r.begin(ctx, name, dryrun.IsDryRun(options.DryRun))
	if err != nil {
		return nil, false, err
	}
	result := errUnknown
	defer func() { t.end(result) }()
	var out runtime.Object
	var created bool
	out, created, result = r.Store.Update(ctx, name, objInfo, createValidation, updateValidation, forceAllowCreate, options)
	return out, created, result
}

// Delete implements rest.GracefulDeleter.
func (r *REST) Delete(ctx context.Context, name string, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions) (runtime.Object, bool, error) {
	out, done, err := r.Store.Delete(ctx, name, validate, options)
	if !nothingStored(err) {
		r.given.inDoubt()
	}
	return out, done, err
}

// DeleteCollection implements rest.CollectionDeleter.
func (r *REST) DeleteCollection(ctx context.Context, validate rest.ValidateObjectFunc, options *metav1.DeleteOptions,
	list *metainternalversion.ListOptions) (runtime.Object, error) {
	out, err := r.Store.DeleteCollection(ctx, validate, options, list)
	if !nothingStored(err) {
		r.given.inDoubt()
	}
	return out, err
}

// transaction is what a request has claimed.
type transaction struct {
	given  *Allocations
	dryRun bool
	unlock func()
	// owner is the service's UID.
	owner    string
	claims   []claim
	had, has *corev1.Service
}

type claim interface {
	Commit()
	Drop()
}

type transactionKey struct{}

// errUnknown is the outcome of a request as long as there is none.
var errUnknown = errors.New("the request has not ended")

func transactionOf(ctx context.Context) *transaction {
	t, _ := ctx.Value(transactionKey{}).(*transaction)
	return t
}

func (r *REST) begin(ctx context.Context, name string, dryRun bool) (context.Context, *transaction, error) {
	if err := r.given.Fill(ctx); err != nil {
		return nil, nil, apierrors.NewInternalError(err)
	}
	t := &transaction{given: r.given, dryRun: dryRun, unlock: func() {}}
	if name != "" { // else it will be generated, and nobody else knows it
		key := genericrequest.NamespaceValue(ctx) + "/" + name
		r.changes.LockKey(key)
		t.unlock = func() { _ = r.changes.UnlockKey(key) } // it is locked
	}
	unlock := t.unlock
	others, err := r.given.alone(ctx)
	if err != nil {
		unlock()
		return nil, nil, apierrors.NewInternalError(err)
	}
	t.unlock = func() { others(); unlock() }
	return context.WithValue(ctx, transactionKey{}, t), t, nil
}

// drop gives up what was claimed so far: nothing of it was stored.
func (t *transaction) drop() {
	for _, c := range t.claims {
		c.Drop()
	}
	t.claims, t.had, t.has = nil, nil, nil
}

// end finishes a request that ended with err.
func (t *transaction) end(err error) {
	defer t.unlock()
	switch {
	case t.dryRun, err != nil && nothingStored(err):
		t.drop()
		return
	case err != nil:
		// It may have been stored. What was claimed stays claimed, and what it had stays too, until that is known.
		t.given.unknown()
	}
	for _, c := range t.claims {
		c.Commit()
	}
	if err == nil && t.had != nil {
		t.given.release(t.had, t.has)
	}
}

// nothingStored: an answer to the client's fault is given before anything is stored, or because something else was. All other errors may come after.
func nothingStored(err error) bool {
	if err == nil {
		return true
	}
	switch apierrors.ReasonForError(err) {
	case metav1.StatusReasonInvalid, metav1.StatusReasonAlreadyExists, metav1.StatusReasonConflict, metav1.StatusReasonNotFound,
		metav1.StatusReasonForbidden, metav1.StatusReasonBadRequest:
		return true
	}
	return false
}
