package namespace

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// resource is one whose objects are in namespaces, and what can be done with them.
type resource struct {
	schema.GroupVersionResource
	verbs metav1.Verbs
}

var pods = corev1.SchemeGroupVersion.WithResource("pods")

// endGrace is what a pod gets beside its grace period before its being there is strange: its agent has to tell of the end, too.
const endGrace = 5 * time.Second

// findings is what there was to do in a namespace.
type findings struct {
	// discovery and parsing are why not all resources are known; content is what went wrong with those that are.
	discovery, parsing error
	content            []error
	left               []remainder
}

func (f *findings) err() error {
	return errors.Join(append([]error{f.discovery, f.parsing}, f.content...)...)
}

// remainder is a resource of which something is left, as of a list's version.
type remainder struct {
	resource
	version    string
	count      int
	finalizers map[string]int // how many objects have each
	// due is when the last of those that have a time to end should have; zero: none has.
	due time.Time
}

// empty deletes what is in a namespace, and returns what is left.
func (c *Controller) empty(ctx context.Context, name string) (found findings) {
	var all []resource
	all, found.discovery, found.parsing = c.discover(ctx)
	first := slices.IndexFunc(all, func(r resource) bool { return r.GroupVersionResource == pods })
	if first < 0 && found.discovery != nil {
		return found // there may be pods
	}
	if first >= 0 {
		c.clear(ctx, all[first], name, &found)
		if len(found.left) > 0 || len(found.content) > 0 {
			return found // what a pod uses stays while it ends
		}
		all = slices.Delete(all, first, first+1)
	}
	for _, r := range all {
		c.clear(ctx, r, name, &found)
	}
	return found
}

// discover returns the resources in namespaces whose objects can be deleted.
func (c *Controller) discover(ctx context.Context) (all []resource, discovery, parsing error) {
	lists, discovery := c.config.Discovery.ServerPreferredNamespacedResourcesWithContext(ctx)
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			parsing = errors.Join(parsing, err)
			continue
		}
		for _, r := range list.APIResources {
			if slices.Contains(r.Verbs, "delete") {
				all = append(all, resource{gv.WithResource(r.Name), r.Verbs})
			}
		}
	}
	return all, discovery, parsing
}

// clear deletes the objects of a resource, and adds to the findings what is left.
func (c *Controller) clear(ctx context.Context, r resource, name string, found *findings) {
	list, err := c.delete(ctx, r, name)
	if err != nil {
		found.content = append(found.content, fmt.Errorf("%s: %w", r.GroupResource(), err))
	}
	if list == nil || len(list.Items) == 0 {
		return
	}
	left := remainder{resource: r, version: list.ResourceVersion, count: len(list.Items), finalizers: map[string]int{}}
	now, strange := time.Now(), false
	for i := range list.Items {
		item := &list.Items[i]
		for _, f := range item.Finalizers {
			left.finalizers[f]++
		}
		due := now
		if item.DeletionTimestamp != nil && r.GroupVersionResource == pods {
			due = item.DeletionTimestamp.Add(endGrace)
		}
		if due.After(left.due) && due.After(now) {
			left.due = due
		}
		strange = strange || len(item.Finalizers) == 0 && !due.After(now)
	}
	if strange && err == nil {
		found.content = append(found.content, fmt.Errorf("unexpected items still remain in namespace: %s for gvr: %v", name, r.GroupVersionResource))
	}
	found.left = append(found.left, left)
}

// delete deletes the objects of a resource and lists those that are still there.
func (c *Controller) delete(ctx context.Context, r resource, name string) (*metav1.PartialObjectMetadataList, error) {
	client := c.config.Metadata.Resource(r.GroupVersionResource).Namespace(name)
	// Owners and dependents in the namespace go alike: nobody needs to wait for one of them, or keep it.
	background := metav1.DeletePropagationBackground
	all := metav1.DeleteOptions{PropagationPolicy: &background}
	if !slices.Contains(r.verbs, "list") {
		if !slices.Contains(r.verbs, "deletecollection") {
			return nil, nil // upstream's way, too: nobody can tell what there is
		}
		return nil, ignoreAbsent(client.DeleteCollection(ctx, all, metav1.ListOptions{}))
	}
	list, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, ignoreAbsent(err)
	}
	// What is on its way out already is not hurried.
	if !slices.ContainsFunc(list.Items, func(o metav1.PartialObjectMetadata) bool { return o.DeletionTimestamp == nil }) {
		return list, nil
	}
	if slices.Contains(r.verbs, "deletecollection") {
		err = client.DeleteCollection(ctx, all, metav1.ListOptions{})
	}
	if !slices.Contains(r.verbs, "deletecollection") || apierrors.IsMethodNotSupported(err) {
		err = nil
		for i := range list.Items {
			one := all
			one.Preconditions = metav1.NewUIDPreconditions(string(list.Items[i].UID))
			err = errors.Join(err, ignoreAbsent(client.Delete(ctx, list.Items[i].Name, one)))
		}
	}
	if err = ignoreAbsent(err); err != nil {
		return list, err
	}
	return client.List(ctx, metav1.ListOptions{})
}

// ignoreAbsent is for what is not there, or not to be had: there is nothing to delete then.
func ignoreAbsent(err error) error {
	if apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err) {
		return nil
	}
	return err
}
