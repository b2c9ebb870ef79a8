// Package scheme says which kinds the API server knows, and how they are written on the wire and in the store.
//
// There is no conversion layer: the types of k8s.io/api are the wire's, the memory's and the store's alike. Each is
// registered under its version and, the very same Go type, under the group's internal version (the "hub" that
// k8s.io/apiserver decodes into), so that "converting" between the two only sets or clears apiVersion and kind.
// The one exception is Event: events.k8s.io/v1 is a view of the stored core/v1 Event, so core/v1's Go type is the
// internal one of both groups, and package registry/event gives the conversion.
//
// It guarantees that a Set is complete when New returns and is never changed afterwards; it is safe for concurrent use.
package scheme

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
)

// Set is a scheme and the codecs that belong to it.
type Set struct {
	Scheme *runtime.Scheme
	// Codecs encode and decode what Scheme knows, as JSON, YAML and protobuf.
	Codecs serializer.CodecFactory
	// ParameterCodec reads the options of a request from its query (PodLogOptions, PodExecOptions, ...).
	ParameterCodec runtime.ParameterCodec
	// Wire is Scheme without the internal versions: what the API's documentation may name.
	Wire *runtime.Scheme
}

// Hook adds to the scheme what a resource knows about its own kinds: defaults (AddTypeDefaultingFunc), conversions
// (AddConversionFunc), the fields that a selector may use (AddFieldLabelConversionFunc).
type Hook func(*runtime.Scheme) error

// New makes a Set of all served kinds and runs the hooks on its scheme.
func New(hooks ...Hook) (*Set, error) {
	wire, err := build(addVersioned)
	if err != nil {
		return nil, err
	}
	s, err := build(append([]Hook{addVersioned, addInternal}, hooks...)...)
	if err != nil {
		return nil, err
	}
	return &Set{
		Scheme: s,
		Wire:   wire,
		Codecs: serializer.NewCodecFactory(s, serializer.WithStreamingCollectionEncodingToJSON(),
			serializer.WithStreamingCollectionEncodingToProtobuf()),
		ParameterCodec: runtime.NewParameterCodec(s),
	}, nil
}

func build(hooks ...Hook) (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range hooks {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("build the API scheme: %w", err)
		}
	}
	return s, nil
}

func addVersioned(s *runtime.Scheme) error {
	for _, g := range groups() {
		if err := g.add(s); err != nil {
			return err
		}
	}
	return nil
}

// addInternal registers the versioned types as the internal ones too.
func addInternal(s *runtime.Scheme) error {
	versions := map[string][]schema.GroupVersion{}
	for _, g := range groups() {
		internal := schema.GroupVersion{Group: g.Group, Version: runtime.APIVersionInternal}
		switch {
		case g.memory != nil:
			s.AddKnownTypes(internal, g.memory...)
		case len(versions[g.Group]) == 0:
			if err := addAs(s, g.GroupVersion, internal); err != nil {
				return err
			}
		}
		versions[g.Group] = append(versions[g.Group], g.GroupVersion)
	}
	for _, ordered := range versions {
		if err := s.SetVersionPriority(ordered...); err != nil {
			return err
		}
	}
	return nil
}

// addAs registers the types of one version as those of another.
func addAs(s *runtime.Scheme, gv, as schema.GroupVersion) error {
	known := s.KnownTypes(gv)
	for _, kind := range slices.Sorted(maps.Keys(known)) {
		// The kinds of the meta group (ListOptions, WatchEvent, ...) are in every version and have their own hub.
		if !strings.HasPrefix(known[kind].PkgPath(), "k8s.io/api/") {
			continue
		}
		obj, ok := reflect.New(known[kind]).Interface().(runtime.Object)
		if !ok {
			return fmt.Errorf("%s of %s: %s is not a runtime.Object", kind, gv, known[kind])
		}
		s.AddKnownTypeWithName(as.WithKind(kind), obj)
	}
	return nil
}
