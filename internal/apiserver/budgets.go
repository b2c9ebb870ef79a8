package apiserver

import (
	"context"

	policyv1 "k8s.io/api/policy/v1"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/registry/pod"
	"monopod.dev/monopod/internal/apiserver/resource"
)

// budgets are the pod disruption budgets, as evictions of pods read and write them.
type budgets struct {
	all    rest.Lister
	status rest.Updater
}

var _ pod.Budgets = budgets{}

// newBudgets reads and writes storages that are open.
func newBudgets(all resource.Storages) (b budgets, err error) {
	if b.all, err = resource.Find[rest.Lister](all, policyv1.SchemeGroupVersion, "poddisruptionbudgets"); err != nil {
		return b, err
	}
	b.status, err = resource.Find[rest.Updater](all, policyv1.SchemeGroupVersion, "poddisruptionbudgets/status")
	return b, err
}

// List implements pod.Budgets.
func (b budgets) List(ctx context.Context, namespace string) ([]policyv1.PodDisruptionBudget, error) {
	all, err := list[*policyv1.PodDisruptionBudgetList](ctx, b.all, namespace, &metainternalversion.ListOptions{})
	if err != nil {
		return nil, err
	}
	return all.Items, nil
}

// ChangeStatus implements pod.Budgets. The store calls change with the newest budget until that is what its result replaces.
func (b budgets) ChangeStatus(ctx context.Context, namespace, name string, dryRun []string, change func(*policyv1.PodDisruptionBudget) error) error {
	info := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		budget := old.(*policyv1.PodDisruptionBudget).DeepCopy()
		return budget, change(budget)
	})
	_, _, err := b.status.Update(genericrequest.WithNamespace(ctx, namespace), name, info, nil, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{DryRun: dryRun})
	return err
}
