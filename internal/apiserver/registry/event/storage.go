package event

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/generic"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/printers"
	"monopod.dev/monopod/internal/apiserver/registry/base"
)

// TTL is how long the store keeps an event after it was last written.
const TTL = time.Hour

// REST is the storage of events. One REST serves both API groups.
type REST struct{ *genericregistry.Store }

var (
	_ rest.StandardStorage    = &REST{}
	_ rest.ShortNamesProvider = &REST{}
)

// NewStorage opens the storage of events. The caller installs it as "events" in core/v1 and in events.k8s.io/v1 alike.
func NewStorage(opts generic.RESTOptionsGetter) (*REST, error) {
	s := strategy{base.New()}
	store := &genericregistry.Store{
		NewFunc:                   func() runtime.Object { return &corev1.Event{} },
		NewListFunc:               func() runtime.Object { return &corev1.EventList{} },
		PredicateFunc:             matchEvent,
		DefaultQualifiedResource:  corev1.Resource("events"),
		SingularQualifiedResource: corev1.Resource("event"),
		TTLFunc: func(runtime.Object, uint64, bool) (uint64, error) {
			return uint64(TTL / time.Second), nil
		},
		TableConvertor: printers.Events(),
	}
	if err := base.Open(store, s, &generic.StoreOptions{RESTOptions: opts, AttrFunc: getAttrs}); err != nil {
		return nil, err
	}
	return &REST{store}, nil
}

// ShortNames implements rest.ShortNamesProvider.
func (*REST) ShortNames() []string { return []string{"ev"} }

// AddToScheme adds to a scheme that knows both API groups all that serving events needs: the conversion between their
// forms and the fields that can be selected by.
func AddToScheme(scheme *runtime.Scheme) error {
	return errors.Join(AddConversions(scheme), AddFieldLabelConversions(scheme))
}
