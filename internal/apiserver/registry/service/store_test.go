package service_test

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/rest"

	"monopod.dev/monopod/internal/apiserver/etcd"
	"monopod.dev/monopod/internal/apiserver/registry/ipaddress"
	"monopod.dev/monopod/internal/apiserver/registry/service"
	"monopod.dev/monopod/internal/apiserver/registry/servicecidr"
	"monopod.dev/monopod/internal/apiserver/resource"
	"monopod.dev/monopod/internal/apiserver/scheme"
	"monopod.dev/monopod/internal/apiserver/store"
	"monopod.dev/monopod/test/harness"
)

func startEtcd(t *testing.T) *etcd.Server {
	t.Helper()
	dir, err := os.MkdirTemp("", "ip") // short: it holds a socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	e, err := etcd.Start(t.Context(), etcd.Config{DataDir: filepath.Join(dir, "d"), SocketDir: filepath.Join(dir, "s"), Tick: 10 * time.Millisecond, Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// part is what of an API server gives out addresses.
type part struct {
	t         *testing.T
	given     *service.Allocations
	services  service.Storage
	addresses service.Storage
}

// open opens a part on a store. It does nothing yet.
func open(t *testing.T, e *etcd.Server, shared bool, cidr string) *part {
	t.Helper()
	ranges, err := service.NewRanges([]netip.Prefix{netip.MustParsePrefix(cidr)})
	if err != nil {
		t.Fatal(err)
	}
	resources := []resource.Resource{service.Resource(), ipaddress.Resource(), servicecidr.Resource()}
	config := store.Config{Client: e.Client(), Versions: map[schema.GroupResource]schema.GroupVersion{}}
	var hooks []scheme.Hook
	for _, r := range resources {
		hooks = append(hooks, r.AddToScheme)
		config.Versions[r.Served()[0].GroupResource()] = r.Served()[0].GroupVersion()
	}
	set, err := scheme.New(hooks...)
	if err != nil {
		t.Fatal(err)
	}
	config.Codecs = set.Codecs
	if err := store.SetFeatures(); err != nil {
		t.Fatal(err)
	}
	s := store.New(config)
	t.Cleanup(s.Close)
	storages := resource.Storages{}
	if err := storages.Open(s, resources[1:]...); err != nil {
		t.Fatal(err)
	}
	networking := storages[networkingv1.SchemeGroupVersion]
	addresses := networking["ipaddresses"].(service.Storage)
	given := service.NewAllocations(service.Config{
		Ranges: ranges, FirstNodePort: 30000, LastNodePort: 30100, Shared: shared, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Storages: service.Storages{Addresses: addresses, Ranges: networking["servicecidrs"].(service.Storage), Status: networking["servicecidrs/status"].(rest.Updater)},
	})
	if err := storages.Open(s, service.Given(given)); err != nil {
		t.Fatal(err)
	}
	p := &part{t: t, given: given, services: storages[corev1.SchemeGroupVersion]["services"].(service.Storage), addresses: addresses}
	if err := s.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	return p
}

// run has the part do what an API server does.
func (p *part) run() {
	p.t.Helper()
	if err := p.given.Start(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(p.t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		p.given.Run(ctx)
	}()
	p.t.Cleanup(func() { cancel(); <-ended })
}

func inside(ctx context.Context) context.Context { return genericrequest.WithNamespace(ctx, "default") }

func (p *part) create(name, ip string) (*corev1.Service, error) {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeClusterIP, SessionAffinity: corev1.ServiceAffinityNone, ClusterIP: ip, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}},
	}}
	cluster := corev1.ServiceInternalTrafficPolicyCluster
	s.Spec.InternalTrafficPolicy = &cluster
	s.Spec.Ports[0].TargetPort.IntVal = 80
	rest.FillObjectMetaSystemFields(s)
	made, err := p.services.Create(inside(p.t.Context()), s, rest.ValidateAllObjectFunc, &metav1.CreateOptions{})
	if err != nil {
		return nil, err
	}
	return made.(*corev1.Service), nil
}

func (p *part) delete(of service.Storage, ctx context.Context, name string) {
	p.t.Helper()
	if _, _, err := of.Delete(ctx, name, rest.ValidateAllObjectFunc, &metav1.DeleteOptions{}); err != nil {
		p.t.Error(err)
	}
}

func list[L runtime.Object](p *part, of service.Storage) L {
	p.t.Helper()
	all, err := of.List(genericrequest.WithNamespace(p.t.Context(), ""), &metainternalversion.ListOptions{})
	if err != nil {
		p.t.Fatal(err)
	}
	return all.(L)
}

// agree wants an IPAddress for each service, its own, and no others.
func (p *part) agree() error {
	p.t.Helper()
	of := map[string]string{}
	for _, a := range list[*networkingv1.IPAddressList](p, p.addresses).Items {
		of[a.Name] = a.Spec.ParentRef.Name
	}
	for _, s := range list[*corev1.ServiceList](p, p.services).Items {
		if of[s.Spec.ClusterIP] != s.Name {
			return fmt.Errorf("the address %s of the service %s is that of %q", s.Spec.ClusterIP, s.Name, of[s.Spec.ClusterIP])
		}
		delete(of, s.Spec.ClusterIP)
	}
	if len(of) > 0 {
		return fmt.Errorf("nobody has these addresses: %v", of)
	}
	return nil
}

// TestTwoServers: two API servers give out addresses of one range at once, and nobody gets another's; what one gives back the other gives out.
func TestTwoServers(t *testing.T) {
	e := startEtcd(t)
	both := []*part{open(t, e, true, "10.9.0.0/27"), open(t, e, true, "10.9.0.0/27")}
	for _, p := range both {
		p.run()
	}
	var clients sync.WaitGroup
	for n := range 8 {
		p := both[n%2]
		clients.Go(func() {
			for i := range 25 {
				name, ip := fmt.Sprintf("s-%d-%d", n, i), ""
				if i%3 == 0 {
					ip = fmt.Sprintf("10.9.0.%d", 1+rand.IntN(30))
				}
				s, err := p.create(name, ip)
				if apierrors.IsInvalid(err) && ip != "" {
					continue // somebody has it
				}
				if err != nil {
					t.Error(err)
					return
				}
				if i < 22 { // some stay
					other := both[rand.IntN(2)] // who did not make it may not have heard of it yet
					other.delete(other.services, inside(t.Context()), s.Name)
				}
			}
		})
	}
	clients.Wait()
	if err := both[0].agree(); err != nil {
		t.Error(err)
	}
	// Both give out what is left, to the last address.
	left := 30 - len(list[*corev1.ServiceList](both[0], both[0].services).Items)
	for i := range left {
		harness.Eventually(t, "an address that is free is given out", func() (bool, string) {
			_, err := both[i%2].create(fmt.Sprint("last-", i), "")
			return err == nil, fmt.Sprint(err)
		})
	}
	for _, p := range both {
		if s, err := p.create("late", ""); err == nil {
			t.Errorf("a service has got the address %s of a range that is used up", s.Spec.ClusterIP)
		}
	}
	if err := both[1].agree(); err != nil {
		t.Error(err)
	}
}

// TestStoresOfOthers: services that have no IPAddress get one at a start, and IPAddresses that have no service go; meanwhile, too.
func TestStoresOfOthers(t *testing.T) {
	e := startEtcd(t)
	before := open(t, e, false, "10.9.0.0/24")
	if err := before.given.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		if _, err := before.create(fmt.Sprint("s-", i), fmt.Sprint("10.9.0.", 100+i)); err != nil {
			t.Fatal(err)
		}
	}
	cluster := genericrequest.WithNamespace(t.Context(), "")
	address := func(name, of string) {
		t.Helper()
		a := &networkingv1.IPAddress{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{
			networkingv1.LabelManagedBy: "ipallocator.k8s.io", networkingv1.LabelIPAddressFamily: "IPv4",
		}}, Spec: networkingv1.IPAddressSpec{ParentRef: &networkingv1.ParentReference{Resource: "services", Namespace: "default", Name: of}}}
		rest.FillObjectMetaSystemFields(a)
		if _, err := before.addresses.Create(cluster, a, rest.ValidateAllObjectFunc, &metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 30 {
		before.delete(before.addresses, cluster, fmt.Sprint("10.9.0.", 100+i))
	}
	address("10.9.0.100", "somebody-else")
	address("10.9.0.9", "nobody")

	after := open(t, e, false, "10.9.0.0/24")
	after.run()
	if err := after.agree(); err != nil {
		t.Error(err)
	}
	if _, err := after.create("heir", "10.9.0.9"); err != nil {
		t.Error(err)
	}
	if _, err := after.create("thief", "10.9.0.139"); !apierrors.IsInvalid(err) {
		t.Errorf("an address that a service has is given out: %v", err)
	}
	after.delete(after.addresses, cluster, "10.9.0.120")
	harness.Eventually(t, "an IPAddress that was deleted is there again", func() (bool, string) {
		err := after.agree()
		return err == nil, fmt.Sprint(err)
	})
	address("10.9.0.10", "nobody")
	if err := after.given.Repair(t.Context(), time.Now().Add(-time.Minute)); err != nil {
		t.Fatal(err)
	}
	if _, err := after.create("early", "10.9.0.10"); !apierrors.IsInvalid(err) {
		t.Errorf("an address whose service may be on its way is given out: %v", err)
	}
	if err := after.given.Repair(t.Context(), time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	if err := after.agree(); err != nil {
		t.Error(err)
	}
	if _, err := after.create("late", "10.9.0.10"); err != nil {
		t.Error(err)
	}
}
