package aggregate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/tools/cache"

	"monopod.dev/monopod/internal/kit/queue"
)

// everything is the one item of the queue: what is in an aggregated role may come from any other one.
const everything = "cluster roles"

// Config is what a Controller needs.
type Config struct {
	// Client has the rights of upstream's system:controller:clusterrole-aggregation-controller, of them escalate.
	Client rbacclient.ClusterRolesGetter
	// ClusterRoles may be watched by others, too; who made the Controller starts them.
	ClusterRoles rbacinformers.ClusterRoleInformer
	Log          *slog.Logger
}

// Controller keeps aggregated cluster roles. See the package's documentation.
type Controller struct {
	config  Config
	queue   *queue.Queue[string]
	handler cache.ResourceEventHandlerRegistration
}

// New returns a Controller that does nothing until it is run.
func New(config Config) (*Controller, error) {
	c := &Controller{config: config, queue: queue.New[string]()}
	look := func(any) { c.queue.Add(everything) }
	var err error
	c.handler, err = config.ClusterRoles.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    look,
		DeleteFunc: look,
		UpdateFunc: func(old, obj any) {
			if changes(old, obj) {
				look(obj)
			}
		},
	})
	if err != nil {
		return nil, fmt.Errorf("watch cluster roles: %w", err)
	}
	return c, nil
}

// changes says whether an update of a role may change an aggregated one.
func changes(old, obj any) bool {
	was, ok := old.(*rbacv1.ClusterRole)
	is, ok2 := obj.(*rbacv1.ClusterRole)
	return !ok || !ok2 || !apiequality.Semantic.DeepEqual(was.Rules, is.Rules) || !apiequality.Semantic.DeepEqual(was.Labels, is.Labels) ||
		!apiequality.Semantic.DeepEqual(was.AggregationRule, is.AggregationRule)
}

// Run keeps the roles until ctx ends, which is no error. A Controller is run once.
func (c *Controller) Run(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), c.handler.HasSynced) {
		c.queue.ShutDown()
		return nil
	}
	c.queue.Run(ctx, 1, c.look, func(_ string, err error) {
		c.config.Log.Warn("cluster roles could not be aggregated yet, trying again", "error", err)
	})
	return nil
}

// look compares all aggregated roles with what should be in them. A role that fails does not keep the others.
func (c *Controller) look(ctx context.Context, _ string) error {
	all, err := c.config.ClusterRoles.Lister().List(labels.Everything())
	if err != nil {
		return err
	}
	var errs []error
	for _, role := range all {
		if role.AggregationRule == nil {
			continue
		}
		rules, err := Rules(role, all)
		if err == nil && !same(rules, role.Rules) {
			err = c.write(ctx, role, rules)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// write replaces the rules of a role that is still as it was seen. One that has changed is looked at again with its change.
func (c *Controller) write(ctx context.Context, role *rbacv1.ClusterRole, rules []rbacv1.PolicyRule) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": role.UID, "resourceVersion": role.ResourceVersion}, "rules": rules})
	if err != nil {
		return err
	}
	_, err = c.config.Client.ClusterRoles().Patch(ctx, role.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("rules of the cluster role %s: %w", role.Name, err)
	}
	return nil
}
