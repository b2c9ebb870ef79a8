// Package hostnames makes the names of the cluster resolve on the machine itself: by systemd-resolved, where the machine's programs ask it, else
// by a marked block in /etc/resolv.conf.
//
// What is wished for is on disk (DIR/host.json) before anything is changed, and until everything is changed back, so that a crash in any line
// is mended by the next Enable, Disable or start of the node. All methods are idempotent, and may be called by several processes at a time.
// Nothing here needs the node to run; while it does, Keep puts back what others take away.
package hostnames

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/kit/atomicfile"
	"monopod.dev/monopod/internal/kit/failpoint"
)

// Config says which names, and where things are.
type Config struct {
	// Dir is the directory of the wish; it is made by Enable.
	Dir string
	// ResolvConf is /etc/resolv.conf.
	ResolvConf string
	// Owner tells the blocks of several nodes on one machine apart.
	Owner  string
	Domain string
	// Servers are the addresses of the cluster's DNS, Link the interface that has them.
	Servers []netip.Addr
	Link    string
	// Resolved is systemd-resolved; nil: the machine's.
	Resolved Resolved
	Log      *slog.Logger
}

// How says by what names are made to resolve.
type How string

// The ways.
const (
	ByResolved How = "systemd-resolved"
	ByFile     How = "resolv.conf"
)

// wish is what is on disk. Version 1.
type wish struct {
	Version int  `json:"version"`
	Enabled bool `json:"enabled"`
	How     How  `json:"how"`
	// Link is the interface whose settings were changed.
	Link string `json:"link,omitempty"`
}

// State is how it is.
type State struct {
	Enabled bool `json:"enabled"`
	How     How  `json:"how,omitempty"`
	// Place is what is, or would be, changed: a file or an interface.
	Place string `json:"place,omitempty"`
	// Waits: there is no interface yet; the node makes it when it starts, and then names resolve.
	Waits bool `json:"waits,omitempty"`
	// Changed: it was not so before.
	Changed bool `json:"-"`
}

// Host is the machine.
type Host struct {
	cfg Config
}

// New makes a Host, and changes nothing.
func New(cfg Config) *Host {
	if cfg.Resolved == nil {
		cfg.Resolved = bus{}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Host{cfg: cfg}
}

func (h *Host) file() string { return filepath.Join(h.cfg.Dir, "host.json") }

// lock has others wait who change the same.
func (h *Host) lock() (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(h.cfg.Dir, "host.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	return func() { f.Close() }, nil
}

// read returns the wish; nil: there is none.
func (h *Host) read() (*wish, error) {
	raw, err := os.ReadFile(h.file())
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil // see above
	}
	if err != nil {
		return nil, err
	}
	w := &wish{}
	if err := json.Unmarshal(raw, w); err != nil {
		return nil, fmt.Errorf("%s cannot be read: %w; remove it, and run monopod dns enable or disable again", h.file(), err)
	}
	return w, nil
}

func (h *Host) write(w wish) error {
	raw, err := json.Marshal(w)
	if err != nil {
		return err
	}
	return atomicfile.Write(h.file(), append(raw, '\n'), 0o600)
}

// stub is where systemd-resolved listens for programs that read resolv.conf.
const stub = "127.0.0.53"

// choose says by what names are made to resolve: by systemd-resolved where programs are sent to it, and it can have settings for the interface.
func (h *Host) choose() (How, error) {
	raw, err := os.ReadFile(h.cfg.ResolvConf)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return "", err
	}
	const loopback = "lo" // which systemd-resolved refuses
	for line := range bytes.Lines(raw) {
		if f := strings.Fields(string(line)); len(f) > 1 && f[0] == "nameserver" && f[1] == stub && h.cfg.Link != loopback {
			return ByResolved, nil
		}
	}
	return ByFile, nil
}

// Enable makes names resolve, now and at each start of the node.
func (h *Host) Enable(ctx context.Context) (State, error) {
	if err := os.MkdirAll(h.cfg.Dir, 0o700); err != nil {
		return State{}, err
	}
	unlock, err := h.lock()
	if err != nil {
		return State{}, err
	}
	defer unlock()
	before, err := h.read()
	if err != nil {
		return State{}, err
	}
	how, err := h.choose()
	if err != nil {
		return State{}, err
	}
	now := wish{Version: 1, Enabled: true, How: how}
	if how == ByResolved {
		now.Link = h.cfg.Link
	}
	if before != nil && before.How != now.How { // the machine asks others than before
		if _, err := h.undo(ctx, before); err != nil {
			return State{}, err
		}
	}
	if before == nil || *before != now {
		if err := h.write(now); err != nil {
			return State{}, err
		}
	}
	if err := failpoint.Hit("dns/host/wished"); err != nil {
		return State{}, err
	}
	s, err := h.do(ctx, &now)
	s.Changed = s.Changed || before == nil || *before != now
	return s, err
}

// do makes it so.
func (h *Host) do(ctx context.Context, w *wish) (State, error) {
	s := State{Enabled: true, How: w.How, Place: h.place(w)}
	if w.How == ByFile {
		var err error
		s.Changed, err = h.change(h.withBlock)
		return s, err
	}
	index, err := linkIndex(w.Link)
	if err != nil || index == 0 {
		s.Waits = err == nil
		return s, err
	}
	return s, h.cfg.Resolved.Set(ctx, index, h.cfg.Domain, h.cfg.Servers)
}

func (h *Host) place(w *wish) string {
	if w.How == ByResolved {
		return "interface " + w.Link
	}
	return h.cfg.ResolvConf
}

// Disable takes back what Enable has done.
func (h *Host) Disable(ctx context.Context) (State, error) {
	if _, err := os.Stat(h.cfg.Dir); errors.Is(err, os.ErrNotExist) {
		return State{}, nil
	}
	unlock, err := h.lock()
	if err != nil {
		return State{}, err
	}
	defer unlock()
	w, err := h.read()
	if err != nil || w == nil {
		return State{}, err
	}
	// From here on no start of the node puts it back.
	w.Enabled = false
	if err := h.write(*w); err != nil {
		return State{}, err
	}
	if err := failpoint.Hit("dns/host/unwished"); err != nil {
		return State{}, err
	}
	s, err := h.undo(ctx, w)
	if err != nil {
		return s, err
	}
	if err := os.Remove(h.file()); err != nil && !errors.Is(err, os.ErrNotExist) {
		return s, err
	}
	return s, nil
}

func (h *Host) undo(ctx context.Context, w *wish) (State, error) {
	s := State{How: w.How, Place: h.place(w), Changed: true}
	if w.How == ByFile {
		_, err := h.change(h.withoutBlock)
		return s, err
	}
	index, err := linkIndex(w.Link)
	if err != nil || index == 0 { // with the interface its settings are gone
		return s, err
	}
	return s, h.cfg.Resolved.Revert(ctx, index)
}

// Status says what is wished for.
func (h *Host) Status() (State, error) {
	w, err := h.read()
	if err != nil {
		return State{}, err
	}
	if w == nil || !w.Enabled {
		how, err := h.choose()
		return State{How: how, Place: h.place(&wish{How: how, Link: h.cfg.Link})}, err
	}
	s := State{Enabled: true, How: w.How, Place: h.place(w)}
	if w.How == ByResolved {
		index, err := linkIndex(w.Link)
		if err != nil {
			return s, err
		}
		s.Waits = index == 0
		return s, nil
	}
	raw, err := os.ReadFile(h.cfg.ResolvConf)
	s.Waits = !bytes.Equal(raw, h.withBlock(raw))
	return s, err
}
