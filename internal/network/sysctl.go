package network

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/failpoint"
	"monopod.dev/monopod/internal/host/proc"
)

// Files of the host's sysctls. They show the network namespace of the thread that opens them.
const (
	ipForwardFile  = "/proc/sys/net/ipv4/ip_forward"
	ip6ForwardFile = "/proc/sys/net/ipv6/conf/all/forwarding"
	ip6Conf        = "/proc/sys/net/ipv6/conf"
)

// forwarding says whether the kernel forwards packets, by the family's file.
func forwarding(file string) (bool, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return false, fmt.Errorf("network: %w", err)
	}
	return strings.TrimSpace(string(raw)) != "0", nil
}

// hostHasIPv6 says whether the host has IPv6 and can forward it.
func hostHasIPv6() bool {
	if ipv6Off(nil, "all") || ipv6Off(nil, "default") {
		return false
	}
	f, err := os.OpenFile(ip6ForwardFile, os.O_WRONLY, 0) // opening changes nothing
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// enableForwarding switches forwarding on for the families of the ranges, and writes down before that it was off.
func (b *Bridge) enableForwarding() error {
	if err := b.noteBoot(); err != nil {
		return err
	}
	if err := b.noteOtherNodes(); err != nil {
		return err
	}
	for _, r := range b.servedRanges() {
		var err error
		if r.Addr().Is4() {
			err = b.switchOn(ipForwardFile, "net.ipv4.ip_forward", func(n *hostNote) { n.IPForward = true })
		} else {
			err = b.enableIPv6Forwarding()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// noteBoot begins a boot of the host: what was switched on in another one is not on any more, or somebody else has done it.
func (b *Bridge) noteBoot() error {
	boot, err := proc.BootID()
	if err != nil {
		return fmt.Errorf("network: %w", err)
	}
	note, err := b.note()
	if err != nil || note.Boot == boot {
		return err
	}
	if note.Boot != "" { // else it is of a version that did not write it down
		note.IPForward, note.IP6Forward, note.AcceptRA = false, false, nil
	}
	note.Boot = boot
	if err := b.notes.Put(b.name, note); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	return nil
}

// noteOtherNodes writes down what another node of this host has switched on: it was off before there was any.
func (b *Bridge) noteOtherNodes() error {
	var theirs forwardGuard
	err := b.withFirewall(func(fw *firewall) (err error) {
		theirs, err = fw.guardOfAnotherNode()
		return err
	})
	if err != nil {
		return err
	}
	note, err := b.note()
	if err != nil || (note.IPForward || !theirs.ip4) && (note.IP6Forward || !theirs.ip6) {
		return err
	}
	note.IPForward, note.IP6Forward = note.IPForward || theirs.ip4, note.IP6Forward || theirs.ip6
	if err := b.notes.Put(b.name, note); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	return nil
}

// switchOn writes 1 to the file if it says 0, and before that the note.
func (b *Bridge) switchOn(file, sysctl string, change func(*hostNote)) error {
	on, err := forwarding(file)
	if err != nil || on {
		return err
	}
	note, err := b.note()
	if err != nil {
		return err
	}
	change(&note)
	if err := b.notes.Put(b.name, note); err != nil {
		return fmt.Errorf("network: %w", err)
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

// enableIPv6Forwarding switches it on without taking the host's own way out: an interface that has its default route from
// router advertisements would lose it, unless it is told to go on listening to them (accept_ra 2).
func (b *Bridge) enableIPv6Forwarding() error {
	on, err := forwarding(ip6ForwardFile)
	if err != nil || on {
		return err
	}
	files, err := filepath.Glob(filepath.Join(ip6Conf, "*", "accept_ra"))
	if err != nil {
		return err
	}
	var listening []string
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		if name == "all" || name == "lo" || name == b.name || strings.HasPrefix(name, hostInterfacePrefix) {
			continue
		}
		if raw, err := os.ReadFile(file); err == nil && strings.TrimSpace(string(raw)) == "1" {
			listening = append(listening, name)
		}
	}
	note, err := b.note()
	if err != nil {
		return err
	}
	for _, name := range listening {
		if !slices.Contains(note.AcceptRA, name) {
			note.AcceptRA = append(note.AcceptRA, name)
		}
	}
	if err := b.notes.Put(b.name, note); err != nil {
		return fmt.Errorf("network: %w", err)
	}
	for _, name := range listening {
		if err := writeIPv6(name, "accept_ra", "2"); err != nil {
			return fmt.Errorf("network: %s would lose its IPv6 default route: %w; set net.ipv6.conf.%s.accept_ra to 2: %w", name, err, name, errdefs.ErrFailedPrecondition)
		}
	}
	return b.switchOn(ip6ForwardFile, "net.ipv6.conf.all.forwarding", func(n *hostNote) { n.IP6Forward = true })
}

// writeIPv6 sets an IPv6 sysctl of an interface. That the interface is gone, or has no IPv6, is no error.
func writeIPv6(name, sysctl, value string) error {
	err := os.WriteFile(filepath.Join(ip6Conf, name, sysctl), []byte(value+"\n"), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// isReadOnly says that sysctls cannot be written here: /proc/sys is mounted read-only, as in many containers.
func isReadOnly(err error) bool {
	return errors.Is(err, unix.EROFS) || errors.Is(err, os.ErrPermission)
}

// restoreForwarding switches forwarding off when this node has switched it on, and nothing else on the host forwards:
// another network of this kind, or of containers by other tools, has a NAT chain.
func (b *Bridge) restoreForwarding(ctx context.Context, fw *firewall) error {
	note, err := b.note()
	if err != nil || !note.IPForward && !note.IP6Forward {
		return err
	}
	needed, err := fw.othersForward(true)
	if err != nil {
		return err
	}
	if needed {
		b.log.InfoContext(ctx, "forwarding stays on: other networks on this host use it")
		return nil
	}
	var errs []error
	off := func(file string) {
		if err := os.WriteFile(file, []byte("0\n"), 0); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if note.IPForward {
		off(ipForwardFile)
	}
	if note.IP6Forward {
		off(ip6ForwardFile)
		for _, name := range note.AcceptRA {
			errs = append(errs, writeIPv6(name, "accept_ra", "1"))
		}
	}
	return errors.Join(errs...)
}
