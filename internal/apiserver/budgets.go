package apiserver

import (
	"context"
	"fmt"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/registry/pod"
)

// budgets are the pod disruption budgets, as evictions of pods read and write them. Their storages are opened later than that of pods.
type budgets struct{ reader }

var _ pod.Budgets = budgets{}

// List implements pod.Budgets.
func (b budgets) List(ctx context.Context, namespace string) ([]policyv1.PodDisruptionBudget, error) {
	all, err := list[*policyv1.PodDisruptionBudgetList](ctx, b.reader, policyv1.SchemeGroupVersion.WithResource("poddisruptionbudgets"), namespace, &metainternalversion.ListOptions{})
	if err != nil {
		return nil, err
	}
	return all.Items, nil
}

// ChangeStatus implements pod.Budgets. The store calls change with the newest budget until that is what its result replaces.
func (b budgets) ChangeStatus(ctx context.Context, namespace, name string, dryRun []string, change func(*policyv1.PodDisruptionBudget) error) error {
	status, ok := b.server.storages[policyv1.SchemeGroupVersion]["poddisruptionbudgets/status"].(rest.Updater)
	if !ok {
		return apierrors.NewInternalError(fmt.Errorf("the status of pod disruption budgets cannot be written"))
	}
	info := rest.DefaultUpdatedObjectInfo(nil, func(_ context.Context, _, old runtime.Object) (runtime.Object, error) {
		budget := old.(*policyv1.PodDisruptionBudget).DeepCopy()
		return budget, change(budget)
	})
	_, _, err := status.Update(genericrequest.WithNamespace(ctx, namespace), name, info, nil, rest.ValidateAllObjectUpdateFunc, false, &metav1.UpdateOptions{DryRun: dryRun})
	return err
}
