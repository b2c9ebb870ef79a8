package sandbox

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/containerd/errdefs"

	"monopod.dev/monopod/internal/host/netdev"
	"monopod.dev/monopod/internal/host/ns"
	"monopod.dev/monopod/internal/kit/ids"
	"monopod.dev/monopod/internal/kit/volatilefile"
)

// Lender knows which interfaces of the host containers have been given, and gives them back. It is safe for concurrent use.
type Lender struct {
	folders Folders
	bootID  string
	log     *slog.Logger
	mu      sync.Mutex // held to change a file
}

// NewLender returns a Lender for the sandboxes in folders.
func NewLender(folders Folders, bootID string, log *slog.Logger) *Lender {
	return &Lender{folders: folders, bootID: bootID, log: log}
}

// lent are the interfaces of the host that containers of a sandbox have been given, by the host's name: they are, or are about to be, in the
// sandbox's network namespace, where they stay when the container ends. It is in a file of the sandbox's folder, and of no longer use than
// that namespace.
type lent struct {
	BootID     string                   `json:"bootID"`
	Interfaces map[string]lentInterface `json:"interfaces"`
}

type lentInterface struct {
	// Name is what it is called in the sandbox.
	Name string `json:"name"`
	// Host is what it was on the host.
	Host netdev.State `json:"host"`
}

func (d *Lender) file(id ids.SandboxID) string {
	return filepath.Join(d.folders.Dir(id), "netdevices.json")
}

func (d *Lender) read(id ids.SandboxID) (map[string]lentInterface, error) {
	var l lent
	err := volatilefile.Read(d.file(id), &l)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("network interfaces of sandbox %s: %w", id, err)
	}
	if l.BootID != d.bootID {
		return nil, nil
	}
	return l.Interfaces, nil
}

// Lent are the host's interfaces that are in the sandbox's network namespace, with their names there.
func (d *Lender) Lent(rec *Record) (map[string]string, error) {
	all, err := d.read(rec.ID)
	if err != nil || len(all) == 0 {
		return nil, err
	}
	there := map[string]string{}
	for host, l := range all {
		has, err := netdev.Has(d.folders.Namespace(rec, ns.Network), l.Name)
		if err != nil {
			return nil, fmt.Errorf("network interfaces of sandbox %s: %w", rec.ID, err)
		}
		if has {
			there[host] = l.Name
		}
	}
	return there, nil
}

// Lend takes down that interfaces of the host are about to be moved to the sandbox's network namespace, with the names that they get there. One
// whose name the sandbox has already, and a sandbox in the node's network, are errdefs.ErrFailedPrecondition.
func (d *Lender) Lend(rec *Record, names map[string]string) error {
	if len(names) == 0 {
		return nil
	}
	if rec.HostNetwork() {
		return fmt.Errorf("network interfaces %q cannot be moved to the pod: it is in the node's network: %w", slices.Sorted(maps.Keys(names)), errdefs.ErrFailedPrecondition)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	all, err := d.read(rec.ID)
	if err != nil {
		return err
	}
	next := lent{BootID: d.bootID, Interfaces: maps.Clone(all)}
	if next.Interfaces == nil {
		next.Interfaces = map[string]lentInterface{}
	}
	for host, name := range names {
		has, err := netdev.Has(d.folders.Namespace(rec, ns.Network), name)
		if err != nil {
			return fmt.Errorf("network interfaces of sandbox %s: %w", rec.ID, err)
		}
		if has {
			return fmt.Errorf("network interface %s cannot be moved to the pod: that has another one called %s: %w", host, name, errdefs.ErrFailedPrecondition)
		}
		was, err := netdev.StateOf(host)
		if err != nil {
			return fmt.Errorf("network interface %s: %w", host, err)
		}
		next.Interfaces[host] = lentInterface{Name: name, Host: was}
	}
	if err := volatilefile.Write(d.file(rec.ID), next); err != nil {
		return fmt.Errorf("network interfaces of sandbox %s: %w", rec.ID, err)
	}
	return nil
}

// giveBack returns them to the host, before their namespace ends. What cannot be returned is left to the kernel, and keeps no sandbox from being
// stopped.
func (d *Lender) giveBack(rec *Record) {
	all, err := d.read(rec.ID)
	if err == nil && len(all) > 0 {
		var pinned bool
		if pinned, err = ns.Pinned(d.folders.namespaces(rec.ID), ns.Network); err == nil && !pinned {
			return
		}
	}
	errs := []error{err}
	for host, l := range all {
		errs = append(errs, netdev.Return(d.folders.Namespace(rec, ns.Network), l.Name, host, l.Host))
	}
	if err := errors.Join(errs...); err != nil {
		d.log.Warn("network interfaces of a pod could not be returned to the host; the kernel returns physical ones", "sandbox", rec.ID, "error", err)
	}
}
