package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"

	"monopod.dev/monopod/api/config/v1alpha1"
	"monopod.dev/monopod/internal/config"
	"monopod.dev/monopod/internal/dns"
	"monopod.dev/monopod/internal/dns/address"
	"monopod.dev/monopod/internal/dns/hostnames"
	"monopod.dev/monopod/internal/node/status"
)

// resolvConf says which name servers the host asks.
const resolvConf = "/etc/resolv.conf"

// dnsRole is the cluster's DNS with its addresses on the host. A node works without it, as it does where it is switched off: then pods ask the host's name servers,
// and the status says why.
type dnsRole struct {
	*process
	// addresses are those of the DNS that this process serves; none: it serves none. problem says why it serves none though it should.
	addresses []netip.Addr
	problem   error

	server    *dns.Server
	address   *address.Keeper
	hostNames *hostnames.Host
	closed    sync.Once
}

// role is the DNS itself. Questions wait from when it is open until it answers.
func (d *dnsRole) role() role {
	return role{name: "dns", open: d.open, undo: d.undo, close: func() error { d.close(); return nil }, remove: d.remove}
}

// addressRole makes the addresses the host's. It waits for the disk, so it opens beside others; what it has made is the DNS' own to take back.
func (d *dnsRole) addressRole() role {
	return role{name: "dns", open: func(ctx context.Context) error {
		if d.address == nil {
			return nil
		}
		if err := d.address.Ensure(); err != nil {
			d.fails(ctx, errors.Join(err, d.undo(ctx)))
		}
		return nil
	}}
}

// answers is the DNS as it runs, by what the API says.
func (d *dnsRole) answers(api *apiRole) role {
	return role{name: "dns", run: func(ctx context.Context) error {
		if !d.serves() {
			return idle(ctx)
		}
		defer d.close()
		if !await(ctx, api.ready()) {
			return nil
		}
		return d.run(ctx, api.controllersConfig())
	}}
}

// serves says whether the cluster has a DNS here.
func (d *dnsRole) serves() bool { return d.server != nil && d.problem == nil }

// told is what the administration socket tells of; it is for when the role is open.
func (d *dnsRole) told() *status.DNS {
	told := &status.DNS{Problem: d.problem}
	if d.serves() {
		told.Address, told.Ready = d.server.Addr().String(), d.server.Ready()
	}
	return told
}

func (d *dnsRole) log() *slog.Logger { return d.Log.With("role", "dns") }

// open never fails: without the DNS the rest goes on.
func (d *dnsRole) open(ctx context.Context) error {
	if d.Config.DNS.Server == config.Disabled {
		if err := d.remove(ctx); err != nil {
			d.log().ErrorContext(ctx, "what an earlier start has made for the cluster's DNS is not all taken away", "error", err)
		}
		return nil
	}
	if err := d.make(ctx); err != nil {
		d.close()
		d.fails(ctx, err)
	}
	return nil
}

func (d *dnsRole) fails(ctx context.Context, err error) {
	d.problem = err
	d.log().ErrorContext(ctx, "there is no DNS of the cluster; pods ask the host's name servers", "error", err)
}

func (d *dnsRole) make(ctx context.Context) error {
	c := d.Config
	ranges, err := serviceRanges(c)
	if err != nil {
		return err
	}
	addresses := tenth(ranges)
	var upstreams []netip.AddrPort
	for _, u := range c.DNS.Upstreams {
		at, err := config.Upstream(u)
		if err != nil {
			return fmt.Errorf("dns.upstreams: %w", err)
		}
		upstreams = append(upstreams, at)
	}
	server, err := dns.New(ctx, dns.Config{
		Domain: c.Agent.ClusterDomain, Addresses: addresses, Port: dns.Port, Services: ranges, Upstreams: upstreams, ResolvConf: resolvConf, Log: d.log(),
	})
	if err != nil {
		return err
	}
	d.server = server
	if d.address, err = d.keeper(addresses); err != nil {
		return err
	}
	d.hostNames = HostNames(c, d.log())
	d.addresses = addresses
	return nil
}

func (d *dnsRole) keeper(addresses []netip.Addr) (*address.Keeper, error) {
	return address.New(address.Config{Dir: dnsDir(d.Config), Link: d.networks.DNSLink(), Addresses: addresses, Log: d.log()})
}

// run serves until ctx ends.
func (d *dnsRole) run(ctx context.Context, kube *rest.Config) error {
	again := make(chan struct{}, 1)
	tasks, ctx := errgroup.WithContext(ctx)
	tasks.Go(func() error { return d.server.Run(ctx, kube) })
	tasks.Go(func() error {
		return d.address.Run(ctx, func() {
			select {
			case again <- struct{}{}:
			default:
			}
		})
	})
	tasks.Go(func() error { return d.hostNames.Keep(ctx, again) })
	return tasks.Wait()
}

// undo takes back what a start that fails has made, and closes.
func (d *dnsRole) undo(context.Context) error {
	if d.address == nil || d.problem != nil {
		return nil
	}
	defer d.close()
	if d.address.Fresh() {
		return d.address.Remove()
	}
	return nil
}

// close gives the sockets back; the addresses stay, so that who asks while the node is stopped hears at once that nobody answers.
func (d *dnsRole) close() {
	d.closed.Do(func() {
		if d.server != nil {
			d.server.Close()
		}
		if d.address != nil {
			d.address.Close()
		}
	})
}

// remove takes away what the cluster's DNS has made on the host, whichever start made it.
func (d *dnsRole) remove(ctx context.Context) error {
	_, err := HostNames(d.Config, d.log()).Disable(ctx)
	keeper, kerr := d.keeper(nil)
	if kerr != nil {
		return errors.Join(err, kerr)
	}
	defer keeper.Close()
	return errors.Join(err, keeper.Remove())
}

// servers are those that pods ask.
func (d *dnsRole) servers() []string {
	if given := d.Config.Agent.ClusterDNS; len(given) > 0 {
		return given
	}
	var all []string
	if d.serves() {
		for _, a := range d.addresses {
			all = append(all, a.String())
		}
	}
	return all
}

// HostNames is what makes the cluster's names resolve on the machine itself, of the node with this configuration.
func HostNames(c *v1alpha1.NodeConfiguration, log *slog.Logger) *hostnames.Host {
	pods := networksOf(c)
	return hostnames.New(hostnames.Config{
		Dir: dnsDir(c), ResolvConf: resolvConf, Owner: pods.Mark(), Domain: c.Agent.ClusterDomain, Servers: DNSAddresses(c), Link: pods.DNSLink(), Log: log,
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
