package controllers_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"monopod.dev/monopod/internal/controllers"
	"monopod.dev/monopod/internal/controllers/catalog"
	"monopod.dev/monopod/test/apitest"
)

// lease is short. A machine that has no time for a renewal within two thirds of it has another process act, which no test here minds.
const lease = 6 * time.Second

var (
	leases = coordinationv1.SchemeGroupVersion.WithResource("leases")
)

// turns are two API servers on one etcd, whose controllers take turns.
type turns struct {
	*testing.T
	apis []*apitest.API
}

// holder is who has the Lease; empty: nobody.
func (w *turns) holder(ctx context.Context) string {
	w.Helper()
	l, err := w.apis[0].Client.CoordinationV1().Leases(metav1.NamespaceSystem).Get(ctx, controllers.LeaseName, metav1.GetOptions{})
	if err != nil || l.Spec.HolderIdentity == nil {
		return ""
	}
	return *l.Spec.HolderIdentity
}

func (w *turns) awaitHolder(want string) {
	w.Helper()
	var is string
	w.apis[0].AwaitChange(func(ctx context.Context) bool { is = w.holder(ctx); return is == want },
		func() string { return fmt.Sprintf("%q has the lease, want %q", is, want) }, leases, metav1.NamespaceSystem)
}

// work has the controllers do something, and returns when it is done.
func (w *turns) work(name string) {
	w.Helper()
	if _, err := w.apis[0].Client.CoreV1().Namespaces().Create(w.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
		w.Fatal(err)
	}
	w.apis[0].AwaitAccount(name)
}

// TestControllersTakeTurns: those of one API server act; when they end the others act; those that lose the lease stand by and act again.
func TestControllersTakeTurns(t *testing.T) {
	w := &turns{t, apitest.StartShared(t, 2)}
	run := func(i int) func() {
		return w.apis[i].ControlInTurn(controllers.Election{Identity: fmt.Sprint("c", i), Lease: lease}, catalog.ServiceAccount, catalog.RootCA)
	}
	stop := run(0)
	w.awaitHolder("c0")
	w.work("first")
	run(1)
	w.work("second")
	stop()
	w.awaitHolder("c1")
	w.work("third")

	// Somebody takes the lease away, and does not renew it.
	client := w.apis[0].Client.CoordinationV1().Leases(metav1.NamespaceSystem)
	if _, err := client.Patch(t.Context(), controllers.LeaseName, "application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"holderIdentity":"thief","renewTime":%q}}`,
		time.Now().UTC().Format(metav1.RFC3339Micro)), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	w.awaitHolder("c1")
	w.work("fourth")
	w.apis[0].AwaitChange(func(ctx context.Context) bool {
		all, err := w.apis[0].Client.CoreV1().Events(metav1.NamespaceSystem).List(ctx, metav1.ListOptions{FieldSelector: "reason=LeaderElection"})
		if err != nil {
			t.Fatal(err)
		}
		var said strings.Builder
		for i := range all.Items {
			said.WriteString(all.Items[i].InvolvedObject.Kind + " " + all.Items[i].Message + ". ")
		}
		return strings.Contains(said.String(), "Lease c0 became leader.") && strings.Contains(said.String(), "Lease c1 became leader.")
	}, func() string { return "no events tell of it" }, schema.GroupVersionResource{Version: "v1", Resource: "events"}, metav1.NamespaceSystem)
}

// TestOneIdentityWaitsForNothing: a process in the place of one that was killed has the lease of that one.
func TestOneIdentityWaitsForNothing(t *testing.T) {
	w := &turns{t, []*apitest.API{apitest.Start(t)}}
	now, hour, who := metav1.NowMicro(), int32(3600), "c"
	if _, err := w.apis[0].Client.CoordinationV1().Leases(metav1.NamespaceSystem).Create(t.Context(), &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: controllers.LeaseName},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &who, AcquireTime: &now, RenewTime: &now, LeaseDurationSeconds: &hour},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	w.apis[0].ControlInTurn(controllers.Election{Identity: who, Lease: time.Hour}, catalog.ServiceAccount)
	w.work("one")
}
