package bridge

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/host/proc"
	"monopod.dev/monopod/internal/kit/failpoint"
	"monopod.dev/monopod/internal/network/lease"
	"monopod.dev/monopod/internal/network/links"
	"monopod.dev/monopod/internal/network/rules"
)

// forwarding is the host's switch, which this node turns on for its pods, and off again when nobody else needs it. What it has turned is written down
// before. Who calls it holds host.mu.
type forwarding struct {
	notes *notes
	// bridge is the name of the bridge, whose own sysctls are none of the host's.
	bridge string
	others others
	log    *slog.Logger
}

// others is what the firewall sees of others who forward packets on this host.
type others interface {
	// GuardOfAnotherNode says for which families another node of this host has switched forwarding on.
	GuardOfAnotherNode() (rules.Families, error)
	// OthersForward says whether somebody else needs forwarding; with nodes, also whether another node does.
	OthersForward(nodes bool) (bool, error)
}

// enable switches forwarding on for the families of the ranges, and writes down before that it was off.
func (f *forwarding) enable(ranges []netip.Prefix) error {
	if err := f.noteBoot(); err != nil {
		return err
	}
	if err := f.noteOtherNodes(); err != nil {
		return err
	}
	for _, r := range ranges {
		var err error
		if r.Addr().Is4() {
			err = f.switchOn(links.IPForwardFile, "net.ipv4.ip_forward", func(n *hostNote) { n.IPForward = true })
		} else {
			err = f.enableIPv6()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// missing says which switch is off that is to be on for the ranges.
func (f *forwarding) missing(ranges []netip.Prefix) error {
	for _, r := range ranges {
		file := links.IP6ForwardFile
		if r.Addr().Is4() {
			file = links.IPForwardFile
		}
		switch on, err := links.Forwards(file); {
		case err != nil:
			return err
		case !on:
			return fmt.Errorf("network: %s is 0; something switched it off: %w", file, errdefs.ErrUnavailable)
		}
	}
	return nil
}

// switchedOn says for which families this node has switched forwarding on.
func (f *forwarding) switchedOn() (rules.Families, error) {
	note, err := f.notes.get()
	return rules.Families{IP4: note.IPForward, IP6: note.IP6Forward}, err
}

// noteBoot begins a boot of the host: what was switched on in another one is not on any more, or somebody else has done it.
func (f *forwarding) noteBoot() error {
	boot, err := proc.BootID()
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	return f.notes.change(func(n *hostNote) bool {
		if n.Boot == boot {
			return false
		}
		if n.Boot != "" { // else it is of a version that did not write it down
			n.IPForward, n.IP6Forward, n.AcceptRA = false, false, nil
		}
		n.Boot = boot
		return true
	})
}

// noteOtherNodes writes down what another node of this host has switched on: it was off before there was any.
func (f *forwarding) noteOtherNodes() error {
	theirs, err := f.others.GuardOfAnotherNode()
	if err != nil {
		return err
	}
	return f.notes.change(func(n *hostNote) bool {
		before := *n
		n.IPForward, n.IP6Forward = n.IPForward || theirs.IP4, n.IP6Forward || theirs.IP6
		return n.IPForward != before.IPForward || n.IP6Forward != before.IP6Forward
	})
}

// switchOn writes 1 to the file if it says 0, and before that the note.
func (f *forwarding) switchOn(file, sysctl string, change func(*hostNote)) error {
	on, err := links.Forwards(file)
	if err != nil || on {
		return err
	}
	if err := f.notes.change(func(n *hostNote) bool { change(n); return true }); err != nil {
		return err
	}
	if err := failpoint.Hit("network/forwarding/noted"); err != nil {
		return err
	}
	if err := os.WriteFile(file, []byte("1\n"), 0); err != nil {
		return fmt.Errorf("network: pods need forwarding, and it cannot be switched on: %w; run sysctl -w %s=1 on the host: %w",
			err, sysctl, errdefs.ErrFailedPrecondition)
	}
	return failpoint.Hit("network/forwarding/on")
}

// enableIPv6 switches it on without taking the host's own way out: an interface that has its default route from
// router advertisements would lose it, unless it is told to go on listening to them (accept_ra 2).
func (f *forwarding) enableIPv6() error {
	on, err := links.Forwards(links.IP6ForwardFile)
	if err != nil || on {
		return err
	}
	files, err := filepath.Glob(filepath.Join(links.IP6Conf, "*", "accept_ra"))
	if err != nil {
		return err
	}
	var listening []string
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		if name == "all" || name == "lo" || name == f.bridge || strings.HasPrefix(name, lease.HostInterfacePrefix) {
			continue
		}
		if raw, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(raw)) == "1" {
			listening = append(listening, name)
		}
	}
	err = f.notes.change(func(n *hostNote) bool {
		for _, name := range listening {
			if !slices.Contains(n.AcceptRA, name) {
				n.AcceptRA = append(n.AcceptRA, name)
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	for _, name := range listening {
		if err := links.WriteIPv6(name, "accept_ra", "2"); err != nil {
			return fmt.Errorf("network: %s would lose its IPv6 default route: %w; set net.ipv6.conf.%s.accept_ra to 2: %w", name, err, name, errdefs.ErrFailedPrecondition)
		}
	}
	return f.switchOn(links.IP6ForwardFile, "net.ipv6.conf.all.forwarding", func(n *hostNote) { n.IP6Forward = true })
}

// restore switches forwarding off when this node has switched it on, and nothing else on the host forwards:
// another network of this kind, or of containers by other tools, has a NAT chain.
func (f *forwarding) restore(ctx context.Context) error {
	note, err := f.notes.get()
	if err != nil || !note.IPForward && !note.IP6Forward {
		return err
	}
	needed, err := f.others.OthersForward(true)
	if err != nil {
		return err
	}
	if needed {
		f.log.InfoContext(ctx, "forwarding stays on: other networks on this host use it")
		return nil
	}
	var errs []error
	off := func(file string) {
		if err := os.WriteFile(file, []byte("0\n"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if note.IPForward {
		off(links.IPForwardFile)
	}
	if note.IP6Forward {
		off(links.IP6ForwardFile)
		for _, name := range note.AcceptRA {
			errs = append(errs, links.WriteIPv6(name, "accept_ra", "1"))
		}
	}
	return errors.Join(errs...)
}
