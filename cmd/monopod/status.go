package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"monopod.dev/monopod/cmd/monopod/cli"
	"monopod.dev/monopod/internal/admin/client"
	"monopod.dev/monopod/internal/admin/protocol"
	"monopod.dev/monopod/internal/kit/oneline"
)

func newStatusCommand() *cobra.Command {
	var socket, format string
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show the state of the running node",
		Long: `Shows a running node on one screen: its roles and versions, pods, devices, images and disks, and every known
problem. It asks the node over its administration socket, which only root can reach. If roles were started
separately with one run directory ('monopod runtime', 'monopod node', 'monopod apiserver'), it asks all of
them and shows them as one node.

If something cannot be found out, the output says so: for example, 'monopod runtime' alone knows no pods. A
missing device is one that a container was granted, and that no CDI spec or device plugin defines any more.

Exit codes: 0 if the node has answered, whatever it says; 1 if no node runs or it does not answer; 2 for an
invalid command line. For scripts: .problems of -o json is empty if no problem is known.`,
		Example: `  monopod status
  monopod status -o json | jq -e '.problems == []'
  monopod status --admin-socket /run/other/admin.sock`,
		Args: cli.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := askStatus(cmd.Context(), socket)
			if err != nil {
				return err
			}
			if format != cli.AsTable {
				return cli.PrintValue(cmd.OutOrStdout(), format, s)
			}
			_, err = io.WriteString(cmd.OutOrStdout(), statusScreen(s, time.Now()))
			return err
		},
	}
	cli.AdminSocketFlag(cmd, &socket)
	cli.FormatFlag(cmd, &format, cli.AsTable, cli.AsJSON, cli.AsYAML)
	return cmd
}

// askStatus asks the process at a socket; where that is where a node is looked for, also those that run other roles of it in the same directory.
func askStatus(ctx context.Context, socket string) (protocol.Status, error) {
	sockets := []string{socket}
	if dir, name := filepath.Split(socket); name == protocol.SocketName {
		sockets = append(sockets, filepath.Join(dir, protocol.APIServerSocketName), filepath.Join(dir, protocol.RuntimeSocketName))
	}
	var all []protocol.Status
	var first error
	for _, path := range sockets {
		err := cli.WithNode(path, func(c *client.Client) error {
			s, err := c.Status(ctx)
			if err == nil {
				all = append(all, s)
			}
			return err
		})
		if first == nil {
			first = err
		}
		if err != nil && !notThere(err) {
			return protocol.Status{}, err
		}
	}
	if len(all) == 0 {
		return protocol.Status{}, first
	}
	return oneNode(all), nil
}

// notThere says that nobody serves a socket.
func notThere(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED)
}

// oneNode puts together what the processes of one node say. Where several know the same, the first is believed.
func oneNode(all []protocol.Status) protocol.Status {
	s := all[0]
	for _, o := range all[1:] {
		s.Versions.Kubernetes = cmp.Or(s.Versions.Kubernetes, o.Versions.Kubernetes)
		s.Versions.Executor = cmp.Or(s.Versions.Executor, o.Versions.Executor)
		s.Roles = append(s.Roles, o.Roles...)
		s.Pods, s.Devices, s.Images, s.Storage = cmp.Or(s.Pods, o.Pods), cmp.Or(s.Devices, o.Devices), cmp.Or(s.Images, o.Images), cmp.Or(s.Storage, o.Storage)
		s.Disks = with(s.Disks, o.Disks, func(a, b protocol.Disk) bool { return a.Path == b.Path }) // their use may have changed meanwhile
		s.Problems = with(s.Problems, o.Problems, func(a, b protocol.Problem) bool { return a == b })
		s.NotAsked = append(s.NotAsked, o.NotAsked...)
	}
	known := map[string]bool{"pods": s.Pods != nil, "devices": s.Devices != nil, "images": s.Images != nil}
	s.NotAsked = slices.DeleteFunc(s.NotAsked, func(u protocol.Unknown) bool {
		gone := known[u.What]
		known[u.What] = true // once is enough
		return gone
	})
	return s
}

// with adds what is not there yet.
func with[T any](all, more []T, same func(a, b T) bool) []T {
	for _, m := range more {
		if !slices.ContainsFunc(all, func(a T) bool { return same(a, m) }) {
			all = append(all, m)
		}
	}
	return all
}

// screen is lines of a key and what is said of it; the key is written once.
type screen struct {
	tw  *tabwriter.Writer
	key string
}

func (s *screen) row(key string, cells ...string) {
	if key == s.key {
		key = ""
	} else {
		s.key = key
	}
	for i := range cells {
		cells[i] = oneline.Of(cells[i])
	}
	fmt.Fprintf(s.tw, "%s\t%s\n", key, strings.Join(cells, "\t"))
}

func statusScreen(s protocol.Status, now time.Time) string {
	var b strings.Builder
	// Each part has columns of its own: a part ends where the writer is flushed.
	part := func(f func(*screen)) {
		w := &screen{tw: tabwriter.NewWriter(&b, 12, 0, 2, ' ', 0)}
		f(w)
		_ = w.tw.Flush() // into memory
	}
	part(func(w *screen) {
		w.row("NODE", fmt.Sprintf("%s, process %d, started %s", s.Node, s.PID, cli.HumanAge(s.Started, now)))
		w.row("VERSIONS", versionsLine(s.Versions))
	})
	part(func(w *screen) {
		for _, r := range s.Roles {
			w.row("ROLES", r.Name, r.State, r.Address)
		}
	})
	part(func(w *screen) {
		if p := s.Pods; p != nil {
			w.row("PODS", podsLine(*p))
		}
	})
	part(func(w *screen) { devicesPart(w, s.Devices) })
	part(func(w *screen) {
		if i := s.Images; i != nil {
			w.row("IMAGES", fmt.Sprintf("%d, %s on disk", i.Count, cli.HumanSize(i.Bytes)))
		}
	})
	part(func(w *screen) {
		for _, d := range s.Disks {
			w.row("DISK", d.Name, d.Path, fmt.Sprintf("%s used", cli.HumanSize(d.Used)), fmt.Sprintf("%s free of %s", cli.HumanSize(d.Free), cli.HumanSize(d.Size)))
		}
	})
	part(func(w *screen) {
		if v := s.Storage; v != nil {
			w.row("STORAGE", v.Directory, "sizes held by "+v.SizesHeldBy)
		}
	})
	part(func(w *screen) {
		for _, u := range s.NotAsked {
			w.row("NOT ASKED", u.What+": "+u.Why)
		}
		if len(s.Problems) == 0 {
			w.row("PROBLEMS", "none known")
		}
		for _, p := range s.Problems {
			w.row("PROBLEMS", p.About+": "+p.Message)
		}
	})
	return trimLines(b.String())
}

// trimLines takes the blanks off the lines' ends, which a table leaves where its last cells are empty.
func trimLines(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}

func versionsLine(v protocol.Versions) string {
	parts := []string{"monopod " + v.Monopod}
	if v.Executor != "" {
		parts = append(parts, "executor "+v.Executor)
	}
	if v.Kubernetes != "" {
		parts = append(parts, "Kubernetes API "+v.Kubernetes)
	}
	return strings.Join(append(parts, "kernel "+v.Kernel), ", ")
}

func podsLine(p protocol.Pods) string {
	line := fmt.Sprintf("%d running, %d pending, %d failed", p.Running, p.Pending, p.Failed)
	if p.Succeeded > 0 {
		line += fmt.Sprintf(", %d succeeded", p.Succeeded)
	}
	if p.Unknown > 0 {
		line += fmt.Sprintf(", %d unknown", p.Unknown)
	}
	return line
}

func devicesPart(w *screen, d *protocol.Devices) {
	if d == nil {
		return
	}
	if len(d.Resources) == 0 {
		w.row("DEVICES", "none")
		return
	}
	w.row("DEVICES", countsLine(d.Counts))
	for _, r := range d.Resources {
		w.row("DEVICES", r.Name+": "+countsLine(r.Counts))
	}
}

func countsLine(c protocol.Counts) string {
	line := fmt.Sprintf("%d in total, %d healthy, %d granted", c.Total, c.Healthy, c.Granted)
	if c.Missing > 0 {
		line += fmt.Sprintf(", %d missing", c.Missing)
	}
	return line
}
