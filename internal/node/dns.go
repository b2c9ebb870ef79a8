package node

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/dns"
	"monopod.dev/monopod/internal/dns/address"
	"monopod.dev/monopod/internal/dns/hostnames"
)

// resolvConf says which name servers the host asks.
const resolvConf = "/etc/resolv.conf"

// dnsRole is the cluster's DNS with its addresses on the host.
type dnsRole struct {
	server    *dns.Server
	address   *address.Keeper
	hostNames *hostnames.Host
	// placed says why the addresses are not the host's.
	placed error
}

// openDNS opens the cluster's DNS: questions wait from then on until it runs. A node works without it, as it does where it is switched off (nil): then pods
// ask the host's name servers, and the status says why. place is to be called next, and then usableDNS.
func (o *Options) openDNS(ctx context.Context) *dnsRole {
	log := o.Log.With("role", "dns")
	if o.Config.DNS.Server == config.Disabled {
		if err := o.removeDNS(ctx); err != nil {
			log.ErrorContext(ctx, "what an earlier start has made for the cluster's DNS is not all taken away", "error", err)
		}
		return nil
	}
	r, err := o.newDNS(ctx, log)
	if err != nil {
		o.noDNS(ctx, err)
		return nil
	}
	return r
}

func (o *Options) noDNS(ctx context.Context, err error) {
	o.dns, o.dnsProblem = nil, err
	o.Log.ErrorContext(ctx, "there is no DNS of the cluster; pods ask the host's name servers", "role", "dns", "error", err)
}

// place makes the addresses the host's. It waits for the disk, so it is done beside other work.
func (r *dnsRole) place() {
	if r != nil {
		r.placed = r.address.Ensure()
	}
}

// usableDNS is the role, or nil when it cannot have its addresses.
func (o *Options) usableDNS(ctx context.Context, r *dnsRole) *dnsRole {
	if r == nil || r.placed == nil {
		return r
	}
	o.noDNS(ctx, errors.Join(r.placed, r.abandon()))
	return nil
}

func (o *Options) newDNS(ctx context.Context, log *slog.Logger) (*dnsRole, error) {
	c := o.Config
	ranges, err := serviceRanges(c)
	if err != nil {
		return nil, err
	}
	addresses := tenth(ranges)
	var upstreams []netip.AddrPort
	for _, u := range c.DNS.Upstreams {
		at, err := config.Upstream(u)
		if err != nil {
			return nil, fmt.Errorf("dns.upstreams: %w", err)
		}
		upstreams = append(upstreams, at)
	}
	r := &dnsRole{}
	if r.server, err = dns.New(ctx, dns.Config{
		Domain: c.Agent.ClusterDomain, Addresses: addresses, Port: dns.Port, Services: ranges, Upstreams: upstreams, ResolvConf: resolvConf, Log: log,
	}); err != nil {
		return nil, err
	}
	if r.address, err = o.dnsAddress(addresses, log); err != nil {
		r.close()
		return nil, err
	}
	r.hostNames = HostNames(c, log)
	o.dns = addresses
	return r, nil
}

func (o *Options) dnsAddress(addresses []netip.Addr, log *slog.Logger) (*address.Keeper, error) {
	return address.New(address.Config{Dir: dnsDir(o.Config), Link: dnsLink(o.Config.Network.Bridge), Addresses: addresses, Log: log})
}

// run serves until ctx ends.
func (r *dnsRole) run(kube *rest.Config, ready <-chan struct{}) func(context.Context) error {
	return func(ctx context.Context) error {
		defer r.close()
		if !await(ctx, ready) {
			return nil
		}
		again := make(chan struct{}, 1)
		tasks, ctx := errgroup.WithContext(ctx)
		tasks.Go(func() error { return r.server.Run(ctx, kube) })
		tasks.Go(func() error {
			return r.address.Run(ctx, func() {
				select {
				case again <- struct{}{}:
				default:
				}
			})
		})
		tasks.Go(func() error { return r.hostNames.Keep(ctx, again) })
		return tasks.Wait()
	}
}

// abandon takes back what a start that fails has made, and closes.
func (r *dnsRole) abandon() error {
	if r == nil {
		return nil
	}
	defer r.close()
	if r.address.Fresh() {
		return r.address.Remove()
	}
	return nil
}

// close gives the sockets back; the addresses stay, so that who asks while the node is stopped hears at once that nobody answers.
func (r *dnsRole) close() {
	if r == nil {
		return
	}
	r.server.Close()
	if r.address != nil {
		r.address.Close()
	}
}

// removeDNS takes away what the cluster's DNS has made on the host, whichever start made it.
func (o *Options) removeDNS(ctx context.Context) error {
	log := o.Log.With("role", "dns")
	_, err := HostNames(o.Config, log).Disable(ctx)
	keeper, kerr := o.dnsAddress(nil, log)
	if kerr != nil {
		return errors.Join(err, kerr)
	}
	defer keeper.Close()
	return errors.Join(err, keeper.Remove())
}

// clusterDNS are the servers that pods ask.
func (o *Options) clusterDNS() []string {
	if given := o.Config.Agent.ClusterDNS; len(given) > 0 {
		return given
	}
	var all []string
	for _, a := range o.dns {
		all = append(all, a.String())
	}
	return all
}

// HostNames is what makes the cluster's names resolve on the machine itself, of the node with this configuration.
func HostNames(c *v1alpha1.NodeConfiguration, log *slog.Logger) *hostnames.Host {
	return hostnames.New(hostnames.Config{
		Dir: dnsDir(c), ResolvConf: resolvConf, Owner: c.Network.Bridge, Domain: c.Agent.ClusterDomain, Servers: DNSAddresses(c), Link: dnsLink(c.Network.Bridge), Log: log,
	})
}

// DNSAddresses are those of the cluster's DNS by a configuration.
func DNSAddresses(c *v1alpha1.NodeConfiguration) []netip.Addr {
	ranges, err := serviceRanges(c)
	if err != nil {
		return nil // a configuration that is not valid
	}
	return tenth(ranges)
}

func dnsDir(c *v1alpha1.NodeConfiguration) string { return filepath.Join(c.DataDir, "dns") }

// dnsLink is the name of the interface that has the addresses.
func dnsLink(bridge string) string {
	const suffix, most = "-dns", 15
	if len(bridge)+len(suffix) <= most {
		return bridge + suffix
	}
	sum := sha256.Sum256([]byte(bridge))
	return "mpdns" + hex.EncodeToString(sum[:5])
}

func serviceRanges(c *v1alpha1.NodeConfiguration) (all []netip.Prefix, err error) {
	for _, cidr := range c.APIServer.ServiceCIDRs {
		r, err := netip.ParsePrefix(cidr)
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}

// tenth are the tenth addresses of ranges, which clusters' DNS has by custom. The smallest range has fourteen.
func tenth(ranges []netip.Prefix) (all []netip.Addr) {
	for _, r := range ranges {
		a := r.Masked().Addr()
		for range 10 {
			a = a.Next()
		}
		all = append(all, a)
	}
	return all
}
