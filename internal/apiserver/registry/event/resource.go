package event

import (
	"errors"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"

	"monopod.dev/monopod/internal/apiserver/resource"
)

// TTL is how long the store keeps an event after it was last written.
const TTL = time.Hour

// Resource is the resource events, in core/v1 and in events.k8s.io/v1 alike. Events are many and hardly watched, so a cache would cost more than it saves.
func Resource() resource.Of[*corev1.Event, *corev1.EventList] {
	return resource.Of[*corev1.Event, *corev1.EventList]{
		Plural:     "events",
		Short:      []string{"ev"},
		Namespaced: true,
		ReadBy:     resource.Viewer,
		WrittenBy:  resource.Editor,
		Fields:     selectable,
		Columns:    columns(),
		Row:        eventRow,
		Strategy:   func() resource.Strategy { return strategy{resource.NewPlain()} },
		Store: func(s *genericregistry.Store) {
			s.TTLFunc = func(runtime.Object, uint64, bool) (uint64, error) { return uint64(TTL / time.Second), nil }
		},
		Scheme:    AddToScheme,
		Views:     []schema.GroupVersion{eventsv1.SchemeGroupVersion},
		NotCached: true,
	}
}

// AddToScheme adds to a scheme that knows both API groups all that serving events needs: the conversion between their
// forms and the fields that can be selected by.
func AddToScheme(scheme *runtime.Scheme) error {
	return errors.Join(AddConversions(scheme), AddFieldLabelConversions(scheme))
}
