package runtime_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"google.golang.org/grpc/codes"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// hostInterface makes an interface of the host that is up and has an address, and returns its name. It is an end of a pair, which a network
// namespace that ends takes with it.
func (n *node) hostInterface(address string) string {
	n.Helper()
	name := fmt.Sprintf("nd%d-%d", os.Getpid()%1000000, instances.Add(1))
	n.check(netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p"}))
	n.Cleanup(func() {
		if peer, err := netlink.LinkByName(name + "p"); err != nil {
			n.Errorf("the interface is gone, with its peer: %v", err)
		} else {
			n.check(netlink.LinkDel(peer))
		}
	})
	link, err := netlink.LinkByName(name)
	n.check(err)
	addr, err := netlink.ParseAddr(address)
	n.check(err)
	n.check(errors.Join(netlink.AddrAdd(link, addr), netlink.LinkSetUp(link)))
	return name
}

// wantOnHost: the interface is the host's, as it was; or it is not there.
func (n *node) wantOnHost(name, address string, want bool) {
	n.Helper()
	link, err := netlink.LinkByName(name)
	var none netlink.LinkNotFoundError
	switch {
	case !want && errors.As(err, &none):
		return
	case !want:
		n.Fatalf("interface %s is on the host: %v", name, err)
	}
	n.check(err)
	addresses, err := netlink.AddrList(link, netlink.FAMILY_V4)
	n.check(err)
	if len(addresses) != 1 || addresses[0].IPNet.String() != address || link.Attrs().Flags&1 == 0 {
		n.Errorf("interface %s: addresses %v, %s", name, addresses, link.Attrs().Flags)
	}
}

// A container that is started again, and one that comes after an init container, finds the network interface of its device in the pod, where the
// one before has left it. When the pod ends it is the host's again, under its name, with its addresses.
func TestCDINetDevices(t *testing.T) {
	n := newNode(t)
	const address = "198.51.100.7/24"
	nic := n.hostInterface(address)
	n.cdiSpec("x.json", cdiDevices("1.1.0", "", cdiDevice("nic", `"netDevices": [{"hostInterfaceName": "`+nic+`", "name": "fast0"}]`),
		cdiDevice("taken", `"netDevices": [{"hostInterfaceName": "`+nic+`", "name": "eth0"}]`)))
	container := func(attempt uint32) *cri.ContainerConfig {
		cfg := withCDI(shell("c", "ip -o -4 addr show dev fast0 | grep -o 'inet [0-9./]*'; cat /sys/class/net/fast0/flags"), "nic")
		cfg.Metadata.Attempt = attempt
		return cfg
	}
	sb := n.run("nic")
	_, err := n.tryCreate(sb, withCDI(shell("taken", sleeper), "taken"))
	wantCode(t, err, codes.FailedPrecondition, nic, "another one called eth0")
	n.wantOnHost(nic, address, true)
	for attempt := range uint32(3) {
		if out := n.output(sb, container(attempt)); out != "inet "+address+"\n0x1003" {
			t.Errorf("attempt %d: %q", attempt, out)
		}
		n.wantOnHost(nic, address, false)
		if attempt == 1 {
			n.restart()
		}
	}
	// Another pod cannot have it meanwhile.
	other := n.run("other")
	_, err = n.tryCreate(other, container(0))
	wantCode(t, err, codes.FailedPrecondition, "network interface "+nic+" does not exist")

	_, err = n.rt.StopPodSandbox(n.ctx, &cri.StopPodSandboxRequest{PodSandboxId: sb})
	n.check(err)
	n.wantOnHost(nic, address, true)
	if out := n.output(other, container(0)); !strings.HasPrefix(out, "inet "+address) {
		t.Errorf("%q", out)
	}
	n.removeSandbox(other)
	n.wantOnHost(nic, address, true)

	// A pod in the node's network has what the node has.
	cfg := n.sandboxConfig("host")
	cfg.Hostname = ""
	cfg.Linux.SecurityContext.NamespaceOptions.Network = cri.NamespaceMode_NODE
	resp, err := n.rt.RunPodSandbox(n.ctx, &cri.RunPodSandboxRequest{Config: cfg})
	n.check(err)
	_, err = n.tryCreate(resp.GetPodSandboxId(), container(0))
	wantCode(t, err, codes.FailedPrecondition, nic, "node's network")
}
