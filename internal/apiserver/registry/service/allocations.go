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
	metainternalversion "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	genericrequest "k8s.io/apiserver/pkg/endpoints/request"
	genericregistry "k8s.io/apiserver/pkg/registry/generic/registry"
	"k8s.io/apiserver/pkg/util/dryrun"

	"monopod.dev/monopod/internal/apiserver/registry/service/alloc"
)

// Allocations says which service has which addresses and node ports. It is made anew from the stored services at each start, before the first change of
// a service: they are the only durable state.
type Allocations struct {
	families  []corev1.IPFamily
	addresses map[corev1.IPFamily]*alloc.Pool[netip.Addr]
	ranges    map[corev1.IPFamily]netip.Prefix
	// first is the address of the service kubernetes, by family.
	first map[corev1.IPFamily]netip.Addr
	ports *alloc.Pool[uint16]
	// portRange is as messages have it.
	portRange string
	log       *slog.Logger
	store     *genericregistry.Store
	// lock is Share's; nil: nobody else gives anything out.
	lock func(context.Context) (unlock func(), err error)

	mu     sync.Mutex
	filled bool
	// doubt: a request ended without its outcome being known, the last one at this time.
	doubt time.Time
}

// NewAllocations makes Allocations of which nothing is given out yet.
func NewAllocations(cfg Config, log *slog.Logger) (*Allocations, error) {
	a := &Allocations{
		addresses: map[corev1.IPFamily]*alloc.Pool[netip.Addr]{}, ranges: map[corev1.IPFamily]netip.Prefix{}, first: map[corev1.IPFamily]netip.Addr{},
		ports: alloc.New(alloc.Ports(cfg.FirstNodePort, cfg.LastNodePort)), portRange: fmt.Sprintf("%d-%d", cfg.FirstNodePort, cfg.LastNodePort), log: log,
	}
	for _, prefix := range cfg.Ranges {
		values, err := alloc.Addresses(prefix)
		if err != nil {
			return nil, err
		}
		family := familyOf(prefix.Addr().String())
		if a.addresses[family] != nil {
			return nil, fmt.Errorf("two ranges of services' addresses are of the family %s: use one of each", family)
		}
		a.families = append(a.families, family)
		a.addresses[family], a.ranges[family], a.first[family] = alloc.New(values), prefix, values.At(0)
	}
	if len(a.families) == 0 {
		return nil, errors.New("services have no range of addresses: name one, such as 10.43.0.0/16")
	}
	return a, nil
}

// First are the first addresses of the ranges, those of the service kubernetes.
func (a *Allocations) First() (all []netip.Addr) {
	for _, f := range a.families {
		all = append(all, a.first[f])
	}
	return all
}

// Share has this process change services only while it has the lock of all who give out the same addresses and ports. It is called before the first change.
func (a *Allocations) Share(lock func(context.Context) (unlock func(), err error)) { a.lock = lock }

// alone takes the lock, and notes what services have got and lost by others meanwhile.
func (a *Allocations) alone(ctx context.Context) (unlock func(), err error) {
	if a.lock == nil {
		return func() {}, nil
	}
	if unlock, err = a.lock(ctx); err != nil {
		return nil, err
	}
	h, err := a.stored(ctx, "")
	if err != nil {
		unlock()
		return nil, err
	}
	a.mu.Lock()
	certain := a.doubt.IsZero()
	a.mu.Unlock()
	for f, pool := range a.addresses {
		if certain { // else a service may yet come to be stored
			pool.Settle(pool.Clock(), h.addresses[f])
		}
		pool.Fill(h.addresses[f])
	}
	if certain {
		a.ports.Settle(a.ports.Clock(), h.ports)
	}
	a.ports.Fill(h.ports)
	return unlock, nil
}

// held are the values of services by their owners.
type held struct {
	addresses map[corev1.IPFamily]map[netip.Addr]string
	ports     map[uint16]string
}

// stored lists what the stored services have: with an empty version as the store has it now, with "0" as its cache does.
func (a *Allocations) stored(ctx context.Context, resourceVersion string) (held, error) {
	ctx = genericrequest.WithNamespace(ctx, "")
	list, err := a.store.List(ctx, &metainternalversion.ListOptions{ResourceVersion: resourceVersion})
	if err != nil {
		return held{}, fmt.Errorf("list the services: %w", err)
	}
	h := held{addresses: map[corev1.IPFamily]map[netip.Addr]string{}, ports: map[uint16]string{}}
	for _, f := range a.families {
		h.addresses[f] = map[netip.Addr]string{}
	}
	all := list.(*corev1.ServiceList).Items
	for i := range all {
		owner := string(all[i].UID)
		for _, ip := range addressesOf(&all[i]) {
			if in := h.addresses[familyOf(ip.String())]; in != nil {
				if in[ip] != "" {
					a.log.Error("two services have one address; delete one of them and make it anew", "address", ip, "namespace", all[i].Namespace, "service", all[i].Name)
				}
				in[ip] = owner
			}
		}
		for _, port := range portsOf(&all[i]) {
			h.ports[port] = owner
		}
	}
	return h, nil
}

// fill notes what the stored services have, once.
func (a *Allocations) fill(ctx context.Context) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.filled {
		return nil
	}
	// The cache has what was there before this process began, and no service changes before this.
	h, err := a.stored(ctx, "0")
	if err != nil {
		return err
	}
	for f, pool := range a.addresses {
		pool.Fill(h.addresses[f])
	}
	a.ports.Fill(h.ports)
	a.filled = true
	return nil
}

const (
	// doubtTime is after which a request whose outcome is not known has had one: the store's own time limits are seconds.
	doubtTime      = time.Minute
	settleInterval = 30 * time.Second
)

// Run takes back, until ctx ends, what services were to get that were not stored in the end.
func (a *Allocations) Run(ctx context.Context) {
	ticker := time.NewTicker(settleInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		a.mu.Lock()
		due := !a.doubt.IsZero() && time.Since(a.doubt) > doubtTime
		if due {
			a.doubt = time.Time{}
		}
		a.mu.Unlock()
		if !due {
			continue
		}
		if err := a.settle(ctx); err != nil && ctx.Err() == nil {
			a.log.Warn("addresses of services that may be free again stay taken for now", "error", err)
			a.inDoubt()
		}
	}
}

func (a *Allocations) inDoubt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.doubt = time.Now()
}

func (a *Allocations) settle(ctx context.Context) error {
	at := map[corev1.IPFamily]uint64{}
	for f, pool := range a.addresses {
		at[f] = pool.Clock()
	}
	ports := a.ports.Clock()
	h, err := a.stored(ctx, "")
	if err != nil {
		return err
	}
	for f, pool := range a.addresses {
		pool.Settle(at[f], h.addresses[f])
	}
	a.ports.Settle(ports, h.ports)
	return nil
}

// beginCreate is the store's hook: what a new service gets is claimed before it is stored.
func (a *Allocations) beginCreate(ctx context.Context, obj runtime.Object, _ *metav1.CreateOptions) (genericregistry.FinishFunc, error) {
	return a.begin(ctx, obj.(*corev1.Service), nil)
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
	owner := string(had.UID)
	for _, ip := range addressesOf(had) {
		if pool := a.addresses[familyOf(ip.String())]; pool != nil && !kept[ip] {
			pool.Release(owner, ip)
		}
	}
	for _, p := range portsOf(had) {
		if !keptPorts[p] {
			a.ports.Release(owner, p)
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
	errs := completeFamilies(s, old, a.families)
	if len(errs) == 0 {
		// What is wrong as it stands is told by the rules, and gets nothing.
		if errs = validate(s); len(errs) > 0 {
			errs = nil
		} else if errs = append(a.claimAddresses(t, s), a.claimPorts(t, s)...); len(errs) == 0 {
			t.had, t.has = old, s
		}
	}
	if len(errs) > 0 {
		t.drop()
		return nil, apierrors.NewInvalid(corev1.SchemeGroupVersion.WithKind("Service").GroupKind(), s.Name, errs)
	}
	return func(context.Context, bool) {}, nil // the end of the request finishes it
}

func (a *Allocations) claimAddresses(t *transaction, s *corev1.Service) (errs field.ErrorList) {
	if !needsClusterIP(s) || isHeadless(s) {
		return nil
	}
	at := field.NewPath("spec", "clusterIPs")
	for i, family := range s.Spec.IPFamilies {
		pool := a.addresses[family]
		var claim *alloc.Claim[netip.Addr]
		var err error
		named := i < len(s.Spec.ClusterIPs)
		if named {
			claim, err = pool.Take(t.owner, netip.MustParseAddr(s.Spec.ClusterIPs[i])) // validated
		} else {
			claim, err = pool.Next(t.owner)
		}
		switch {
		case errors.Is(err, alloc.ErrOutside):
			err = fmt.Errorf("the provided IP (%s) is not in the valid range. The range of valid IPs is %s", s.Spec.ClusterIPs[i], a.ranges[family])
		case errors.Is(err, alloc.ErrTaken):
			err = errors.New("provided IP is already allocated")
		}
		if err != nil && !named {
			return append(errs, field.InternalError(at, fmt.Errorf("failed to allocate a serviceIP of %s: %w; delete services or use a larger range", a.ranges[family], err)))
		}
		if err != nil {
			return append(errs, field.Invalid(at, s.Spec.ClusterIPs, fmt.Sprintf("failed to allocate IP %s: %v", s.Spec.ClusterIPs[i], err)))
		}
		if claim != nil {
			t.claims = append(t.claims, claim)
		}
		if !named {
			s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, claim.Value.String())
		}
	}
	s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
	return errs
}

func (a *Allocations) claimPorts(t *transaction, s *corev1.Service) (errs field.ErrorList) {
	claim := func(port *int32, at *field.Path) {
		var claim *alloc.Claim[uint16]
		var err error
		named := *port != 0
		if named {
			claim, err = a.ports.Take(t.owner, uint16(*port)) //nolint:gosec // validated
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
			all = append(all, uint16(p.NodePort)) //nolint:gosec // validated
		}
	}
	if p := s.Spec.HealthCheckNodePort; p > 0 {
		all = append(all, uint16(p)) //nolint:gosec // validated
	}
	return all
}
