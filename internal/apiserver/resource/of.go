package resource

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/kit/apifields"
)

// Object is a pointer to an API type.
type Object interface {
	runtime.Object
	metav1.Object
}

// Of is the resource of the objects T and the lists L of them, pointers to types of k8s.io/api. Its zero values are what most resources want.
type Of[T Object, L runtime.Object] struct {
	// Group is the API group, empty for core; Version is empty for v1.
	Group, Version string
	// Plural is the resource's name, Short are others that kubectl takes, Categories the groups of resources (`kubectl get all`) that it is in.
	Plural            string
	Short, Categories []string
	Namespaced        bool
	// ReadBy and WrittenBy are the least of the cluster's roles that may.
	ReadBy, WrittenBy Role
	// Grants are rights of the cluster's roles beside reading and writing ("impersonate"), without Group and Resource.
	Grants []Right

	// Honours has a verdict for each field of T, and of the structs below it: what is refused is refused by name. It does not rule what Strategy does.
	Honours apifields.Table
	// Default fills in what a client may leave out. It is called with what comes from a client or the store and must change nothing the second time.
	Default func(obj T)
	// Made is called with a new object and whoever makes it, before Prepare.
	Made func(obj T, by user.Info)
	// Prepare is called with a new object before it is checked, PrepareUpdate with one that replaces old. They set what is not the client's to say.
	Prepare       func(obj T)
	PrepareUpdate func(obj, old T)
	// Names checks a name, by default as a DNS subdomain. Create checks the rest of a new object beside its metadata, Update one that replaces old, by
	// default as a new one.
	Names  apivalidation.ValidateNameFunc
	Create func(obj T) field.ErrorList
	Update func(obj, old T) field.ErrorList
	// Warn tells what is legal in a new object but hardly meant, WarnUpdate in one that replaces old.
	Warn       func(obj T) []string
	WarnUpdate func(obj, old T) []string
	// Generation: metadata.generation counts the changes of spec.
	Generation bool
	// Status: the objects have a status, whose changes are a subresource. Nil: they have none.
	Status *Status[T]
	// CreateOnUpdate: an update makes the object where there is none. NamedUpdate: an update names the resourceVersion that it replaces.
	CreateOnUpdate, NamedUpdate bool
	// Orphans: what an object owns stays when the object is deleted by somebody who does not say what becomes of it. Else it goes.
	Orphans bool

	// Fields are the values of the fields, beside name and namespace, that objects can be selected by. The names are the same for every object.
	Fields func(obj T) fields.Set
	// Columns is the table that kubectl shows. Row makes the cells of a line and its conditions where the columns have work in common;
	// else each column has its Value. Rows makes the Row for the objects of an answer where a line depends on the others of a list; of an object that is
	// shown by itself it is given none.
	Columns []Column[T]
	Row     RowFunc[T]
	Rows    func(list []T) RowFunc[T]

	// Parts are the subresources beside status, by their names.
	Parts map[string]Part
	// What follows is for what is unlike others. Strategy replaces all of the rules above; Store and Options change what the library makes the storage
	// of; REST makes the storage out of it; Scheme tells the scheme more; Views are other groups and versions in which the objects are shown.
	Strategy func() Strategy
	Store    func(store *genericregistry.Store)
	Options  func(options *generic.StoreOptions)
	REST     func(store *genericregistry.Store) rest.Storage
	Scheme   func(s *runtime.Scheme) error
	Views    []schema.GroupVersion
	// checked is Honours as it is asked.
	checked apifields.Checker
	// NotCached: many objects that are hardly watched, so that a cache would cost more than it saves.
	NotCached bool
}

// Part is a subresource.
type Part struct {
	// Storage makes its storage out of that of the resource.
	Storage func(store *genericregistry.Store) rest.Storage
	// Rights are given without Group and Resource.
	Rights []Right
}

var _ Resource = Of[*metav1.PartialObjectMetadata, *metav1.PartialObjectMetadataList]{}

// GroupVersion is where the objects are stored.
func (o Of[T, L]) GroupVersion() schema.GroupVersion {
	version := o.Version
	if version == "" {
		version = "v1"
	}
	return schema.GroupVersion{Group: o.Group, Version: version}
}

// Kind is the name of T.
func (Of[T, L]) Kind() string { return reflect.TypeFor[T]().Elem().Name() }

// Served implements Resource.
func (o Of[T, L]) Served() []schema.GroupVersionResource {
	all := []schema.GroupVersionResource{o.GroupVersion().WithResource(o.Plural)}
	for _, view := range o.Views {
		all = append(all, view.WithResource(o.Plural))
	}
	return all
}

// Uncached implements Resource.
func (o Of[T, L]) Uncached() bool { return o.NotCached }

// Rights implements Resource.
func (o Of[T, L]) Rights() []Right {
	var all []Right
	groups := map[string]bool{}
	for _, at := range o.Served() {
		if groups[at.Group] { // in another version
			continue
		}
		groups[at.Group] = true
		all = append(all, RightsTo(at.Group, o.Plural, o.ReadBy, o.WrittenBy)...)
		for _, r := range o.Grants {
			r.Group, r.Resource = at.Group, o.Plural
			all = append(all, r)
		}
		if o.Status != nil {
			all = append(all, RightsTo(at.Group, o.Plural+"/status", o.ReadBy, Nobody)...)
		}
		for _, name := range slices.Sorted(maps.Keys(o.Parts)) {
			for _, r := range o.Parts[name].Rights {
				r.Group, r.Resource = at.Group, o.Plural+"/"+name
				all = append(all, r)
			}
		}
	}
	return all
}

// AddToScheme implements Resource.
func (o Of[T, L]) AddToScheme(s *runtime.Scheme) error {
	if o.Default != nil {
		s.AddTypeDefaultingFunc(newOf[T](), func(obj any) { o.Default(obj.(T)) })
		s.AddTypeDefaultingFunc(newOf[L](), func(list any) {
			// The list is of T's: what it was read into says so.
			_ = meta.EachListItem(list.(runtime.Object), func(obj runtime.Object) error {
				o.Default(obj.(T))
				return nil
			})
		})
	}
	if o.Scheme != nil {
		if err := o.Scheme(s); err != nil {
			return fmt.Errorf("scheme of %s: %w", o.Plural, err)
		}
	}
	if len(o.Views) > 0 {
		return nil // the fields have a name in each view, which Scheme tells
	}
	var names []string
	if o.Fields != nil {
		names = slices.Collect(maps.Keys(o.Fields(newOf[T]())))
	}
	return selectable(s, o.GroupVersion().WithKind(o.Kind()), names)
}

// selectable lets field selectors use the given fields of a kind, beside metadata.name and metadata.namespace. Any other one is refused by name.
func selectable(s *runtime.Scheme, gvk schema.GroupVersionKind, names []string) error {
	known := append([]string{"metadata.name", "metadata.namespace"}, names...)
	slices.Sort(known)
	return s.AddFieldLabelConversionFunc(gvk, func(label, value string) (string, string, error) {
		if !slices.Contains(known, label) {
			return "", "", fmt.Errorf("%q is not a field that %s can be selected by: use one of %q", label, gvk.Kind, known)
		}
		return label, value, nil
	})
}

// Open implements Resource.
func (o Of[T, L]) Open(options generic.RESTOptionsGetter) (map[string]rest.Storage, error) {
	var s Strategy = newStrategy(&o)
	if o.Strategy != nil {
		s = o.Strategy()
	}
	qualified := schema.GroupResource{Group: o.Group, Resource: o.Plural}
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return newOf[T]() },
		NewListFunc:               func() runtime.Object { return newOf[L]() },
		DefaultQualifiedResource:  qualified,
		SingularQualifiedResource: schema.GroupResource{Group: o.Group, Resource: strings.ToLower(o.Kind())},
		TableConvertor:            o.Table(),
		CreateStrategy:            s,
		UpdateStrategy:            s,
		DeleteStrategy:            s,
	}
	if reset, ok := s.(rest.ResetFieldsStrategy); ok {
		store.ResetFieldsStrategy = reset
	}
	if o.Store != nil {
		o.Store(store)
	}
	storeOptions := &generic.StoreOptions{RESTOptions: options, AttrFunc: o.attributes}
	if o.Options != nil {
		o.Options(storeOptions)
	}
	if err := store.CompleteWithOptions(storeOptions); err != nil {
		return nil, fmt.Errorf("storage of %s: %w", qualified, err)
	}
	storages := map[string]rest.Storage{o.Plural: o.storage(store)}
	if o.Status != nil {
		storages[o.Plural+"/status"] = o.PartREST(o.statusRules())(store)
	}
	for name, part := range o.Parts {
		storages[o.Plural+"/"+name] = part.Storage(store)
	}
	return storages, nil
}

// Check tells what is wrong with a new object.
func (o Of[T, L]) Check(obj T) field.ErrorList {
	names := o.Names
	if names == nil {
		names = apivalidation.NameIsDNSSubdomain
	}
	errs := apivalidation.ValidateObjectMetaAccessor(obj, o.Namespaced, names, field.NewPath("metadata"))
	errs = append(errs, Forbid(o.refused(obj))...)
	if o.Create != nil {
		errs = append(errs, o.Create(obj)...)
	}
	return errs
}

// CheckUpdate tells what is wrong with an object that replaces old.
func (o Of[T, L]) CheckUpdate(obj, old T) field.ErrorList {
	errs := apivalidation.ValidateObjectMetaAccessorUpdate(obj, old, field.NewPath("metadata"))
	errs = append(errs, Forbid(added(o.refused(obj), o.refused(old)))...)
	switch {
	case o.Update != nil:
		errs = append(errs, o.Update(obj, old)...)
	case o.Create != nil:
		errs = append(errs, o.Create(obj)...)
	}
	return errs
}

// Table is the table that kubectl shows of the objects.
func (o Of[T, L]) Table() rest.TableConvertor { return table[T]{o.Columns, o.Row, o.Rows} }

func (o Of[T, L]) storage(store *genericregistry.Store) rest.Storage {
	if o.REST != nil {
		return o.REST(store)
	}
	return &objects{Store: store, short: o.Short, categories: o.Categories}
}

// attributes are what selectors look at.
func (o Of[T, L]) attributes(obj runtime.Object) (labels.Set, fields.Set, error) {
	typed, ok := obj.(T)
	if !ok {
		return nil, nil, fmt.Errorf("expected a %s, found %T", o.Kind(), obj)
	}
	set := fields.Set{}
	if o.Fields != nil {
		set = o.Fields(typed)
	}
	if set["metadata.name"] = typed.GetName(); o.Namespaced {
		set["metadata.namespace"] = typed.GetNamespace()
	}
	return typed.GetLabels(), set, nil
}

// objects is the storage of a resource's objects.
type objects struct {
	*genericregistry.Store
	short, categories []string
}

var (
	_ rest.StandardStorage    = &objects{}
	_ rest.ShortNamesProvider = &objects{}
	_ rest.CategoriesProvider = &objects{}
)

// ShortNames implements rest.ShortNamesProvider.
func (o *objects) ShortNames() []string { return o.short }

// Categories implements rest.CategoriesProvider.
func (o *objects) Categories() []string { return o.categories }

// newOf makes an empty object of a pointer's type.
func newOf[P any]() P { return reflect.New(reflect.TypeFor[P]().Elem()).Interface().(P) }
