package garbage

import (
	"context"
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
)

// Discovery tells what the API server has.
type Discovery interface {
	// ServerGroupsAndResourcesWithContext returns all groups, and the resources of all their versions. With an error some may be missing.
	ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
}

// kinds are the kinds of objects that the API server has.
type kinds struct {
	// all are those that an owner can be of.
	all map[schema.GroupVersionKind]*kind
	// watched are those whose objects can be garbage, by their preferred versions.
	watched map[schema.GroupVersionResource]*kind
}

// neverWatched are kinds that are many, and own and are owned by nothing.
var neverWatched = []schema.GroupResource{corev1.Resource("events"), {Group: eventsv1.GroupName, Resource: "events"}}

// discover returns the kinds. A kind that was known before is the same one. Of groups that do not answer, those known before are kept.
func discover(ctx context.Context, from Discovery, before kinds) (kinds, error) {
	groups, lists, err := from.ServerGroupsAndResourcesWithContext(ctx)
	var some *discovery.ErrGroupDiscoveryFailed
	if err != nil && !errors.As(err, &some) {
		return before, err
	}
	now := kinds{all: map[schema.GroupVersionKind]*kind{}, watched: map[schema.GroupVersionResource]*kind{}}
	resources := map[string]*metav1.APIResourceList{}
	for _, l := range lists {
		resources[l.GroupVersion] = l
	}
	for _, g := range groups {
		versions := slices.Clone(g.Versions)
		if i := slices.Index(versions, g.PreferredVersion); i > 0 {
			versions = slices.Insert(slices.Delete(versions, i, i+1), 0, g.PreferredVersion)
		}
		seen := map[string]bool{}
		for _, v := range versions {
			if l := resources[v.GroupVersion]; l != nil {
				now.add(schema.GroupVersion{Group: g.Name, Version: v.Version}, l.APIResources, seen, before)
			}
		}
	}
	if some != nil {
		for gvk, k := range before.all {
			if some.Groups[gvk.GroupVersion()] != nil {
				now.all[gvk] = k
			}
		}
		for gvr, k := range before.watched {
			if some.Groups[gvr.GroupVersion()] != nil {
				now.watched[gvr] = k
			}
		}
		return now, err
	}
	return now, nil
}

// add takes in the resources of a version of a group. seen are those of the group's versions that are preferred to it.
func (ks kinds) add(gv schema.GroupVersion, resources []metav1.APIResource, seen map[string]bool, before kinds) {
	for _, r := range resources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		k := &kind{gvk: gv.WithKind(r.Kind), gvr: gv.WithResource(r.Name), namespaced: r.Namespaced}
		for _, old := range []*kind{before.watched[k.gvr], before.all[k.gvk]} {
			if old != nil && *old == *k {
				k = old
			}
		}
		if _, twice := ks.all[k.gvk]; !twice && slices.Contains(r.Verbs, "get") {
			ks.all[k.gvk] = k
		}
		can := func(verb string) bool { return slices.Contains(r.Verbs, verb) }
		if !seen[r.Name] && can("get") && can("list") && can("watch") && can("delete") && !slices.Contains(neverWatched, k.gvr.GroupResource()) {
			ks.watched[k.gvr] = k
		}
		seen[r.Name] = true
	}
}

// same says that two have the same kinds.
func (ks kinds) same(other kinds) bool {
	if len(ks.all) != len(other.all) || len(ks.watched) != len(other.watched) {
		return false
	}
	for gvk, k := range ks.all {
		if other.all[gvk] != k {
			return false
		}
	}
	for gvr, k := range ks.watched {
		if other.watched[gvr] != k {
			return false
		}
	}
	return true
}
