package netpolicy

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/netpolicy/compile"
	"monopod.dev/monopod/test/apitest"
	"monopod.dev/monopod/test/harness"
)

// kernel plays the kernel: it keeps the rules that it got last.
type kernel struct {
	mu      sync.Mutex
	rules   *compile.Rules
	applied int
	removed int
	fails   error
}

func (k *kernel) Apply(r *compile.Rules) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fails != nil {
		return k.fails
	}
	k.applied++
	k.rules = r
	return nil
}

func (k *kernel) Remove() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.removed++
	k.rules = nil
	return nil
}

func (k *kernel) Close() {}

func (k *kernel) fail(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.fails = err
}

// class is that of an address in the direction ingress; known is false where the rules do not know the address, or there are none.
func (k *kernel) class(addr string) (class compile.Class, known, any bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.rules == nil {
		return 0, false, false
	}
	class, known = k.rules.Verdicts[compile.Ingress].Pods[netip.MustParseAddr(addr)]
	return class, known, true
}

// rig is a role at work, with a real API server and a kernel that is none.
type rig struct {
	t      *testing.T
	api    *apitest.API
	kernel *kernel
	role   *Role
	stop   func()
}

func newRig(t *testing.T, api *apitest.API) *rig {
	t.Helper()
	r := &rig{t: t, api: api, kernel: &kernel{}}
	r.start()
	return r
}

func (r *rig) start() {
	r.t.Helper()
	r.role = newRole(r.kernel, "n", slog.New(slog.NewTextHandler(r.t.Output(), nil)))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	role := r.role
	go func() { ended <- role.Run(ctx, r.api.Config) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			r.t.Errorf("the role ended with %v", err)
		}
		role.Close()
	})
	r.t.Cleanup(r.stop)
}

func (r *rig) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) namespace(name string) {
	r.t.Helper()
	_, err := r.api.Client.CoreV1().Namespaces().Create(r.t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	r.must(err)
	sa := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err = r.api.Client.CoreV1().ServiceAccounts(name).Create(r.t.Context(), sa, metav1.CreateOptions{})
	if !apierrors.IsAlreadyExists(err) {
		r.must(err)
	}
}

func (r *rig) policy(namespace, name, app string) {
	r.t.Helper()
	_, err := r.api.Client.NetworkingV1().NetworkPolicies(namespace).Create(r.t.Context(), &networkingv1.NetworkPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       networkingv1.NetworkPolicySpec{PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}},
	}, metav1.CreateOptions{})
	r.must(err)
}

func (r *rig) unpolicy(namespace, name string) {
	r.t.Helper()
	r.must(r.api.Client.NetworkingV1().NetworkPolicies(namespace).Delete(r.t.Context(), name, metav1.DeleteOptions{}))
}

// pod makes a pod, and returns its sandbox.
func (r *rig) pod(namespace, name, app string, octet int) Endpoint {
	r.t.Helper()
	p, err := r.api.Client.CoreV1().Pods(namespace).Create(r.t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{NodeName: "n", Containers: []corev1.Container{{Name: "c", Image: "i"}}},
	}, metav1.CreateOptions{})
	r.must(err)
	return Endpoint{SandboxID: ids.SandboxID(namespace + "-" + name), Namespace: namespace, Name: name, UID: p.UID,
		Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(octet)})}}
}

// connects requires that a sandbox is connected, and that its pod's policies hold then.
func (r *rig) connects(e Endpoint, isolated bool) {
	r.t.Helper()
	r.must(r.role.Connecting(e)(r.t.Context()))
	class, known, any := r.kernel.class(e.Addresses[0].String())
	if !known || !any || (class != compile.Free) != isolated {
		r.t.Errorf("when %s is connected the kernel has the class %d for it (known %v), isolated is to be %v", e.Name, class, known, isolated)
	}
}

// becomes waits until an address is isolated, or not.
func (r *rig) becomes(e Endpoint, isolated bool) {
	r.t.Helper()
	harness.Eventually(r.t, fmt.Sprintf("%s is isolated: %v", e.Name, isolated), func() (bool, string) {
		class, known, _ := r.kernel.class(e.Addresses[0].String())
		return known && (class != compile.Free) == isolated, fmt.Sprint(class, known)
	})
}

func (r *rig) hasRules(want bool) {
	r.t.Helper()
	harness.Eventually(r.t, fmt.Sprintf("there are rules: %v", want), func() (bool, string) {
		_, _, any := r.kernel.class("10.0.0.1")
		return any == want, fmt.Sprint(any)
	})
}

func TestRole(t *testing.T) {
	api := apitest.Start(t)
	r := newRig(t, api)
	for _, ns := range []string{"shop", "watch"} {
		r.namespace(ns)
	}
	// Without policies there are no rules, no watches of pods, and nobody waits.
	web := r.pod("shop", "web", "web", 1)
	r.must(r.role.Connecting(web)(t.Context()))
	r.hasRules(false)
	if r.kernel.applied > 0 || r.podsKnown() {
		t.Error("without a policy there are rules, or pods are watched")
	}
	// The first policy isolates what is there, and what comes is isolated when it is connected.
	r.policy("shop", "deny", "web")
	r.becomes(web, true)
	r.connects(r.pod("shop", "web2", "web", 2), true)
	r.connects(r.pod("shop", "db", "db", 3), false)
	r.connects(r.pod("watch", "web", "web", 4), false)
	// Labels that change count.
	db := Endpoint{Name: "db", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.3")}}
	_, err := api.Client.CoreV1().Pods("shop").Patch(t.Context(), "db", "application/merge-patch+json", []byte(`{"metadata":{"labels":{"app":"web"}}}`), metav1.PatchOptions{})
	r.must(err)
	r.becomes(db, true)
	// A pod that the API forgets before its sandbox is gone keeps what held for it.
	zero := int64(0)
	r.must(api.Client.CoreV1().Pods("shop").Delete(t.Context(), "web2", metav1.DeleteOptions{GracePeriodSeconds: &zero}))
	r.policy("shop", "another", "db")
	r.becomes(Endpoint{Name: "web2", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.2")}}, true)
	// Then its address is nobody's.
	r.role.Disconnected("shop-web2")
	harness.Eventually(t, "the address of a sandbox that is gone is not known", func() (bool, string) {
		_, known, any := r.kernel.class("10.0.0.2")
		return any && !known, ""
	})
	// With the last policy the rules go.
	r.unpolicy("shop", "deny")
	r.becomes(web, false)
	r.unpolicy("shop", "another")
	r.hasRules(false)
	harness.Eventually(t, "pods are not watched any more", func() (bool, string) { return !r.podsKnown(), "" })
}

func (r *rig) podsKnown() bool {
	r.role.mu.Lock()
	defer r.role.mu.Unlock()
	return r.role.facts.podsKnow
}

// TestNobodyIsConnectedBeforeItsPoliciesHold: while the kernel does not take the rules a pod waits, and fails.
func TestNobodyIsConnectedBeforeItsPoliciesHold(t *testing.T) {
	api := apitest.Start(t)
	r := newRig(t, api)
	r.namespace("shop")
	r.policy("shop", "deny", "web")
	r.kernel.fail(errors.New("busy"))
	web := r.pod("shop", "web", "web", 1)
	settled := r.role.Connecting(web)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := settled(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while its rules could not be written a pod was connected: %v", err)
	}
	r.kernel.fail(nil)
	r.must(settled(t.Context()))
	if class, known, _ := r.kernel.class("10.0.0.1"); !known || class == compile.Free {
		t.Errorf("the class is %d, known %v", class, known)
	}
	// Of a pod that the API does not know nothing passes, but it is connected.
	stranger := Endpoint{SandboxID: "stranger", Namespace: "shop", Name: "stranger", UID: "none", Addresses: []netip.Addr{netip.MustParseAddr("10.0.0.9")}}
	r.must(r.role.Connecting(stranger)(t.Context()))
	if _, known, any := r.kernel.class("10.0.0.9"); known || !any {
		t.Error("the rules know a pod that the API does not")
	}
	// The next process knows all sandboxes from the ledger, some of them without their pod, and writes the rules anew.
	_, err := api.Client.CoreV1().Pods("shop").Patch(t.Context(), "web", "application/merge-patch+json",
		[]byte(`{"status":{"phase":"Running","podIP":"10.0.0.1","podIPs":[{"ip":"10.0.0.1"}]}}`), metav1.PatchOptions{}, "status")
	r.must(err)
	r.stop()
	r.start()
	web.UID = ""
	r.role.Connecting(web)
	r.becomes(web, true)
}

// TestAKernelThatCannotIsLoud: pods run, and each policy has an event.
func TestAKernelThatCannotIsLoud(t *testing.T) {
	api := apitest.Start(t)
	r := newRig(t, api)
	r.kernel.fail(fmt.Errorf("no nf_tables: %w", errdefs.ErrFailedPrecondition))
	r.namespace("shop")
	r.policy("shop", "deny", "web")
	r.must(r.role.Connecting(r.pod("shop", "web", "web", 1))(t.Context()))
	if err := r.role.Unable(); err == nil {
		t.Error("the role does not say that it is unable")
	}
	harness.Eventually(t, "the policy has an event", func() (bool, string) {
		list, err := api.Client.CoreV1().Events("shop").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=" + NotEnforced})
		r.must(err)
		for _, e := range list.Items {
			if e.InvolvedObject.Kind == "NetworkPolicy" && e.InvolvedObject.Name == "deny" && strings.Contains(e.Message, "no nf_tables") {
				return true, ""
			}
		}
		return false, fmt.Sprint(list.Items)
	})
	r.kernel.fail(nil)
	r.hasRules(true)
	harness.Eventually(t, "the role is able again", func() (bool, string) { return r.role.Unable() == nil, "" })
}
