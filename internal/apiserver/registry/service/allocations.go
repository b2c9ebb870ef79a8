package service

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/util/dryrun"

	"monopod.dev/monopod/internal/apiserver/registry/service/alloc"
)

// Allocations says which service has which addresses and node ports. Of an address there is an IPAddress, which is made before the service is stored and deleted
// after the service is gone: it is what gives the address to one service only. Of node ports the stored services are the only durable state, from which it
// is made anew at each start, before the first change of a service.
type Allocations struct {
	addresses *alloc.Book
	// ranges are those that services have by the configuration, cidrs all that there are.
	ranges Ranges
	cidrs  cidrs
	ports  *alloc.Pool[uint16]
	// portRange is as messages have it.
	portRange string
	shared    bool
	log       *slog.Logger
	// services is where services are stored, ips where IPAddresses are.
	services *genericregistry.Store
	ips      Storage
	// lock is that of all who give out the same node ports; nil: nobody else does.
	lock func(context.Context) (unlock func(), err error)

	// filling has Fill once at a time.
	filling sync.Mutex
	// filled is closed when it is known who has what. at are the versions of the store at which that was, from which what has changed is followed; they are
	// written before that.
	filled chan struct{}
	at     versions

	mu sync.Mutex
	// doubt: a request ended without its outcome being known, or there is what nobody may have; the last time that this was so.
	doubt time.Time
	// open: a request for a service ended without its outcome being known, the last time that this was so.
	open time.Time
}

// NewAllocations makes Allocations of which nothing is given out yet. The resource services is opened with them (Given).
func NewAllocations(cfg Config) *Allocations {
	book := alloc.NewBook()
	return &Allocations{
		addresses: book, ranges: cfg.Ranges, ips: cfg.Storages.Addresses,
		cidrs: cidrs{configured: cfg.Ranges, storage: cfg.Storages.Ranges, status: cfg.Storages.Status, book: book, log: cfg.Log},
		ports: alloc.New(alloc.Ports(cfg.FirstNodePort, cfg.LastNodePort)), portRange: fmt.Sprintf("%d-%d", cfg.FirstNodePort, cfg.LastNodePort),
		shared: cfg.Shared, lock: cfg.Lock, log: cfg.Log, filled: make(chan struct{}),
	}
}

// alone takes the lock, and notes which node ports services have got and lost by others meanwhile.
func (a *Allocations) alone(ctx context.Context) (unlock func(), err error) {
	if a.lock == nil {
		return func() {}, nil
	}
	if unlock, err = a.lock(ctx); err != nil {
		return nil, err
	}
	clock := a.ports.Clock()
	services, err := a.listServices(ctx, "")
	if err != nil {
		unlock()
		return nil, err
	}
	ports := portOwners(services)
	a.mu.Lock()
	certain := time.Since(a.open) > doubtTime
	a.mu.Unlock()
	if certain { // else a service may yet come to be stored
		a.ports.Settle(clock, ports)
	}
	a.ports.Fill(ports)
	return unlock, nil
}

// portOwners are the services that have node ports, by these.
func portOwners(services []corev1.Service) map[uint16]string {
	owners := map[uint16]string{}
	for i := range services {
		for _, p := range portsOf(&services[i]) {
			owners[p] = string(services[i].UID)
		}
	}
	return owners
}

// beginCreate is the store's hook: what a new service gets is claimed before it is stored.
func (a *Allocations) beginCreate(ctx context.Context, obj runtime.Object, _ *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
	s := obj.(*corev1.Service)
	if s.Namespace == "" { // else the handlers of requests have said so; the store does later
		s.Namespace = genericrequest.NamespaceValue(ctx)
	}
	return a.begin(ctx, s, nil)
}

// beginUpdate is the same for a service that replaces another.
func (a *Allocations) beginUpdate(ctx context.Context, obj, old runtime.Object, _ *metav1.UpdateOptions) (genericregistry.FinishFunc, error) {
	return a.begin(ctx, obj.(*corev1.Service), old.(*corev1.Service))
}

// afterDelete is the store's hook: a service is gone.
func (a *Allocations) afterDelete(obj runtime.Object, options *metav1.DeleteOptions) {
	if options == nil || !dryrun.IsDryRun(options.DryRun) {
		a.release(obj.(*corev1.Service), nil)
	}
}

// release gives back what a service had and, where it is still there, has no more.
func (a *Allocations) release(had, has *corev1.Service) {
	kept, keptPorts := map[netip.Addr]bool{}, map[uint16]bool{}
	if has != nil {
		for _, ip := range addressesOf(has) {
			kept[ip] = true
		}
		for _, p := range portsOf(has) {
			keptPorts[p] = true
		}
	}
	for _, ip := range addressesOf(had) {
		if !kept[ip] {
			a.giveBack(ip, parentOf(had))
		}
	}
	for _, p := range portsOf(had) {
		if !keptPorts[p] {
			a.ports.Release(string(had.UID), p)
		}
	}
}

// begin completes a service and claims what it is to get, for the request that the context is of. The store may call it more than once for a request.
func (a *Allocations) begin(ctx context.Context, s, old *corev1.Service) (genericregistry.FinishFunc, error) {
	t := transactionOf(ctx)
	if t == nil {
		return func(context.Context, bool) {}, nil // a subresource: it changes nothing of the spec
	}
	t.drop()
	t.owner = string(s.UID)
	agree(s, old)
	if old != nil {
		t.owner = string(old.UID) // a client's manifest has none
		drop(s, old)
		keep(s, old)
	}
	errs := completeFamilies(s, old, a.ranges.families)
	if len(errs) == 0 {
		// What is wrong as it stands is told by the rules, and gets nothing.
		if errs = validate(s); len(errs) > 0 {
			errs = nil
		} else if errs = a.claimPorts(t, s); len(errs) == 0 {
			// An address is an object in the store: it comes last, when nothing else is in the way.
			var err error
			if errs, err = a.claimAddresses(ctx, t, s, old); err != nil {
				t.drop()
				return nil, err
			}
		}
		if len(errs) == 0 {
			t.had, t.has = old, s
		}
	}
	if len(errs) > 0 {
		t.drop()
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), s.Name, errs)
	}
	return func(context.Context, bool) {}, nil // the end of the request finishes it
}

// claimAddresses gives a service the addresses that it has not yet. An error is that of the store.
func (a *Allocations) claimAddresses(ctx context.Context, t *transaction, s, old *corev1.Service) (errs field.ErrorList, failed error) {
	if !needsClusterIP(s) || isHeadless(s) {
		return nil, nil
	}
	had := map[netip.Addr]bool{}
	if old != nil {
		for _, ip := range addressesOf(old) {
			had[ip] = true
		}
	}
	at := field.NewPath("spec", "clusterIPs")
	for i, family := range s.Spec.IPFamilies {
		var address netip.Addr
		var err error
		named := i < len(s.Spec.ClusterIPs)
		if named {
			if address = netip.MustParseAddr(s.Spec.ClusterIPs[i]); had[address] { // validated
				continue
			}
			err = a.take(ctx, t, s, address)
		} else {
			address, err = a.next(ctx, t, s, family)
		}
		ranges := a.addresses.Ranges(family == corev1.IPv4Protocol)
		if ranges == "" {
			ranges = "a ServiceCIDR that is ready, of which there is none of " + string(family)
		}
		switch {
		case errors.Is(err, alloc.ErrOutside):
			err = fmt.Errorf("the provided IP (%s) is not in the valid range. The range of valid IPs is %s", address, ranges)
		case errors.Is(err, alloc.ErrTaken):
			err = errors.New("provided IP is already allocated")
		case errors.Is(err, alloc.ErrFull):
		case err != nil:
			return nil, err
		}
		if err != nil && !named {
			return append(errs, field.InternalError(at, fmt.Errorf("failed to allocate a serviceIP of %s: %w; delete services or add a ServiceCIDR", ranges, err))), nil
		}
		if err != nil {
			return append(errs, field.Invalid(at, s.Spec.ClusterIPs, fmt.Sprintf("failed to allocate IP %s: %v", address, err))), nil
		}
		if !named {
			s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, address.String())
		}
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	return errs, nil
}

func (a *Allocations) claimPorts(t *transaction, s *corev1.Service) (errs field.ErrorList) {
	claim := func(port *int32, at *field.Path) {
		var claim *alloc.Claim[uint16]
		var err error
		named := *port != 0
		if named {
			claim, err = a.ports.Take(t.owner, uint16(*port)) // validated
		} else {
			claim, err = a.ports.Next(t.owner)
		}
		switch {
		case errors.Is(err, alloc.ErrOutside):
			errs = append(errs, field.Invalid(at, *port, "provided port is not in the valid range. The range of valid ports is "+a.portRange))
		case errors.Is(err, alloc.ErrTaken):
			errs = append(errs, field.Invalid(at, *port, "provided port is already allocated"))
		case err != nil:
			errs = append(errs, field.InternalError(at, fmt.Errorf("failed to allocate a nodePort of %s: %w; delete services", a.portRange, err)))
		case claim != nil:
			t.claims = append(t.claims, claim)
			*port = int32(claim.Value)
		}
	}
	shared := map[numbered]int32{}
	for i := range s.Spec.Ports {
		p, at := &s.Spec.Ports[i], field.NewPath("spec", "ports").Index(i).Child("nodePort")
		if p.NodePort == 0 && !needsNodePort(s) || !mayHaveNodePort(s) {
			continue
		}
		// The ports of one number, as DNS has them of two protocols, are reached by one number on the node too.
		for protocol, n := range shared {
			if p.NodePort == 0 && protocol.port == p.Port && protocol.protocol != p.Protocol && !usesNodePort(s, p.Protocol, n) {
				p.NodePort = n
			}
		}
		claim(&p.NodePort, at)
		shared[numbered{p.Protocol, p.Port}] = p.NodePort
	}
	if needsHealthCheckPort(s) {
		claim(&s.Spec.HealthCheckNodePort, field.NewPath("spec", "healthCheckNodePort"))
	}
	return errs
}

func usesNodePort(s *corev1.Service, protocol corev1.Protocol, port int32) bool {
	for _, p := range s.Spec.Ports {
		if p.Protocol == protocol && p.NodePort == port {
			return true
		}
	}
	return false
}

func addressesOf(s *corev1.Service) (all []netip.Addr) {
	for _, ip := range s.Spec.ClusterIPs {
		if addr, err := netip.ParseAddr(ip); err == nil { // not None
			all = append(all, addr)
		}
	}
	return all
}

func portsOf(s *corev1.Service) (all []uint16) {
	for _, p := range s.Spec.Ports {
		if p.NodePort > 0 {
			all = append(all, uint16(p.NodePort)) // validated
		}
	}
	if p := s.Spec.HealthCheckNodePort; p > 0 {
		all = append(all, uint16(p)) // validated
	}
	return all
}
